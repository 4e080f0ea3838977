import Foundation
import PawlMessenger
import Synchronization
import TestKit
import Testing

/// Upgrading unencrypted traffic: old and upgraded clients of one app beside each other.
@Suite struct PlaintextChannelTests {
    /// Whether a text is something that a person has written, and not an envelope or keys.
    private func isReadable(_ text: String) -> Bool { text.utf8.count < 60 && !text.hasPrefix("?PAWL") }

    @Test(arguments: [PlaintextChannel.Format.flag, .marker])
    func twoUpgradedClientsEncryptAndAnOldOneGoesOn(_ format: PlaintextChannel.Format) async throws {
        let server = PlainServer()
        let old = OldClient("olga", at: server)
        let alice = try await UpgradedClient.register("alice", at: server, format: format)
        let bob = try await UpgradedClient.register("bob", at: server, format: format)
        // Nothing is known of anybody, so the first text goes unprotected, with a hint.
        let first = try await alice.app.chat("bob").sendText("first")
        #expect(!first.isEncrypted)
        try await eventuallyAsync("both have the other's keys") {
            alice.channel.support(of: "bob") == .capable && bob.channel.support(of: "alice") == .capable
        }
        let second = try await alice.app.chat("bob").sendText("second")
        #expect(second.isEncrypted)
        try await eventuallyAsync("the second text has come") {
            try await bob.app.texts(with: "alice") == ["first", "second"]
        }
        try await bob.app.chat("alice").sendText("third")
        // With the old client all goes on as before, in both directions.
        for client in [alice, bob] { try await client.app.chat("olga").sendText("hello, olga") }
        try await old.send("hello, alice", to: "alice")
        try await eventuallyAsync("all texts have come") {
            let texts = try await alice.app.texts(with: "bob")
            let olgas = try await alice.app.texts(with: "olga")
            return texts == ["first", "second", "third"] && olgas == ["hello, olga", "hello, alice"]
                && old.texts.count == 2
        }
        #expect(alice.channel.support(of: "olga") == .legacy && bob.channel.support(of: "olga") == .unknown)
        // The old client has seen words only: the hint has no width, and no keys were sent to it.
        #expect(old.texts.allSatisfy { $0.hasPrefix("hello, olga") && isReadable($0) })
        #expect(server.log.filter { $0.to == "olga" }.allSatisfy { isReadable($0.text) && $0.encrypted != true })
        // After the keys, the server has seen no text between the upgraded clients.
        let sealed = server.log.filter { $0.to != "olga" && $0.from != "olga" && !$0.text.hasPrefix("first") }
        #expect(!sealed.isEmpty && sealed.allSatisfy { !isReadable($0.text) })
        #expect(!server.log.contains { $0.text.contains("second") || $0.text.contains("third") })
        let history = try await bob.app.chat("alice").messages()
        #expect(history.map(\.isEncrypted) == [false, true, true])
        alice.app.close()
        bob.app.close()
    }

    /// Bob has no keys yet when Alice's hint comes, and publishes them without asking for hers. She sends hers all the same,
    /// before the messages that his keys let go; he could not open them.
    @Test func keysThatArePublishedAfterAHintBringTheOthers() async throws {
        let sent = Mutex<[PlainText]>([])
        func channel(_ device: KeyedDevice) -> PlaintextChannel {
            PlaintextChannel(for: device.request()) { text, flag, recipient in
                sent.withLock {
                    $0.append(PlainText(from: device.user, to: recipient, text: text, encrypted: flag))
                }
            }
        }
        let devices = (KeyedDevice("alice", 1), KeyedDevice("bob", 2))
        let channels = (channel(devices.0), channel(devices.1))
        let delegates = (RecordingDelegate(), RecordingDelegate())
        (channels.0.delegate, channels.1.delegate) = delegates
        defer { withExtendedLifetime(delegates) {} }
        try await channels.0.publishKeyBundle(KeyedDevice.config(devices.0.list(), of: [devices.0]))
        try await channels.1.receive("hello", encrypted: false, from: "alice")
        let isQuiet = sent.withLock { $0.isEmpty }
        #expect(isQuiet)
        try await channels.1.publishKeyBundle(KeyedDevice.config(devices.1.list(), of: [devices.1]))
        var log: [Username] = []
        while let text = sent.withLock({ $0.isEmpty ? nil : $0.removeFirst() }), log.count < 10 {
            log.append(text.from)
            let recipient = text.to == "alice" ? channels.0 : channels.1
            try await recipient.receive(text.text, encrypted: text.encrypted, from: text.from)
        }
        #expect(log == ["bob", "alice"])
        #expect(channels.0.support(of: "bob") == .capable && channels.1.support(of: "alice") == .capable)
    }

