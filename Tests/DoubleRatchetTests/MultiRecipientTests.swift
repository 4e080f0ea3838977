import Testing

@testable import DoubleRatchet

@Suite("One body for several devices")
struct MultiRecipientTests {
    private let sender = Party(1, seed: 50)
    private let readers = (2...4).map { Party($0, seed: 50) }

    init() throws { for reader in readers { try sender.begin(with: reader) } }

    private func sealed(
        _ body: [UInt8], for recipients: [Party]? = nil, bound: [UInt8] = [7]
    ) throws -> MultiRecipientMessage {
        var sealer = MultiRecipientSealer(body.span, associatedData: bound, random: &sender.random)
        for reader in recipients ?? readers {
            var record = try sender.record(with: reader)
            try sealer.add(
                UInt64(reader.name), &record, associatedData: [UInt8(reader.name)], random: &sender.random)
            sender.keep(record, with: reader)
        }
        return sealer.finish()
    }

    private func open(
        _ message: MultiRecipientMessage, as reader: Party, bound: [UInt8] = [7]
    ) throws -> [UInt8] {
        let wrapped = try #require(message.message(for: UInt64(reader.name)))
        let key = try reader.open(wrapped, from: sender, data: message.authenticated([UInt8(reader.name)]))
        var body: [UInt8] = []
        try message.openBody(contentKey: key.span, associatedData: bound, into: &body)
        return body
    }

    @Test("each device opens it, and only once") func everybody() throws {
        let message = try sealed([1, 2, 3])
        for reader in readers {
            #expect(try open(message, as: reader) == [1, 2, 3])
            #expect(throws: RatchetError.duplicate) { _ = try open(message, as: reader) }
        }
        #expect(message.message(for: 99) == nil)
    }

    @Test("a body of no bytes, for one device and for none") func edges() throws {
        #expect(try open(try sealed([], for: [readers[0]]), as: readers[0]) == [])
        #expect(try sealed([1], for: []).keys.isEmpty)
    }

    @Test("attack: a recipient, who knows the key, puts another body into the message to another one")
    func exchangedBody() throws {
        let message = try sealed([1])
        let wrapped = try #require(message.message(for: 2))
        let key = try readers[0].open(wrapped, from: sender, data: message.authenticated([2]))
        var other: [UInt8] = []
        [9].withUnsafeBytes { Primitives.seal($0, key: SecretBytes(key), authenticating: [7], into: &other) }
        let forged = try MultiRecipientMessage(keys: message.keys, sealedBody: other)
        var opened: [UInt8] = []
        try forged.openBody(contentKey: key.span, associatedData: [7], into: &opened)
        #expect(!opened.isEmpty, "the control: under the key the other body is in order")
        #expect(throws: RatchetError.authenticationFailed) { _ = try open(forged, as: readers[1]) }
        // It has cost nothing.
        #expect(try open(message, as: readers[1]) == [1])
    }

