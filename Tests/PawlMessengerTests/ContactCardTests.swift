import Devices
import Foundation
import PawlMessenger
import Synchronization
import TestKit
import Testing

/// Contact cards between messengers: who shows one is verified by it, and no card and no server replaces known keys.
@Suite struct ContactCardTests {
    private func keysExchanged(_ one: App, _ other: App) async throws {
        try await one.chat(other.messenger.username).sendText("hello")
        try await other.chat(one.messenger.username).sendText("hello")
        try await eventuallyAsync("keys are exchanged") {
            let first = try await one.texts(with: other.messenger.username).count
            let second = try await other.texts(with: one.messenger.username).count
            return first == 2 && second == 2
        }
    }

    /// Waits until the server has the keys of a person.
    private func waitForKeys(of name: Username, by app: App) async throws {
        try await eventuallyAsync("the server has keys of \(name)") {
            (try? await app.messenger.transport.readKeyBundle(forUsername: name)) != nil
        }
    }

    @Test func aScannedCardVerifies() async throws {
        let server = SpoofServer()
        let (alice, bob) = (try await App.register("alice", at: server), try await App.register("bob", at: server))
        try await keysExchanged(alice, bob)
        #expect(!alice.chat("bob").isVerified)
        // As it is read from a screen.
        let card = try ContactCard(uri: try await bob.messenger.contactCard().uri)
        #expect(card.username == "bob" && card.config == nil)
        #expect(try await alice.messenger.verify(card: card) == .verified)
        #expect(alice.chat("bob").isVerified && !bob.chat("alice").isVerified)
        #expect(try await bob.messenger.verify(card: card) == .own)
        try await bob.chat("alice").sendText("after")
        try await eventuallyAsync("it is marked") {
            try await alice.chat("bob").messages().last?.isVerified == true
        }
        for app in [alice, bob] { app.close() }
    }

    /// A card before the first message: the keys of the server have to be those of the card.
    @Test func aNewPersonIsPinnedAndVerified() async throws {
        let server = SpoofServer()
        let (alice, bob) = (try await App.register("alice", at: server), try await App.register("bob", at: server))
        try await waitForKeys(of: "bob", by: alice)
        let file = try await eventualCard(bob)
        let card = try ContactCard(bytes: file.bytes)
        #expect(card == file && card.config?.devices == [bob.messenger.deviceId])
        #expect(try await alice.messenger.verify(card: card) == .verified)
        try await alice.chat("bob").sendText("hello")
        try await eventuallyAsync("it arrives") { try await bob.texts(with: "alice") == ["hello"] }
        #expect(alice.chat("bob").isVerified)
        for app in [alice, bob] { app.close() }
    }

    /// The card, when the keys are published.
    private func eventualCard(_ app: App) async throws -> ContactCard {
        try await eventuallyAsync("the keys are published") {
            try await app.messenger.contactCard().config != nil
        }
        return try await app.messenger.contactCard()
    }

    /// The server shows keys of its own under a person's name.
    @Test func aServerThatShowsOtherKeysIsReportedAndNothingIsPinned() async throws {
        let (server, elsewhere) = (SpoofServer(), SpoofServer())
        let (alice, mallory) = (try await App.register("alice", at: server), try await App.register("bob", at: server))
        let bob = try await App.register("bob", at: elsewhere)
        try await waitForKeys(of: "bob", by: alice)
        let card = try await eventualCard(bob)
        for card in [card, try ContactCard(uri: card.uri)] {
            #expect(try await alice.messenger.verify(card: card) == .differs)
            #expect(alice.chat("bob").safetyNumber() == nil)
        }
        // Known keys stay as well.
        try await keysExchanged(alice, mallory)
        let number = alice.chat("bob").safetyNumber()
        #expect(try await alice.messenger.verify(card: card) == .differs)
        #expect(try await alice.chat("bob").verify(card: card) == .differs)
        #expect(alice.chat("bob").safetyNumber() == number && !alice.chat("bob").isVerified)
        for app in [alice, bob, mallory] { app.close() }
    }

