import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import TestKit
import TestThreads
import Testing
import Vault

/// Envelopes of every kind with a program that was written from the page.
@Suite(.blocking) struct WireEnvelopeTests {
    private static let message = MessageID(0x0102_0304_0506_0708)
    private static let theirID = DeviceID(0xFFEE_DDCC_BBAA_9988)

    /// Our device and the program's, with a session that either side has begun.
    private func pair(oursInitiates: Bool) throws -> (peer: WirePeer, ours: WireDevice) {
        let (peer, ours) = (try WirePeer(), WireDevice(0x1122_3344_5566_7788))
        try peer.ask("device", "d")
        if oursInitiates {
            try ours.initiate("s", with: try peer.bytes("bundle", "d", 1))
        } else {
            try peer.ask("initiate", "s", "d", ours.bundle(oneTime: true))
        }
        return (peer, ours)
    }

    private static func direct(_ device: DeviceID) -> [Place] {
        [
            Place(
                protection: .gateway, protocolName: "irc", network: "irc.example", sender: "alice",
                recipient: "b\u{F6}b", recipientDevice: device),
            Place(
                protection: .gateway, protocolName: "irc", network: "irc.example", sender: "~1f",
                recipient: "room #cats @", recipientDevice: device),
            Place(protection: .device, protocolName: "irc", recipientDevice: device),
            Place(protection: .device, protocolName: "app", recipientDevice: device),
        ]
    }

    // MARK: Kind 1

