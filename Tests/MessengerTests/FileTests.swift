import Devices
import DoubleRatchet
import Envelope
import Messenger
import TestKit
import Testing

/// Files in chunks, and what messages say about them.
@Suite struct FileTests {
    private static let key = [UInt8](repeating: 3, count: 32)

    /// The sealed parts of a file, and the reference to them.
    private func seal(_ bytes: [UInt8]) throws -> (parts: [[UInt8]], file: FileReference) {
        var sealer = FileSealer(key: Self.key, size: UInt64(bytes.count))
        var parts: [[UInt8]] = []
        for number in 0..<FileReference.partCount(of: UInt64(bytes.count)) {
            let rest = bytes.dropFirst(number * FileReference.partSize)
            parts.append(try sealer.seal(Array(rest.prefix(FileReference.partSize))))
        }
        let file = FileReference(
            size: UInt64(bytes.count), digest: sealer.digest, key: Self.key, name: "a b.png", type: "image/png",
            parts: parts.indices.map { "blob-\($0)" })
        return (parts, try #require(file))
    }

    private func open(_ parts: [[UInt8]], _ file: FileReference) throws -> [UInt8]? {
        var opener = FileOpener(file)
        var bytes: [UInt8] = []
        for part in parts { bytes += try opener.open(part) }
        return opener.isComplete ? bytes : nil
    }

    private func bytes(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) } }

    @Test(arguments: [0, 1, 65_535, 65_536, 65_537, 131_072, 131_073, 300_000])
    func filesAreOpenedAsTheyWereSealed(_ size: Int) throws {
        let plaintext = bytes(size)
        let (parts, file) = try seal(plaintext)
        #expect(parts.count == max(1, (size + FileReference.partSize - 1) / FileReference.partSize))
        #expect(try open(parts, file) == plaintext)
    }

    @Test func alteredShortenedAndExchangedFilesAreRefused() throws {
        let (parts, file) = try seal(bytes(300_000))
        var random = SeededGenerator(seed: 71)
        for _ in 0..<20 {
            var altered = parts
            let part = Int.random(in: 0..<3, using: &random)
            altered[part][Int.random(in: 0..<altered[part].count, using: &random)] ^= 1
            #expect(throws: (any Error).self) { try open(altered, file) }
        }
        #expect(throws: (any Error).self) { try open([parts[1], parts[0], parts[2]], file) }
        #expect(throws: (any Error).self) { try open(parts + [parts[2]], file) }
        #expect(throws: (any Error).self) { try open([Array(parts[0].dropLast()), parts[1], parts[2]], file) }
        #expect(try open([parts[0], parts[1]], file) == nil)
        // Two chunks of a part are exchanged.
        let chunk = FileReference.chunkSize + 16
        let exchanged = Array(parts[0][chunk..<2 * chunk] + parts[0][..<chunk] + parts[0][(2 * chunk)...])
        #expect(throws: (any Error).self) { try open([exchanged, parts[1], parts[2]], file) }
        // The size is that of a shorter file: its last chunk is not marked as the last.
        var shorter = file
        (shorter.size, shorter.parts) = (UInt64(FileReference.partSize), ["blob-0"])
        #expect(throws: (any Error).self) { try open([parts[0]], shorter) }
        // A digest of other chunks.
        var other = file
        other.digest[0] ^= 1
        #expect(try open(parts, other) == nil)
    }

    @Test func aPartOfAnotherLengthIsNotSealed() throws {
        var sealer = FileSealer(key: Self.key, size: 10)
        #expect(throws: EnvelopeError.malformed) { try sealer.seal([1]) }
    }

    @Test func referencesAreReadAsTheyWereWrittenAndNoCutOneIs() throws {
        let (_, file) = try seal(bytes(100))
        #expect(try FileReference(file.text) == file)
        for length in 0..<file.text.utf8.count {
            #expect(throws: EnvelopeError.self) { try FileReference(String(file.text.prefix(length))) }
        }
        #expect(throws: EnvelopeError.self) { try FileReference(file.text + "AAAA") }
        #expect(throws: EnvelopeError.malformed) { try FileReference(String(repeating: "A", count: 60_001)) }
        var random = SeededGenerator(seed: 72)
        let letters = Array("ABCDwxyz0189+/=".utf8)
        for _ in 0..<3000 {
            var text = Array(file.text.utf8)
            text[Int.random(in: 0..<text.count, using: &random)] = letters.randomElement(using: &random)!
            guard let read = try? FileReference(String(decoding: text, as: UTF8.self)) else { continue }
            #expect((try? FileReference(read.text)) == read)
        }
    }

    @Test func namesAndLimitsHold() throws {
        let (_, file) = try seal([])
        func make(_ name: String = "a", type: String = "x/y", size: UInt64 = 0, parts: [String] = ["b"])
            -> FileReference?
        {
            FileReference(size: size, digest: file.digest, key: file.key, name: name, type: type, parts: parts)
        }
        #expect(make() != nil && make("\u{F6} \u{1F44D}.txt") != nil)
        for name in ["", ".", "..", "a/b", "..\\a", "a\u{0}", "a\n", String(repeating: "x", count: 256)] {
            #expect(make(name) == nil)
        }
        for type in ["", "a b", "\u{F6}", String(repeating: "x", count: 128)] { #expect(make(type: type) == nil) }
        #expect(make(size: FileReference.sizeLimit, parts: (0..<800).map { "\($0)" }) != nil)
        #expect(make(size: FileReference.sizeLimit + 1, parts: (0..<801).map { "\($0)" }) == nil)
        #expect(make(size: 5, parts: []) == nil && make(size: 5, parts: ["a", "b"]) == nil)
        #expect(make(parts: [""]) == nil && make(parts: [String(repeating: "x", count: 129)]) == nil)
        // The ids have to fit into a message.
        for (count, length, fits) in [(800, 54, true), (800, 128, false), (300, 128, true)] {
            let ids = [String](repeating: String(repeating: "x", count: length), count: count)
            let size = UInt64(count * FileReference.partSize)
            let file = make(String(repeating: "n", count: 255), type: "x/y", size: size, parts: ids)
            #expect((file != nil) == fits && file?.text.utf8.count ?? 0 <= ChatContent.textLimit)
        }
    }

    @Test func filesTravelAsMessages() throws {
        let world = World(seed: 73)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let (_, file) = try seal(bytes(100))
        alice.send("start", to: "bob")
        world.deliver()
        guard
            case .accepted(let sent)? = alice.perform({ .send(ticket: $0, SendJob(to: "bob", .file, text: file.text)) })
        else { return fail("not sent") }
        world.deliver()
        let received = try #require(bob.history(with: "alice").last)
        #expect(received.isFile && received.text == file.text && received.reference == sent.reference)
        #expect(try ChatMessage(chat: received.chat, sequence: received.sequence, bytes: received.bytes) == received)
        // It is not edited, and it is deleted with its key.
        let edit = alice.perform { .send(ticket: $0, SendJob(to: "bob", .edit(sent.reference), text: "x")) }
        guard case .refused(.unknownMessage)? = edit else { return fail("\(String(describing: edit))") }
        alice.perform { .send(ticket: $0, SendJob(to: "bob", .delete(sent.reference))) }
        world.deliver()
        #expect(bob.history(with: "alice").last?.text == "")
        // What is no file is not sent as one, nor without protection.
        let wrong = alice.perform { .send(ticket: $0, SendJob(to: "bob", .file, text: "x")) }
        guard case .refused(.tooLong)? = wrong else { return fail("\(String(describing: wrong))") }
        var plain = SendJob(to: "carol", .file, text: file.text)
        plain.fallback = .plaintext
        guard case .accepted(let waiting)? = alice.perform({ .send(ticket: $0, plain) }) else { return fail("refused") }
        #expect(waiting.state == .waiting && waiting.protection == .device)
        #expect(throws: EnvelopeError.malformed) {
            try ChatContent(
                Body(kind: .tagsOnly, tags: Array("+pawl/at=1;+pawl/file=1".utf8), text: Array("x".utf8)), now: 0)
        }
    }
}
