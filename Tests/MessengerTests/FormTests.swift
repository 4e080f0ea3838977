import Devices
import DoubleRatchet
import Envelope
import Messenger
import Protection
import TestKit
import Testing

/// The forms of contents, rows, published keys and requests: whole, byte by byte, cut, too long, altered.
@Suite struct FormTests {
    private static let reference = MessageReference(device: DeviceID(0xAB), message: MessageID(0xCD))

    static let contents: [ChatContent] = [
        ChatContent(.text, text: "hello", writtenAt: 1),
        ChatContent(.text, text: "", writtenAt: 0, recipient: "b\u{F6}b;=,", timer: 60),
        ChatContent(.edit(reference), text: "zoe\u{308}", writtenAt: 999_999_999_999_999),
        ChatContent(.delete(reference), writtenAt: 2),
        ChatContent(.react(reference, with: "\u{1F44D}"), writtenAt: 3),
        ChatContent(.react(reference, with: nil), writtenAt: 3),
        ChatContent(.signal(kind: "p2p-1"), text: "{}", writtenAt: 4, timer: 30),
        ChatContent(.history, text: "AQ", writtenAt: 4),
        ChatContent(.received([MessageID(1), MessageID(.max)]), writtenAt: 4),
        ChatContent(.read((0..<16).map { MessageID($0) }), writtenAt: 5, recipient: "bob"),
    ]

    @Test(arguments: contents) func contentsAreReadAsTheyWereWritten(_ content: ChatContent) throws {
        #expect(try ChatContent(content.body, now: 77) == content)
        // As it travels.
        let padded = content.body.bytes(paddedTo: 512)
        #expect(try ChatContent(try Body(padded), now: 77) == content)
    }

    /// A line of a sidecar has a text and perhaps other tags.
    @Test func aTextWithoutTagsIsAText() throws {
        let body = Body(tags: Array("+draft/reply=x;time=5;+pawl/new=1".utf8), text: Array("hi".utf8))
        #expect(try ChatContent(body, now: 77) == ChatContent(.text, text: "hi", writtenAt: 77))
    }