    /// A person has registered again: their card confirms the new keys, and the old card warns of them.
    @Test func aChangeOfKeysIsConfirmedByTheNewCardOnly() async throws {
        let (server, elsewhere) = (SpoofServer(), SpoofServer())
        let shown = Shown()
        let handler = RecordingHandler()
        let messenger = try await CypherMessenger.registerMessenger(
            username: "alice", authenticationMethod: .password("hunter2"), appPassword: "open sesame",
            usingTransport: { ShowingTransport(server.client(for: $0), shown) }, database: .inMemory(),
            eventHandler: handler)
        let alice = App(messenger: messenger, handler: handler, database: .inMemory())
        let bob = try await App.register("bob", at: server)
        try await keysExchanged(alice, bob)
        let old = try await eventualCard(bob)
        #expect(try await alice.messenger.verify(card: old) == .verified)
        bob.close()
        let again = try await App.register("bob", at: elsewhere)
        let new = try await eventualCard(again)
        let config = try #require(new.config)
        shown.config.withLock { $0 = config }
        try await alice.messenger.receiveServerEvent(.keyBundlePublished(config, byUser: "bob"))
        try await eventuallyAsync("the change is reported") { alice.chat("bob").hasChangedKeys }
        #expect(try await alice.messenger.verify(card: old) == .serverShowsOthers)
        #expect(try await alice.messenger.verify(card: new) == .confirmsNewKeys)
        #expect(alice.chat("bob").hasChangedKeys)
        try await alice.chat("bob").acceptKeys()
        #expect(!alice.chat("bob").isVerified)
        #expect(try await alice.messenger.verify(card: old) == .differs)
        #expect(try await alice.messenger.verify(card: new) == .verified)
        for app in [alice, again] { app.close() }
    }

    private final class Shown: Sendable {
        /// What is shown of every person in place of the server's keys; nil for those.
        let config = Mutex<UserConfig?>(nil)
    }

    /// A server that shows other keys than it has.
    private final class ShowingTransport: CypherServerTransportClient {
        private let inner: SpoofTransportClient
        private let shown: Shown

        init(_ inner: SpoofTransportClient, _ shown: Shown) { (self.inner, self.shown) = (inner, shown) }

        var delegate: (any CypherTransportClientDelegate)? {
            get { inner.delegate }
            set { inner.delegate = newValue }
        }
        var authenticated: AuthenticationState { inner.authenticated }
        var supportsMultiRecipientMessages: Bool { false }
        func sendMessage(
            _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId,
            messageId: String
        ) async throws {
            try await inner.sendMessage(
                message, toUser: username, otherUserDeviceId: otherUserDeviceId, messageId: messageId)
        }
        func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
            if username != "alice", let config = shown.config.withLock({ $0 }) { return config }
            return try await inner.readKeyBundle(forUsername: username)
        }
        func publishKeyBundle(_ data: UserConfig) async throws { try await inner.publishKeyBundle(data) }
    }

    /// A server without the person: the keys of the file are enough to know the person, and a code is not.
    @Test func aFileIsEnoughWhereTheServerHasNoKeys() async throws {
        let (server, elsewhere) = (SpoofServer(), SpoofServer())
        let alice = try await App.register("alice", at: server)
        let bob = try await App.register("bob", at: elsewhere)
        let card = try await eventualCard(bob)
        await #expect(throws: CypherMessengerError.keysMissing) {
            try await alice.messenger.verify(card: try ContactCard(uri: card.uri))
        }
        #expect(alice.chat("bob").safetyNumber() == nil)
        #expect(try await alice.messenger.verify(card: card) == .verified)
        #expect(alice.chat("bob").isVerified && alice.chat("bob").safetyNumber() != nil)
        for app in [alice, bob] { app.close() }
    }

    @Test func aFileOfAnotherNameOrWithOtherKeysIsRefused() async throws {
        let server = SpoofServer()
        let (alice, bob) = (try await App.register("alice", at: server), try await App.register("bob", at: server))
        let (one, two) = (try await eventualCard(alice), try await eventualCard(bob))
        // The devices have signed the name and the root, so parts of two cards make none.
        let keys = try #require(two.config?.bytes)
        #expect(throws: ContactCard.Failure.malformed) { try ContactCard(bytes: try Self.file("bob", one, keys)) }
        #expect(throws: ContactCard.Failure.malformed) { try ContactCard(bytes: try Self.file("carol", two, keys)) }
        #expect(try ContactCard(bytes: try Self.file("bob", two, keys)) == two)
        for count in stride(from: 0, to: two.bytes.count, by: 97) {
            #expect(throws: ContactCard.Failure.malformed) { try ContactCard(bytes: Array(two.bytes.prefix(count))) }
        }
        for app in [alice, bob] { app.close() }
    }

    /// A file with the root of a card and other parts.
    private static func file(_ name: String, _ root: ContactCard, _ keys: [UInt8]) throws -> [UInt8] {
        let key = try CardForm(uri: root.uri).root
        return try CardForm(name: name, root: key, keys: keys).bytes
    }

    @Test func aDeviceThatIsNotAdoptedHasNoCard() async throws {
        let server = SpoofServer()
        let bob = try await App.register("bob", at: server)
        _ = try await eventualCard(bob)
        let phone = try await App.register("bob", at: server)
        await #expect(throws: CypherMessengerError.noSuchDevice) { try await phone.messenger.contactCard() }
        for app in [bob, phone] { app.close() }
    }
}