    @Test("attack: bodies exchanged between two messages, and keys between two recipients") func exchanged() throws {
        let (one, two) = (try sealed([1]), try sealed([2]))
        let crossed = try MultiRecipientMessage(keys: one.keys, sealedBody: two.sealedBody)
        #expect(throws: RatchetError.authenticationFailed) { _ = try open(crossed, as: readers[0]) }
        let turned = try MultiRecipientMessage(
            keys: [
                .init(recipient: 2, message: try #require(one.message(for: 3))),
                .init(recipient: 3, message: try #require(one.message(for: 2))),
            ], sealedBody: one.sealedBody)
        for reader in readers[..<2] {
            #expect(throws: RatchetError.self) { _ = try open(turned, as: reader) }
        }
        for reader in readers {
            #expect(try open(two, as: reader) == [2])
            #expect(try open(one, as: reader) == [1])
        }
    }

    @Test("the sender's data is bound to the body as well") func otherData() throws {
        let message = try sealed([1])
        #expect(throws: RatchetError.authenticationFailed) { _ = try open(message, as: readers[0], bound: [8]) }
    }

    @Test("a content key of another length is refused", arguments: [0, 1, 15, 16, 24, 31, 33, 64])
    func keyLength(_ length: Int) throws {
        let key = [UInt8](repeating: 1, count: length)
        let message = try MultiRecipientMessage(keys: [], sealedBody: [UInt8](repeating: 3, count: 40))
        var output: [UInt8] = [5]
        #expect(throws: RatchetError.malformed) {
            try message.openBody(contentKey: key.span, associatedData: [], into: &output)
        }
        #expect(output == [5])
    }

    @Test("two bodies never share a key") func freshKeys() throws {
        let (one, two) = (try sealed([1]), try sealed([1]))
        #expect(one.sealedBody != two.sealedBody)
    }

    @Test("what does not fit the form is refused") func tooLarge() throws {
        let key = MultiRecipientMessage.WrappedKey(recipient: 1, message: [1])
        let most = [MultiRecipientMessage.WrappedKey](repeating: key, count: MultiRecipientMessage.recipientLimit)
        let longest = MultiRecipientMessage.WrappedKey(recipient: 1, message: [UInt8](repeating: 2, count: 65_535))
        for keys in [most, [longest]] {
            let message = try MultiRecipientMessage(keys: keys, sealedBody: [3])
            var bytes: [UInt8] = []
            message.serialize(into: &bytes)
            #expect(try MultiRecipientMessage(serialized: bytes.span) == message)
        }
        let longer = MultiRecipientMessage.WrappedKey(recipient: 1, message: longest.message + [2])
        for keys in [most + [key], [longer]] {
            #expect(throws: RatchetError.malformed) { try MultiRecipientMessage(keys: keys, sealedBody: [3]) }
        }
    }

    @Test("on the wire, byte for byte") func wire() throws {
        let message = try MultiRecipientMessage(
            keys: [.init(recipient: 0x0102, message: [7, 8, 9]), .init(recipient: .max, message: [])],
            sealedBody: [0xAA, 0xBB])
        var bytes: [UInt8] = []
        message.serialize(into: &bytes)
        #expect(text(bytes) == "02" + "0000000000000102" + "0003070809" + "ffffffffffffffff" + "0000" + "aabb")
        #expect(try MultiRecipientMessage(serialized: bytes.span) == message)
        #expect(
            bytes.count == MultiRecipientMessage.overhead - KeySize.tag + 2 * MultiRecipientMessage.recipientOverhead
                + 3 + 2)
        for length in 0..<(bytes.count - 2) {
            let cut = Array(bytes[..<length])
            #expect(throws: RatchetError.malformed) { _ = try MultiRecipientMessage(serialized: cut.span) }
        }
        try #expect(MultiRecipientMessage(keys: [], sealedBody: []).authenticated([1]).count == 33)
        #expect(throws: RatchetError.authenticationFailed) {
            var output: [UInt8] = []
            let key = [UInt8](repeating: 0, count: 32)
            try message.openBody(contentKey: key.span, associatedData: [], into: &output)
        }
    }

    @Test("it takes 255 recipients and no more") func limit() throws {
        let body: [UInt8] = []
        var sealer = MultiRecipientSealer(body.span, associatedData: [], random: &sender.random)
        var record = try sender.record(with: readers[0])
        for number in 0..<255 {
            try sealer.add(UInt64(number), &record, associatedData: [], random: &sender.random)
        }
        do {
            try sealer.add(255, &record, associatedData: [], random: &sender.random)
            Issue.record("256 recipients")
        } catch {
            #expect(error == .malformed)
        }
        var bytes: [UInt8] = []
        sealer.finish().serialize(into: &bytes)
        #expect(try MultiRecipientMessage(serialized: bytes.span).keys.count == 255)
    }
}