    @Test(arguments: direct(theirID)) func weSealForOneDevice(place: Place) throws {
        let (peer, ours) = try pair(oursInitiates: true)
        let body = Body(tags: Array("+draft/react=x".utf8), text: Array("hello".utf8)).bytes(paddedTo: 100)
        for _ in 0..<2 {
            let bytes = Envelope(
                sender: ours.id, messageID: Self.message,
                ratchetMessage: try ours.encrypt("s", place.associated(ours.id, Self.message), body)
            ).bytes
            for other in bytes.altered { #expect(try peer.refuses("direct_open", "s", "d", place, other)) }
            var elsewhere = place
            elsewhere.recipient += "x"
            #expect(try peer.refuses("direct_open", "s", "d", elsewhere, bytes))
            let opened = try peer.bytes("direct_open", "s", "d", place, bytes)
            #expect(opened == body)
            let words = try peer.ask("body_read", opened)
            #expect(words == ["0", Array("+draft/react=x".utf8).word, Array("hello".utf8).word])
            // The answer ends the prekey part.
            _ = try ours.decrypt("s", [], try peer.bytes("encrypt", "s", [UInt8](), [1]))
        }
    }

    @Test(arguments: direct(DeviceID(0x1122_3344_5566_7788))) func weOpenWhatIsForOneDevice(place: Place) throws {
        let (peer, ours) = try pair(oursInitiates: false)
        let body = try peer.bytes("body_make", 1, Array("+typing=active".utf8), [UInt8](), 80)
        #expect(body.count == 80)
        let bytes = try peer.bytes("direct_seal", "s", place, Self.theirID, Self.message, body)
        func open(_ bytes: [UInt8], _ place: Place) throws -> [UInt8] {
            let envelope = try Envelope(bytes)
            guard envelope.kind == .direct else { throw EnvelopeError.malformed }
            let associated = place.associated(envelope.sender, envelope.messageID)
            return try ours.decrypt("s", associated, envelope.ratchetMessage)
        }
        for other in bytes.altered { #expect(refuses { _ = try open(other, place) }) }
        var elsewhere = place
        elsewhere.protection = place.protection == .device ? .gateway : .device
        #expect(refuses { _ = try open(bytes, elsewhere) })
        let opened = try Body(try open(bytes, place))
        #expect(opened == Body(kind: .tagsOnly, tags: Array("+typing=active".utf8), text: []))
    }

    // MARK: Kind 2

    private static let several = [
        Place(protection: .device, protocolName: "irc", recipientDevice: DeviceID(0)),
        Place(protection: .device, protocolName: "app", recipientDevice: DeviceID(0)),
        // A client's own envelope that a JSON backend keeps.
        Place(protection: .device, protocolName: "json", recipient: "room general", recipientDevice: DeviceID(0)),
        // One of the gateway's.
        Place(
            protection: .gateway, protocolName: "json", network: "chat.example", sender: "alice",
            recipient: "room general", recipientDevice: DeviceID(0)),
    ]

    /// Texts that a backend keeps are padded as such.
    private static func body(_ place: Place) throws -> [UInt8] {
        guard place.protocolName == "json" else { return Body(text: Array("hello".utf8)).bytes(paddedTo: 64) }
        return try Content.padded(Array(#"{"text":"hello"}"#.utf8))
    }

    @Test(arguments: several) func weSealForSeveralDevices(place: Place) throws {
        let (peer, ours) = try pair(oursInitiates: true)
        try peer.ask("device", "e")
        try ours.initiate("t", with: try peer.bytes("bundle", "e", 0))
        let body = try Self.body(place)
        /// An envelope for the program's devices.
        func seal(_ readers: [(device: DeviceID, session: String)]) throws -> [UInt8] {
            var sealer = MultiRecipientSealer(
                body.span, associatedData: place.associated(ours.id, Self.message, to: DeviceID(0)),
                random: &ours.random)
            for (device, session) in readers {
                let associated = place.associated(ours.id, Self.message, to: device)
                try ours.add(to: &sealer, device, session, associated)
            }
            var bytes: [UInt8] = []
            sealer.finish().serialize(into: &bytes)
            return Envelope(kind: .several, sender: ours.id, messageID: Self.message, ratchetMessage: bytes).bytes
        }
        var (one, two) = (place, place)
        (one.recipientDevice, two.recipientDevice) = (Self.theirID, DeviceID(77))
        let bytes = try seal([(one.recipientDevice, "s"), (two.recipientDevice, "t")])
        #expect(try peer.bytes("several_open", "s", "d", one, bytes) == body)
        #expect(try peer.bytes("several_open", "t", "e", two, bytes) == body)
        if place.protocolName == "json" {
            #expect(try peer.bytes("unpad", body) == Array(#"{"text":"hello"}"#.utf8))
        }
        let alone = try seal([(one.recipientDevice, "s")])
        for other in alone.altered { #expect(try peer.refuses("several_open", "s", "d", one, other)) }
        #expect(try peer.refuses("several_open", "s", "d", two, alone))
        #expect(try peer.bytes("several_open", "s", "d", one, alone) == body)
    }

    @Test(arguments: several) func weOpenWhatIsForSeveralDevices(place: Place) throws {
        let (peer, ours) = try pair(oursInitiates: false)
        let second = WireDevice(42)
        try peer.ask("initiate", "t", "d", second.bundle(oneTime: false))
        let text = Array(#"{"text":"hello"}"#.utf8)
        let body =
            try place.protocolName == "json"
            ? peer.bytes("pad", text) : peer.bytes("body_make", 0, [UInt8](), Array("hello".utf8), 64)
        #expect(try body == Self.body(place))
        func open(_ bytes: [UInt8], _ device: WireDevice, _ session: String) throws -> [UInt8] {
            let envelope = try Envelope(bytes, in: .json)
            guard envelope.kind == .several else { throw EnvelopeError.malformed }
            let several = try MultiRecipientMessage(serialized: envelope.ratchetMessage.span)
            guard let message = several.message(for: device.id.value) else { throw EnvelopeError.malformed }
            let bound = several.authenticated(place.associated(envelope.sender, envelope.messageID, to: device.id))
            let key = try device.decrypt(session, bound, message)
            var body: [UInt8] = []
            let associated = place.associated(envelope.sender, envelope.messageID, to: DeviceID(0))
            try several.openBody(contentKey: key.span, associatedData: associated, into: &body)
            return body
        }
        let readers = ["\(ours.id.value)=s", "\(second.id.value)=t"]
        let bytes = try peer.bytes("several_seal", place, Self.theirID, Self.message, body, readers[0], readers[1])
        #expect(try open(bytes, ours, "s") == body)
        #expect(try open(bytes, second, "t") == body)
        let alone = try peer.bytes("several_seal", place, Self.theirID, Self.message, body, readers[0])
        for other in alone.altered { #expect(refuses { _ = try open(other, ours, "s") }) }
        #expect(try open(alone, ours, "s") == body)
    }

    @Test func lengthsThatABackendKeepsAreTheSame() throws {
        let peer = try WirePeer()
        for length in [0, 1, 250, 251, 252, 4090, 8186, 8187, 8188, 16_378, 16_379, 32_763, 32_764, 65_535, 65_536] {
            let text = [UInt8](repeating: 0x61, count: length)
            let padded = try Content.padded(text)
            #expect(try peer.bytes("pad", text) == padded)
            #expect(try peer.bytes("unpad", padded) == text)
        }
        #expect(try peer.refuses("pad", [UInt8](repeating: 1, count: 65_537)))
        #expect(try peer.refuses("unpad", try Content.padded([1]).dropLast() + [1]))
    }

    @Test func contentKeysAtRest() throws {
        let (peer, sealer) = (try WirePeer(), StorageSealer(key: [UInt8](repeating: 5, count: 32)))
        var random = WireDevice(1).random
        let (storageKey, key) = ([UInt8](repeating: 5, count: 32), random.bytes(32))
        let (envelope, conversation) = (random.bytes(437), "room general")
        let label = Vault.label(
            ofKey: Self.message, EnvelopeDigest(of: envelope), AccountID(text: conversation), 1_700_000_000_000)
        let sealed = try sealer.seal(key, label: label, random: &random)
        let place: [any WireWord] = [Self.message, envelope, 1_700_000_000_000, Array(conversation.utf8)]
        #expect(try WirePeer.bytes(try peer.ask("content_key_open", [storageKey, sealed] + place)[0]) == key)
        let theirs = try WirePeer.bytes(try peer.ask("content_key_seal", [storageKey, key] + place)[0])
        #expect(try sealer.open(theirs, label: label) == key)
        for (own, other) in zip(sealed.altered, theirs.altered) {
            #expect(throws: WirePeer.Refusal.self) { try peer.ask("content_key_open", [storageKey, own] + place) }
            #expect(refuses { _ = try sealer.open(other, label: label) })
        }
    }

    // MARK: Kind 3

    private static let room = Place(
        protection: .device, protocolName: "irc", recipient: "room #cats", recipientDevice: DeviceID(0))

    @Test func weSealForARoom() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(9))
        var key = SenderKey(random: &ours.random)
        var distribution: [UInt8] = []
        func seal(_ text: String) throws -> [UInt8] {
            var message: [UInt8] = []
            try key.encrypt(
                Body(text: Array(text.utf8)).bytes(paddedTo: 0).span,
                associatedData: Self.room.associated(ours.id, Self.message).span, into: &message)
            return Envelope(kind: .room, sender: ours.id, messageID: Self.message, ratchetMessage: message).bytes
        }
        let before = try seal("before")
        key.distribution.serialize(into: &distribution)
        #expect(try peer.ask("sender_key_read", "k", distribution) == ["\(key.id)", "1"])
        let sent = try (0..<4).map { try seal("text \($0)") }
        #expect(try peer.refuses("room_open", "k", Self.room, before))
        for other in sent[2].altered { #expect(try peer.refuses("room_open", "k", Self.room, other)) }
        for number in [2, 0, 3, 1] {
            let body = try peer.bytes("room_open", "k", Self.room, sent[number])
            #expect(try WirePeer.text(try peer.ask("body_read", body)[2]) == "text \(number)")
            #expect(try peer.refuses("room_open", "k", Self.room, sent[number]))
        }
    }

    @Test func weOpenWhatIsForARoom() throws {
        let peer = try WirePeer()
        try peer.ask("sender_key", "k")
        func seal(_ text: String) throws -> [UInt8] {
            let body = try peer.bytes("body_make", 0, [UInt8](), Array(text.utf8), 40)
            return try peer.bytes("room_seal", "k", Self.room, Self.theirID, Self.message, body)
        }
        _ = try seal("before")
        let distribution = try peer.bytes("sender_key_distribution", "k")
        let read = try SenderKeyDistribution(serialized: distribution.span)
        #expect(distribution.count == 73 && read.iteration == 1)
        var receiver = SenderKeyReceiver(read)
        func open(_ bytes: [UInt8]) throws -> String {
            let envelope = try Envelope(bytes)
            guard envelope.kind == .room else { throw EnvelopeError.malformed }
            let associated = Self.room.associated(envelope.sender, envelope.messageID)
            var body: [UInt8] = []
            _ = try receiver.decrypt(envelope.ratchetMessage.span, associatedData: associated.span, into: &body)
            return String(decoding: try Body(body).text, as: UTF8.self)
        }
        let sent = try (0..<4).map { try seal("text \($0)") }
        for other in sent[2].altered { #expect(refuses { _ = try open(other) }) }
        for number in [2, 0, 3, 1] {
            #expect(try open(sent[number]) == "text \(number)")
            #expect(refuses { _ = try open(sent[number]) })
        }
    }

    // MARK: Kind 4

    @Test func weIntroduceOurselves() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(0x1122_3344_5566_7788))
        let bundle = ours.bundle(oneTime: true)
        let introduction = Introduction(
            time: 1_700_000_000_000, deviceList: ours.list, bundle: try PreKeyBundle(serialized: bundle.span),
            device: ours.id)
        let bytes = Envelope(
            kind: .introduction, sender: ours.id, messageID: Self.message,
            ratchetMessage: introduction.bytes(signedBy: ours.identity)
        ).bytes
        let words = try peer.ask("introduction_read", bytes)
        #expect(try words[0] == "1700000000000" && WirePeer.bytes(words[1]) == ours.list.bytes)
        #expect(try WirePeer.bytes(words[2]) == bundle)
        // The message id is not signed.
        for (place, other) in zip(stride(from: 0, to: bytes.count, by: bytes.count / 60), bytes.altered)
        where !(9..<17).contains(place) {
            #expect(try peer.refuses("introduction_read", other))
        }
        // A session can be begun with it.
        try peer.ask("device", "d")
        #expect(try peer.bytes("initiate", "s", "d", try WirePeer.bytes(words[2])) == ours.key)
        let first = try peer.bytes("encrypt", "s", [UInt8](), [1])
        #expect(try ours.decrypt("s", [], first) == [1])
    }

    @Test func weReadAnIntroduction() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        let key = try peer.bytes("device", "d")
        let list = try peer.bytes("list_make", "d", Self.theirID)
        let bytes = try peer.bytes("introduction_make", "d", Self.theirID, Self.message, 1_700_000_000_000, list)
        func read(_ bytes: [UInt8]) throws -> Introduction {
            let envelope = try Envelope(bytes)
            guard envelope.kind == .introduction else { throw EnvelopeError.malformed }
            return try Introduction(envelope.ratchetMessage, from: envelope.sender)
        }
        let introduction = try read(bytes)
        #expect(introduction.time == 1_700_000_000_000 && introduction.deviceList.root.bytes == key)
        for (place, other) in zip(stride(from: 0, to: bytes.count, by: bytes.count / 60), bytes.altered)
        where !(9..<17).contains(place) {
            #expect(refuses { _ = try read(other) })
        }
        var bundle: [UInt8] = []
        introduction.bundle.serialize(into: &bundle)
        try ours.initiate("s", with: bundle)
        #expect(try peer.bytes("decrypt", "s", "d", [UInt8](), try ours.encrypt("s", [], [1])) == [1])
    }
}
