import Foundation
import PeerKit
import TestThreads
import Testing
import TransportsClient
import TransportsCore

/// Loading of libraries that a compiler makes here.
@Suite(.blocking) struct LibraryTests {
    private static func compile(_ source: String, _ name: String, in scratch: ScratchDirectory) throws -> String {
        let file = try scratch.write("\(name).c", source)
        let library = scratch.file("\(name).so")
        let made = try ChildProcess.run("gcc", ["-shared", "-fPIC", "-o", library, file])
        try #require(made.succeeded, "\(made.stderr)")
        return library
    }

    private static func load(_ path: String) throws -> TransportLibrary {
        try TransportLibrary(path: path, digests: [TransportLibrary.digest(path: path)])
    }

    private static func refusal(_ body: () throws -> Void) -> TesseractError? {
        do {
            try body()
            return nil
        } catch { return error as? TesseractError }
    }

    private static func isIncompatible(_ error: TesseractError?) -> Bool {
        if case .incompatible? = error { true } else { false }
    }

    private static func isUnavailable(_ error: TesseractError?) -> Bool {
        if case .unavailable? = error { true } else { false }
    }

    @Test func librariesOfAnotherVersionAreRefused() throws {
        let scratch = try ScratchDirectory()
        let wrong = try Self.compile("unsigned pawl_transports_abi(void) { return 2; }", "wrong", in: scratch)
        let error = Self.refusal { _ = try Self.load(wrong) }
        #expect(Self.isIncompatible(error) && error?.reason.contains("version 2") == true)
    }

    @Test func librariesWithoutTheSymbolsAreRefused() throws {
        let scratch = try ScratchDirectory()
        let none = try Self.compile("int something(void) { return 2; }", "none", in: scratch)
        #expect(Self.isIncompatible(Self.refusal { _ = try Self.load(none) }))
        let half = try Self.compile("unsigned pawl_transports_abi(void) { return 1; }", "half", in: scratch)
        let library = try Self.load(half)
        #expect(Self.isIncompatible(Self.refusal { _ = try LoadedTransport(library: library) }))
    }

    @Test func whatIsNoLibraryIsRefused() throws {
        let scratch = try ScratchDirectory()
        let garbage = try scratch.write("garbage.so", "this is no library")
        #expect(Self.isIncompatible(Self.refusal { _ = try Self.load(garbage) }))
        let empty = try scratch.write("empty.so", "")
        #expect(Self.isIncompatible(Self.refusal { _ = try Self.load(empty) }))
        for path in [scratch.file("missing.so"), scratch.path, "/dev/zero"] {
            #expect(Self.isUnavailable(Self.refusal { _ = try Self.load(path) }), "\(path)")
        }
    }

    /// The path is absolute and the bytes are known; nothing is searched.
    @Test func onlyListedLibrariesAreLoaded() throws {
        let scratch = try ScratchDirectory()
        let good = try Self.compile("unsigned pawl_transports_abi(void) { return 1; }", "good", in: scratch)
        #expect(Self.isUnavailable(Self.refusal { _ = try TransportLibrary(path: good, digests: []) }))
        let other = String(repeating: "0", count: 64)
        #expect(Self.isUnavailable(Self.refusal { _ = try TransportLibrary(path: good, digests: [other]) }))
        #expect(Self.isUnavailable(Self.refusal { _ = try TransportLibrary(path: "good.so", digests: [other]) }))
        let digest = try TransportLibrary.digest(path: good)
        _ = try TransportLibrary(path: good, digests: [other, digest])
        // Changed bytes have another digest.
        let changed = try Self.compile("unsigned pawl_transports_abi(void) { return 1; } int x;", "good", in: scratch)
        #expect(Self.isUnavailable(Self.refusal { _ = try TransportLibrary(path: changed, digests: [digest]) }))
    }

    /// Two libraries have variables of their own; the same one, loaded twice, has them once.
    @Test func twoLibrariesAndOneTwice() throws {
        let scratch = try ScratchDirectory()
        let source = "unsigned pawl_transports_abi(void) { return 1; } static int n; int next(void) { return ++n; }"
        let first = try Self.compile(source, "first", in: scratch)
        let second = try Self.compile(source + " int other;", "second", in: scratch)
        typealias Next = @convention(c) () -> Int32
        let (a, b): (Next, Next) = (try Self.load(first).function("next"), try Self.load(second).function("next"))
        #expect(a() == 1)
        #expect(a() == 2)
        #expect(b() == 1)
        let again: Next = try Self.load(first).function("next")
        #expect(again() == 3)
    }
}