    /// A text that comes before the messenger is open, or after it was released, is not stored. It must not count as received:
    /// the app would note its position behind it, and the text would be lost.
    @Test func withoutAMessengerNothingIsReceived() async throws {
        let channel = PlaintextChannel(for: KeyedDevice("alice", 1).request()) { _, _, _ in }
        await #expect(throws: MessengerClosed.self) {
            try await channel.receive("hello", encrypted: false, from: "bob")
        }
        #expect(channel.support(of: "bob") == .unknown)
        let delegate = RecordingDelegate()
        channel.delegate = delegate
        try await channel.receive("hello", encrypted: false, from: "bob")
        #expect(delegate.events == ["text hello from bob"])
    }

    /// A server that stores a message with a known id once stores each envelope of a message, and one sent again once.
    @Test func eachEnvelopeHasAnIDOfItsOwn() async throws {
        let ids = Mutex<[String?]>([])
        let device = KeyedDevice("bob", 2)
        let channel = PlaintextChannel(
            for: KeyedDevice("alice", 1).request(),
            sendWithID: { _, _, _, id in
                ids.withLock { $0.append(id) }
            })
        for byte: UInt8 in [1, 2, 1] {
            try await channel.sendMessage(
                RatchetedCypherMessage(bytes: [byte]), toUser: "bob", otherUserDeviceId: device.deviceId,
                messageId: "0000000000000001")
        }
        let sent = ids.withLock { $0.compactMap(\.self) }
        #expect(sent.count == 3 && sent[0] != sent[1] && sent[0] == sent[2])
        #expect(sent.allSatisfy { $0.utf8.count == 16 })
    }

    /// Receipts, edits and reactions need no call of the transport.
    @Test func receiptsAndEditsTravelSealed() async throws {
        let server = PlainServer()
        let alice = try await UpgradedClient.register("alice", at: server)
        let bob = try await UpgradedClient.register("bob", at: server)
        try await alice.app.chat("bob").sendText("first")
        try await eventuallyAsync("both have keys") {
            alice.channel.support(of: "bob") == .capable && bob.channel.support(of: "alice") == .capable
        }
        let message = try await alice.app.chat("bob").sendText("helo")
        try await eventuallyAsync("a receipt has come") {
            try await alice.app.chat("bob").messages().last?.state == .received
        }
        try await alice.app.chat("bob").edit(message, to: "hello")
        try await eventuallyAsync("the edit has come") {
            try await bob.app.texts(with: "alice") == ["first", "hello"]
        }
        try await bob.app.chat("alice").markAsRead()
        try await eventuallyAsync("it is read") {
            try await alice.app.chat("bob").messages().last?.state == .read
        }
        alice.app.close()
        bob.app.close()
    }

    /// The latch: the server writes under a person's name, and removes the flags.
    @Test func aProtectedChatNeverGoesBack() async throws {
        let server = PlainServer()
        let alice = try await UpgradedClient.register("alice", at: server)
        let bob = try await UpgradedClient.register("bob", at: server)
        try await alice.app.chat("bob").sendText("first")
        try await eventuallyAsync("both have keys") {
            alice.channel.support(of: "bob") == .capable && bob.channel.support(of: "alice") == .capable
        }
        try await alice.app.chat("bob").sendText("sealed")
        server.setKeepsFlags(false)
        try await alice.app.chat("bob").sendText("sealed without a flag")
        try await eventuallyAsync("both have come") {
            try await bob.app.texts(with: "alice") == ["first", "sealed", "sealed without a flag"]
        }
        try await server.send(PlainText(from: "alice", to: "bob", text: "send money", encrypted: nil))
        try await server.send(PlainText(from: "bob", to: "alice", text: "send money", encrypted: false))
        try await eventuallyAsync("both were withheld") {
            !alice.app.handler.events.withheld.isEmpty && !bob.app.handler.events.withheld.isEmpty
        }
        #expect(try await bob.app.texts(with: "alice").count == 3)
        // The latch is in the store.
        alice.app.close()
        let again = try await UpgradedClient.register("alice", at: server, alice.app.database)
        let message = try await again.app.chat("bob").sendText("after a restart")
        #expect(message.isEncrypted)
        try await eventuallyAsync("it has come") {
            try await bob.app.texts(with: "alice").last == "after a restart"
        }
        #expect(!server.log.contains { $0.text.contains("after a restart") })
        again.app.close()
        bob.app.close()
    }

    @Test func underRequiredATextToAnOldClientIsRefused() async throws {
        let server = PlainServer()
        let old = OldClient("olga", at: server)
        let alice = try await UpgradedClient.register("alice", at: server, policy: .required)
        let bob = try await UpgradedClient.register("bob", at: server)
        await #expect(throws: CypherMessengerError.keysMissing) {
            try await alice.app.chat("olga").sendText("secret")
        }
        #expect(try await alice.app.texts(with: "olga").isEmpty && old.texts.isEmpty)
        // A hint begins the exchange of keys, and then texts are sealed.
        try await bob.app.chat("alice").sendText("hello")
        try await eventuallyAsync("the keys have come") { alice.channel.support(of: "bob") == .capable }
        let message = try await alice.app.chat("bob").sendText("secret")
        #expect(message.isEncrypted)
        try await eventuallyAsync("it has come") {
            try await bob.app.texts(with: "alice") == ["hello", "secret"]
        }
        #expect(!server.log.contains { $0.text.contains("secret") })
        alice.app.close()
        bob.app.close()
    }

    /// What waits while the server cannot be reached is sent afterwards, in the same bytes.
    @Test func textsWaitWhileTheServerIsAway() async throws {
        let server = PlainServer()
        let alice = try await UpgradedClient.register("alice", at: server)
        let bob = try await UpgradedClient.register("bob", at: server)
        try await alice.app.chat("bob").sendText("first")
        try await eventuallyAsync("both have keys") {
            alice.channel.support(of: "bob") == .capable && bob.channel.support(of: "alice") == .capable
        }
        server.setOffline(true)
        alice.channel.authenticated = .unauthenticated
        for number in 0..<5 { try await alice.app.chat("bob").sendText("waiting \(number)") }
        try await eventuallyAsync("all are sealed") {
            try await alice.app.chat("bob").messages().filter { $0.state == .undelivered }.count == 5
        }
        server.setOffline(false)
        alice.channel.authenticated = .authenticated
        try await eventuallyAsync("all have come") {
            try await bob.app.texts(with: "alice") == ["first"] + (0..<5).map { "waiting \($0)" }
        }
        alice.app.close()
        bob.app.close()
    }

    /// Every text of an old client is a text, and no cut or altered frame is shown.
    @Test(arguments: [PlaintextChannel.Format.flag, .marker])
    func cutAndAlteredFramesAreNeverShown(_ format: PlaintextChannel.Format) async throws {
        let server = PlainServer()
        let alice = try await UpgradedClient.register("alice", at: server, format: format)
        let bob = try await UpgradedClient.register("bob", at: server, format: format)
        try await alice.app.chat("bob").sendText("first")
        try await eventuallyAsync("both have keys") {
            alice.channel.support(of: "bob") == .capable && bob.channel.support(of: "alice") == .capable
        }
        try await alice.app.chat("bob").sendText("sealed")
        let frames = server.log.filter { !isReadable($0.text) }.map(\.text)
        let carol = try await UpgradedClient.register("carol", at: server, format: format)
        var random = SeededGenerator(seed: 3)
        for frame in frames {
            for length in stride(from: 40, to: frame.count, by: 97) {
                try await carol.channel.receive(String(frame.prefix(length)), encrypted: true, from: "alice")
            }
            for _ in 0..<50 {
                var bytes = Array(frame.utf8)
                let place = Int.random(in: 8..<bytes.count, using: &random)
                bytes[place] = UInt8(ascii: "A") &+ UInt8.random(in: 0..<26, using: &random)
                try await carol.channel.receive(
                    String(decoding: bytes, as: UTF8.self), encrypted: nil, from: "alice")
            }
        }
        #expect(try await carol.app.texts(with: "alice").isEmpty)
        // Words that begin like a frame are words.
        for text in ["cGF3b", "cGF3b is how it begins", "", "?", "hello"] {
            #expect(try await carol.channel.receive(text, encrypted: nil, from: "dave") == .plaintext)
        }
        #expect(try await carol.app.texts(with: "dave").count == 5)
        for client in [alice, bob, carol] { client.app.close() }
    }
}
