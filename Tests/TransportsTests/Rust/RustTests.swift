import CTransports
import Foundation
import Glibc
import NIOCore
import Synchronization
import TestKit
import Testing
import TransportCodec
import TransportsClient
import TransportsCore

/// Processors that a transport has given back.
private let releases = Atomic<Int>(0)

/// The Rust side of the interface: panics, futures that wake themselves, cancellation, and what is left behind.
@Suite(.enabled(if: RustLibrary.isThere), .serialized) struct RustTests {
    private static func trouble() throws -> LoadedTransport {
        try LoadedTransport(library: RustLibrary.load(), configuration: Data("trouble".utf8))
    }

    private static func ask(_ word: String) async throws -> Result<Data, TesseractError> {
        try await trouble().connect(proto: "p").exchange(request: Data(word.utf8))
    }

    /// B2, 1: the original aborted when the id of an exported transport was asked.
    @Test func theIDOfAnExportedTransportCanBeAsked() async throws {
        #expect(try Self.trouble().id == "trouble")
        #expect(await (try Self.trouble()).status(proto: "p") == .ready)
    }

    @Test func aPanicInEveryFunctionIsAnError() async throws {
        for configuration in ["panic", "trouble-id"] {
            #expect(throws: TesseractError.panic(reason: configuration == "panic" ? "the constructor panics" : "no id"))
            {
                try LoadedTransport(library: RustLibrary.load(), configuration: Data(configuration.utf8))
            }
        }
        let transport = try Self.trouble()
        #expect(await transport.status(proto: "panic") == .error(.panic(reason: "no status")))
        #expect(await transport.status(proto: "panic-later") == .error(.panic(reason: "no status later")))
        let failed = transport.connect(proto: "panic")
        #expect(await failed.exchange(request: Data()) == .failure(.panic(reason: "no connection")))
        #expect(try await Self.ask("panic-in-send") == .failure(.panic(reason: "no send")))
        #expect(try await Self.ask("panic") == .failure(.panic(reason: "no receive")))
        #expect(try await Self.ask("panic-later") == .failure(.panic(reason: "no receive later")))
        #expect(try await Self.ask("still there") == .success(Data("still there".utf8)))
    }

    @Test func aConstructorsErrorHasItsOwnCode() throws {
        #expect(throws: TesseractError.custom(code: 1, reason: "the configuration is the path of a socket")) {
            try LoadedTransport(library: RustLibrary.load())
        }
    }

    @Test func statusesAndTheirTextsArriveWhole() async throws {
        let transport = try Self.trouble()
        #expect(await transport.status(proto: "unavailable") == .unavailable("not here\0 ~~~ :: 🐢"))
        #expect(await transport.status(proto: "error") == .error(.custom(code: 5, reason: "failed")))
    }

    /// B2, 2: the original deadlocked when a future woke itself inside `poll`.
    @Test func aFutureThatWakesItselfIsPolledAgain() async throws {
        #expect(try await Self.ask("yield") == .success(Data("yielded".utf8)))
    }

    /// B2, 3: the original polled a finished future when it was woken again.
    @Test func aWakeAfterTheEndDoesNothing() async throws {
        for _ in 0..<50 { #expect(try await Self.ask("wake-later") == .success(Data("woken".utf8))) }
    }

    /// B2, 12: the latest waker counts.
    @Test func aFutureIsCompletedByAnotherThread() async throws {
        let transport = try Self.trouble()
        let count = await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<16 {
                group.addTask {
                    let reply = await transport.connect(proto: "p").exchange(request: Data("from-a-thread".utf8))
                    return reply == .success(Data("from a thread".utf8))
                }
            }
            return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
        }
        #expect(count == 16)
    }

    /// B2, 4: in the original a future lived on after nothing waited for it.
    @Test func aCancelledFutureIsDropped() async throws {
        let transport = try Self.trouble()
        let tasks = (0..<20).map { number in
            Task {
                if number.isMultiple(of: 2) { return await transport.status(proto: "forever").isReady }
                let connection = transport.connect(proto: "p")
                return await connection.exchange(request: Data("forever".utf8)).isSuccess
            }
        }
        try await eventuallyAsync("all futures wait") { try RustLibrary.live(1) == 20 }
        for task in tasks { task.cancel() }
        for task in tasks { #expect(await !task.value) }
        #expect(try RustLibrary.live(1) == 0)
    }

    /// A Rust library in a process that does not ignore SIGPIPE: the service closes, and the client goes on sending.
    @Test func aClosedConnectionIsAnErrorAndNoSignal() async throws {
        await #expect(processExitsWith: .success) {
            let path = FileManager.default.temporaryDirectory.appending(path: "pawl-\(getpid()).sock").path
            let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            let address = try SocketAddress(unixDomainSocketPath: path)
            guard address.withSockAddr({ bind(listener, $0, socklen_t($1)) }) == 0, listen(listener, 1) == 0 else {
                exit(2)
            }
            defer { unlink(path) }
            signal(SIGPIPE, SIG_DFL)
            let transport = try LoadedTransport(library: RustLibrary.load(), configuration: Data(path.utf8))
            let connection = transport.connect(proto: "p")
            Thread.detachNewThread {
                let accepted = accept(listener, nil, nil)
                var welcome = ByteBuffer()
                Frame.welcome(version: Frame.version).write(to: &welcome)
                _ = welcome.withUnsafeReadableBytes { send(accepted, $0.baseAddress, $0.count, 0) }
                shutdown(accepted, Int32(SHUT_RD))
            }
            for _ in 0..<10_000 {
                if case .failure = await connection.send(request: Data("x".utf8)) { exit(0) }
            }
            exit(3)
        }
    }

    /// A processor whose table does not have all functions is refused, and what is behind a short table is not read.
    @Test func aProcessorsTableThatIsNotCompleteIsRefused() throws {
        let open = try RustLibrary.load().function(
            "pawl_service_transport_open", as: pawl_service_transport_open_function.self)
        var transport = pawl_service_transport()
        var error = pawl_error.none
        let path = FileManager.default.temporaryDirectory.appending(path: "pawl-\(getpid())-none.sock").path
        #expect(Data(path.utf8).lend { open($0, &transport, &error) })
        let owner = try ServiceTransport(taking: transport)
        let whole = MemoryLayout<pawl_processor_table>.size
        for (size, abi, hasProcess) in [
            (0, 1, true), (8, 1, true), (whole - 1, 1, true), (whole, 2, true), (whole, 1, false),
        ] {
            let table = StaticTable(
                pawl_processor_table(
                    table: pawl_table(
                        abi: UInt32(abi), size: UInt32(size), retain: { _ in },
                        release: { _ in releases.add(1, ordering: .sequentiallyConsistent) }),
                    supports: { _, _ in false },
                    process: hasProcess
                        ? { _, _, _ in pawl_operation(object: nil, cancel: nil, release: nil) } : nil))
            var bound = pawl_service_bound()
            let processor = pawl_processor(object: nil, table: table.pointer)
            #expect(!owner.handle.table.pointee.bind(owner.handle.object, processor, &bound, &error))
            #expect(error.take(limit: 1000).code == PAWL_INCOMPATIBLE, "\(size) \(abi) \(hasProcess)")
        }
        // Given back only if the table is long enough to have `release`.
        #expect(releases.load(ordering: .sequentiallyConsistent) == 1)
    }

    /// `PAWL_LONG` makes a million calls, two in each exchange, and looks at the memory of the process.
    @Test func everyBufferIsFreed() async throws {
        let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil
        let connection = try Self.trouble().connect(proto: "p")
        func exchange(_ count: Int) async {
            for number in 0..<count {
                let text = Data("text \(number)".utf8)
                #expect(await connection.exchange(request: text) == .success(text))
            }
        }
        await exchange(2000)
        let before = try Self.residentPages()
        if isLong { await exchange(500_000) }
        #expect(try await Self.ask("nothing") == .success(Data()))
        #expect(try RustLibrary.live(0) == 0)
        // 16 MiB in pages of 4 KiB: a leak of one buffer or closure per call is more. Other tests run meanwhile.
        if isLong { #expect(try Self.residentPages() - before < 4096) }
    }

    private static func residentPages() throws -> Int {
        let words = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ")
        return Int(words[1]) ?? 0
    }
}

/// `Tests/run` builds the Rust transports and requires them; elsewhere they may be missing.
@Suite struct RustPresenceTests {
    @Test func theRustTransportsAreThereIfTheyHaveToBe() {
        if RustLibrary.isRequired { #expect(RustLibrary.isThere && RustLibrary.isLinked) }
        #expect(Kind.available.contains(.rustLinked) == RustLibrary.isLinked)
    }
}