    @Test(arguments: [
        "+pawl/edit=", "+pawl/edit=00", "+pawl/edit=00000000000000AB00000000000000cd",
        "+pawl/edit=00000000000000ab00000000000000cd;+pawl/delete=00000000000000ab00000000000000cd",
        "+pawl/at=-1", "+pawl/at=", "+pawl/at=1e3", "+pawl/at=1234567890123456", "+pawl/at=1;+pawl/at=1",
        "+pawl/to=!", "+pawl/to=wyg", "+pawl/timer=x", "+pawl/received=1",
        "+pawl/delete=00000000000000ab00000000000000cd",
    ])
    func wrongTagsAreRefused(_ tags: String) {
        #expect(throws: EnvelopeError.malformed) {
            try ChatContent(Body(tags: Array(tags.utf8), text: Array("x".utf8)), now: 0)
        }
    }

    @Test func limitsOfContentsHold() {
        let ids = (0..<17).map { MessageID($0) }
        let body = ChatContent(.read(ids), writtenAt: 1).body
        #expect(throws: EnvelopeError.malformed) { try ChatContent(body, now: 0) }
        let long = ChatContent(.react(Self.reference, with: String(repeating: "x", count: 65)), writtenAt: 1).body
        #expect(throws: EnvelopeError.malformed) { try ChatContent(long, now: 0) }
        let empty = ChatContent(.react(Self.reference, with: ""), writtenAt: 1).body
        #expect(throws: EnvelopeError.malformed) { try ChatContent(empty, now: 0) }
        let tags = Body(tags: [UInt8](repeating: 0x61, count: 1025), text: [])
        #expect(throws: EnvelopeError.malformed) { try ChatContent(tags, now: 0) }
        let text = Body(text: [UInt8](repeating: 0x61, count: 60_001))
        #expect(throws: EnvelopeError.malformed) { try ChatContent(text, now: 0) }
        #expect(throws: EnvelopeError.malformed) { try ChatContent(Body(text: [0xC3, 0x28]), now: 0) }
        #expect(throws: EnvelopeError.malformed) { try ChatContent(Body(kind: .control, text: []), now: 0) }
    }

    @Test func randomTagsNeverEndTheProcess() {
        var random = SeededGenerator(seed: 21)
        let pieces = ["+pawl/", "at", "=", ";", "edit", "react", "with", "received", ",", "0", "ab", "\u{F6}", "to"]
        for _ in 0..<3000 {
            let tags = (0..<Int.random(in: 0..<20, using: &random)).map { _ in pieces.randomElement(using: &random)! }
            var bytes = Array(tags.joined().utf8)
            if !bytes.isEmpty, Bool.random(using: &random) {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            guard let content = try? ChatContent(Body(tags: bytes, text: Array("x".utf8)), now: 5) else { continue }
            #expect((try? ChatContent(content.body, now: 6)) == content)
        }
    }

    // MARK: Rows

    static var message: ChatMessage {
        var message = ChatMessage(
            chat: .services("bob"), sequence: 7, reference: reference, isOwn: true, text: "zoe\u{308}",
            writtenAt: 1, storedAt: 2, state: .read, protection: .device)
        message.reactions = [
            ChatReaction(isOwn: true, characters: "!"), ChatReaction(isOwn: false, characters: "?"),
        ]
        (message.isVerified, message.isEdited, message.isDeleted, message.isAwaited) = (true, true, true, true)
        message.timer = 60
        return message
    }

    @Test func rowsAreReadAsTheyWereWrittenAndNoCutOneIsRead() throws {
        let (message, summary) = (Self.message, ChatSummary(chat: .services("bob"), last: 9, unread: 3, timer: 5))
        #expect(try ChatMessage(chat: message.chat, sequence: 7, bytes: message.bytes) == message)
        #expect(try ChatSummary(chat: summary.chat, bytes: summary.bytes) == summary)
        for length in 0..<message.bytes.count {
            #expect(throws: EnvelopeError.self) {
                try ChatMessage(chat: message.chat, sequence: 7, bytes: Array(message.bytes.prefix(length)))
            }
        }
        for length in 0..<summary.bytes.count {
            #expect(throws: EnvelopeError.self) {
                try ChatSummary(chat: summary.chat, bytes: Array(summary.bytes.prefix(length)))
            }
        }
        #expect(throws: EnvelopeError.self) {
            try ChatMessage(chat: message.chat, sequence: 7, bytes: message.bytes + [0])
        }
        var random = SeededGenerator(seed: 22)
        for _ in 0..<2000 {
            var bytes = message.bytes
            bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            guard let read = try? ChatMessage(chat: message.chat, sequence: 7, bytes: bytes) else { continue }
            #expect((try? ChatMessage(chat: message.chat, sequence: 7, bytes: read.bytes)) == read)
        }
    }

    /// Rows with the devices of a text have a form of their own; those without have the form of before.
    @Test func rowsNameTheDevicesOfAText() throws {
        let group = try #require(GroupID(String(repeating: "0a", count: 16)))
        for chat in [AccountID.services("bob"), group.chat] {
            var message = Self.message
            (message.chat, message.reactions) = (chat, [])
            #expect(message.bytes.first == (chat.group == nil ? 1 : 2))
            for readers in [[], [DeviceID(7)], [DeviceID(9), DeviceID(7)]] as [Set<DeviceID>] {
                message.readers = readers
                let bytes = message.bytes
                #expect(bytes.first == (chat.group == nil ? 3 : 4))
                #expect(try ChatMessage(chat: chat, sequence: 7, bytes: bytes) == message)
                for length in 0..<bytes.count {
                    #expect(throws: EnvelopeError.self) {
                        try ChatMessage(chat: chat, sequence: 7, bytes: Array(bytes.prefix(length)))
                    }
                }
            }
        }
    }

    /// Rows with changes have forms of their own, with the devices of the text or without.
    @Test func rowsNameTheChangesOfAMessage() throws {
        let group = try #require(GroupID(String(repeating: "0a", count: 16)))
        for chat in [AccountID.services("bob"), group.chat] {
            for readers in [nil, [DeviceID(7)]] as [Set<DeviceID>?] {
                var message = Self.message
                (message.chat, message.reactions, message.readers) = (chat, [], readers)
                message.note(ChatChange(.text, Self.reference))
                message.note(ChatChange(.reaction, MessageReference(device: DeviceID(9), message: MessageID(8))))
                let bytes = message.bytes
                #expect(bytes.first == (chat.group == nil ? 5 : 6) + (readers == nil ? 0 : 2))
                #expect(try ChatMessage(chat: chat, sequence: 7, bytes: bytes) == message)
                for length in 0..<bytes.count {
                    #expect(throws: EnvelopeError.self) {
                        try ChatMessage(chat: chat, sequence: 7, bytes: Array(bytes.prefix(length)))
                    }
                }
            }
        }
    }

    /// Of each device the last change of each kind is noted, and of any number of devices a bounded number.
    @Test func changesOfAMessageAreBounded() throws {
        var message = Self.message
        for number in 1...300 as ClosedRange<UInt64> {
            let reference = MessageReference(device: DeviceID(number / 2), message: MessageID(number))
            message.note(ChatChange(.text, reference))
            #expect(message.changes.last == ChatChange(.text, reference))
            #expect(try ChatMessage(chat: message.chat, sequence: 7, bytes: message.bytes) == message)
        }
        #expect(message.changes.count == 2 * ChatMessage.personLimit)
    }

    /// In a group whose members come and go, any number of people react to a message and confirm it.
    @Test func reactionsAndReceiptsAreBounded() throws {
        let group = try #require(GroupID(String(repeating: "0a", count: 16)))
        var message = ChatMessage(
            chat: group.chat, sequence: 7, reference: Self.reference, isOwn: true, text: "hi", writtenAt: 1,
            storedAt: 2, state: .sent, protection: .device)
        message.react(by: .own, with: "mine")
        for number in 0..<300 {
            let member = AccountID.services("person \(number)")
            message.react(by: member, with: "\(number)")
            message.note(.received, of: member) { $0.name.hasSuffix("9") }
            #expect(try ChatMessage(chat: group.chat, sequence: 7, bytes: message.bytes) == message)
        }
        #expect(message.reactions.count == ChatMessage.personLimit && message.reactions.first?.isOwn == true)
        #expect(message.reactions.last?.characters == "299")
        #expect(message.receipts.count <= ChatMessage.personLimit && message.receipts[.services("person 99")] != nil)
        // Rows of an earlier version, or a master device, may have more than the limit.
        message.reactions = (0..<300).map { ChatReaction(isOwn: false, characters: "\($0)", author: .services("bob")) }
        let read = try ChatMessage(chat: group.chat, sequence: 7, bytes: message.bytes)
        #expect(read.reactions.count == 255 && read.reactions.last?.characters == "299")
    }

    // MARK: Keys

    @Test func publishedKeysAreSignedCutAndAlteredOnesAreRefused() throws {
        let world = World(seed: 5)
        let bob = try world.person("bob")
        _ = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        let bytes = try #require(world.configs["bob"])
        let keys = try PublishedKeys(bytes)
        #expect(keys.bytes == bytes && keys.devices.count == 2)
        #expect(keys.confirmed(for: "bob").count == 2 && keys.confirmed(for: "Bob").isEmpty)
        for length in stride(from: 0, to: bytes.count, by: 13) {
            #expect(throws: EnvelopeError.self) { try PublishedKeys(Array(bytes.prefix(length))) }
        }
        #expect(throws: EnvelopeError.self) { try PublishedKeys(bytes + [0]) }
        #expect(throws: EnvelopeError.malformed) {
            try PublishedKeys(bytes + [UInt8](repeating: 0, count: PublishedKeys.maximumLength))
        }
        #expect(throws: EnvelopeError.unsupportedVersion(9)) { try PublishedKeys([9] + bytes.dropFirst()) }
        // An altered byte is refused, or makes an entry that its device has not signed.
        var random = SeededGenerator(seed: 23)
        for _ in 0..<150 {
            var altered = bytes
            altered[Int.random(in: 1..<bytes.count, using: &random)] ^= UInt8.random(in: 1...255, using: &random)
            guard let read = try? PublishedKeys(altered) else { continue }
            #expect(read.confirmed(for: "bob").count < 2)
        }
        let request = try #require(world.requests["bob"])
        #expect(try DeviceRequest(request).bytes == request)
        for length in stride(from: 0, to: request.count, by: 7) {
            #expect(throws: EnvelopeError.self) { try DeviceRequest(Array(request.prefix(length))) }
        }
        #expect(throws: EnvelopeError.self) { try DeviceRequest(request + [0]) }
        #expect(throws: EnvelopeError.malformed) {
            try DeviceRequest(request + [UInt8](repeating: 0, count: DeviceRequest.maximumLength))
        }
    }
}
