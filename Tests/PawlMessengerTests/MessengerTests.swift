import Envelope
import Foundation
import PawlMessenger
import PeerKit
import SQLiteStore
import StoreBase
import TestKit
import Testing

/// The messenger as an app uses it, over a server in memory.
@Suite struct CypherMessengerTests {
    @Test func listsChangeWithTheChat() async throws {
        let server = SpoofServer()
        let (alice, bob) = (try await App.register("alice", at: server), try await App.register("bob", at: server))
        var lists = bob.chat("alice").messageList().makeAsyncIterator()
        #expect(await lists.next()?.isEmpty == true)
        let message = try await alice.chat("bob").sendText("hello")
        var list = await lists.next() ?? []
        while list.isEmpty { list = await lists.next() ?? [] }
        #expect(list.map(\.text) == ["hello"] && list.map(\.id) == [message.id])
        try await eventuallyAsync("one is unread") {
            try await bob.messenger.listPrivateChats().map(\.unread) == [1]
        }
        try await bob.chat("alice").markAsRead()
        #expect(try await bob.messenger.listPrivateChats().map(\.unread) == [0])
        try await eventuallyAsync("alice knows that it was read") {
            try await alice.chat("bob").messages().last?.state == .read
        }
        var chats = alice.messenger.privateChatList().makeAsyncIterator()
        #expect(await chats.next()?.map(\.username) == ["bob"])
        var devices = alice.messenger.deviceList().makeAsyncIterator()
        #expect(await devices.next()?.map(\.isMasterDevice) == [true])
        for app in [alice, bob] { app.close() }
        // The lists end with the messenger.
        while await lists.next() != nil {}
        while await chats.next() != nil {}
    }

    @Test func safetyNumbersAreTheSameOnBothSides() async throws {
        let server = SpoofServer()
        let (alice, bob) = (try await App.register("alice", at: server), try await App.register("bob", at: server))
        #expect(alice.chat("bob").safetyNumber() == nil)
        try await alice.chat("bob").sendText("hello")
        // Bob pins the keys before he opens the text.
        try await eventuallyAsync("both have keys, and the text has come") {
            let texts = try await bob.texts(with: "alice")
            return texts == ["hello"] && alice.chat("bob").safetyNumber() != nil
        }
        #expect(alice.chat("bob").safetyNumber() == bob.chat("alice").safetyNumber())
        #expect(alice.chat("bob").safetyNumber()?.filter(\.isNumber).count == 60)
        #expect(alice.chat("bob").safetyCode() == bob.chat("alice").safetyCode())
        #expect(!bob.chat("alice").isVerified)
        try await bob.chat("alice").verify()
        #expect(bob.chat("alice").isVerified)
        try await alice.chat("bob").sendText("again")
        try await eventuallyAsync("the text is marked as verified") {
            try await bob.chat("alice").messages().map(\.isVerified) == [false, true]
        }
        for app in [alice, bob] { app.close() }
    }

    /// A failed read of the keys says nothing about the account.
    @Test func aServerThatDoesNotAnswerMakesNoNewAccount() async throws {
        let server = SpoofServer()
        let alice = try await App.register("alice", at: server)
        alice.close()
        var faults = SpoofServer.Faults()
        faults.drop = 100
        server.setFaults(faults)
        await #expect(throws: CypherMessengerError.self) { _ = try await App.register("alice", at: server) }
        server.setFaults(SpoofServer.Faults())
        let again = try await App.register("alice", at: server, alice.database)
        #expect(again.messenger.deviceId == alice.messenger.deviceId)
        again.close()
    }

    @Test func messagesWaitForAPersonWhoRegistersLater() async throws {
        let server = SpoofServer()
        let alice = try await App.register("alice", at: server)
        let message = try await alice.chat("bob").sendText("are you there?")
        #expect(message.state == .waiting)
        let bob = try await App.register("bob", at: server)
        try await eventuallyAsync("it has come") { try await bob.texts(with: "alice") == ["are you there?"] }
        #expect(try await alice.chat("bob").messages().first?.state != .waiting)
        for app in [alice, bob] { app.close() }
    }

    @Test func tasksWaitForAuthentication() async throws {
        let server = SpoofServer()
        let (alice, bob) = (try await App.register("alice", at: server), try await App.register("bob", at: server))
        try await alice.chat("bob").sendText("one")
        try await eventuallyAsync("it has come") { try await bob.texts(with: "alice") == ["one"] }
        let transport = try #require(alice.transport)
        try await transport.disconnect()
        try await alice.chat("bob").sendText("two")
        #expect(try await alice.chat("bob").messages().last?.state == .undelivered)
        try await transport.reconnect()
        try await eventuallyAsync("it has come") { try await bob.texts(with: "alice") == ["one", "two"] }
        for app in [alice, bob] { app.close() }
    }

    /// Multi-recipient messages are switched on for a chat that exists, and off again.
    @Test func multiRecipientMessagesCanBeSwitchedOnLater() async throws {
        let server = SpoofServer()
        let alice = try await App.register("alice", at: server)
        let bob = try await App.register("bob", at: server, adopts: true)
        let phone = try await App.register("bob", at: server)
        try await eventuallyAsync("the phone is adopted") { await phone.messenger.isAdopted() }
        for (number, isOn) in [false, true, false].enumerated() {
            alice.transport?.supportsMultiRecipientMessages = isOn
            alice.messenger.authenticationChanged(to: .authenticated)
            let message = try await alice.chat("bob").sendText("\(number)")
            for app in [bob, phone] {
                try await eventuallyAsync("text \(number) has come") {
                    try await app.texts(with: "alice") == (0...number).map { "\($0)" }
                }
            }
            // A call that took long is made again, with the same bytes.
            let envelopes = Set(server.receivedBytes).compactMap { try? Envelope($0, in: .json) }
                .filter { DeviceID($0.messageID.value).name == message.remoteId }
            // On a slow machine a device may have a new session meanwhile, and get the text once more in it.
            let several = envelopes.count { $0.kind == .several }
            #expect(several == (isOn ? 1 : 0))
            #expect(envelopes.count - several >= (isOn ? 0 : 2))
        }
        for app in [alice, bob, phone] { app.close() }
    }

    // MARK: History

    /// An added device gets the history over a server with all faults, while both devices of the person end and start.
    @Test(arguments: [UInt64(1), 2]) func anAddedDeviceGetsTheHistory(_ seed: UInt64) async throws {
        var random = SeededGenerator(seed: seed)
        let server = SpoofServer(seed: seed)
        let alice = try await App.register("alice", at: server)
        let databases = (MessengerDatabase.inMemory(), MessengerDatabase.inMemory())
        var bob = try await App.register("bob", at: server, databases.0, adopts: true)
        let group = try await alice.messenger.createGroupChat(with: ["bob"], name: "team")
        for number in 0..<60 {
            try await alice.chat("bob").sendText("\(number) " + String(repeating: "x", count: 8000))
        }
        try await group.sendText("to all")
        try await eventuallyAsync("bob has all") {
            let inGroup = try await bob.messenger.groupChat(group.id)?.messages().count
            return try await bob.texts(with: "alice").count == 60 && inGroup == 1
        }
        server.setFaults(.all(8))
        var tablet = try await App.registerStubbornly("bob", at: server, databases.1)
        try await eventuallyAsync("the tablet is adopted, seed \(seed)") { await tablet.messenger.isAdopted() }
        var shown = 0
        for _ in 0..<6 {
            try await Task.sleep(for: .milliseconds(Int64.random(in: 10...120, using: &random)))
            if Bool.random(using: &random) {
                shown += tablet.handler.events.created.count
                tablet.close()
                tablet = try await App.registerStubbornly("bob", at: server, databases.1)
            } else {
                bob.close()
                bob = try await App.registerStubbornly("bob", at: server, databases.0, adopts: true)
            }
        }
        server.setFaults(SpoofServer.Faults())
        try await eventuallyAsync("the tablet has the history, seed \(seed)") {
            let (isAdopted, waits) = (
                await tablet.messenger.isAdopted(), await tablet.messenger.awaitsHistory()
            )
            return isAdopted && !waits
        }
        let (own, master) = (
            try await tablet.chat("alice").messages(limit: 200),
            try await bob.chat("alice").messages(limit: 200)
        )
        #expect(own.map(\.id) == master.map(\.id) && own.map(\.text) == master.map(\.text))
        #expect(own.map(\.sentDate) == master.map(\.sentDate) && own.count == 60)
        let inGroup = try await tablet.messenger.groupChat(group.id)?.messages() ?? []
        #expect(inGroup.map(\.text) == ["to all"] && inGroup.first?.sender == "alice")
        shown += tablet.handler.events.created.count
        #expect(shown == 0, "no message of the history is new")
        for app in [alice, bob, tablet] { app.close() }
    }

    // MARK: At rest

    /// The server knows an added device only when the new list is published. A fault delays that, and the device is added all
    /// the same.
    @Test func aDeviceIsAddedAlthoughTheListIsPublishedLater() async throws {
        let server = SpoofServer()
        let phone = try await App.register("alice", at: server, adopts: true)
        try await eventuallyAsync("the phone is adopted") { await phone.messenger.isAdopted() }
        server.setTakesPublications(false)
        let laptop = try await App.register("alice", at: server)
        // The same envelope is sent again: the server has no mailbox for it yet.
        try await eventuallyAsync("the laptop was told, twice") { server.receivedBytes.count > 1 }
        #expect(await !laptop.messenger.isAdopted())
        server.setTakesPublications(true)
        try await eventuallyAsync("the laptop is adopted") { await laptop.messenger.isAdopted() }
        phone.close()
        laptop.close()
    }

    /// The same for another person, who has the new list from a contact card before the server has it.
    @Test func aMessageWaitsForADeviceWhoseListIsPublishedLater() async throws {
        let server = SpoofServer()
        let alice = try await App.register("alice", at: server)
        let bob = try await App.register("bob", at: server, adopts: true)
        try await eventuallyAsync("bob's keys are published") {
            (try? await alice.messenger.transport.readKeyBundle(forUsername: "bob")) != nil
        }
        server.setTakesPublications(false)
        let phone = try await App.register("bob", at: server)
        try await eventuallyAsync("bob has added the phone") {
            try await bob.messenger.contactCard().config?.devices.count == 2
        }
        let card = try ContactCard(bytes: try await bob.messenger.contactCard().bytes)
        #expect(try await alice.messenger.verify(card: card) == .verified)
        try await alice.chat("bob").sendText("to both")
        try await eventuallyAsync("bob has it") { try await bob.texts(with: "alice") == ["to both"] }
        #expect(try await phone.texts(with: "alice").isEmpty)
        server.setTakesPublications(true)
        try await eventuallyAsync("the phone has it") { try await phone.texts(with: "alice") == ["to both"] }
        try await eventuallyAsync("it is delivered") {
            try await alice.chat("bob").messages().first?.state == .received
        }
        for app in [alice, bob, phone] { app.close() }
    }

    @Test func theHistoryIsSealedUnderThePassword() async throws {
        let scratch = try ScratchDirectory()
        let database = MessengerDatabase.directory(scratch.file("alice")).with(.least)
        let server = SpoofServer()
        let alice = try await App.register("alice", at: server, database)
        let bob = try await App.register("bob", at: server)
        try await alice.chat("bob").sendText("the canary sings")
        try await eventuallyAsync("it has come") { try await bob.texts(with: "alice") == ["the canary sings"] }
        alice.close()
        for name in scratch.names(in: scratch.file("alice")) {
            let bytes = try Data(contentsOf: URL(fileURLWithPath: scratch.file("alice/" + name)))
            #expect(bytes.range(of: Data("canary".utf8)) == nil, "\(name) has the text")
        }
        await #expect(throws: CypherMessengerError.self) {
            _ = try await CypherMessenger.registerMessenger(
                username: "alice", authenticationMethod: .identity, appPassword: "another password",
                usingTransport: { server.client(for: $0) }, database: database, eventHandler: RecordingHandler())
        }
        let again = try await App.register("alice", at: server, database)
        #expect(try await again.texts(with: "bob") == ["the canary sings"])
        again.close()
        bob.close()
    }

    @Test func parametersOfThePasswordAreReadInOneFormOnly() throws {
        for function in [PasswordKey.Function.argon2id(operations: 3, memory: 256 << 20), .slowScrypt] {
            let parameters = PasswordKey.make(function)
            #expect(PasswordKey(text: parameters.text) == parameters)
            let text = parameters.text
            for length in 0..<text.count { #expect(PasswordKey(text: String(text.prefix(length))) == nil) }
            for changed in [text + "\n", text.uppercased(), "\n" + text, text.replacing("\n", with: "\r\n")] {
                #expect(PasswordKey(text: changed) == nil)
            }
        }
        let salt = String(repeating: "0a", count: 16)
        for (isRead, lines) in [
            (true, "argon2id13\n3\n268435456"), (false, "argon2i13\n3\n268435456"), (false, "argon2id13\n0\n268435456"),
            (false, "argon2id13\n65\n268435456"), (false, "argon2id13\n3\n99999999999"), (true, "scrypt\n1024\n8"),
            (true, "scrypt\n4194304\n8"), (false, "scrypt\n8388608\n8"), (false, "scrypt\n1025\n8"),
            (false, "scrypt\n512\n8"), (false, "scrypt\n1024\n1"), (false, "scrypt\n01024\n8"), (false, "\n\n"),
        ] { #expect((PasswordKey(text: "\(lines)\n\(salt)\n") != nil) == isRead, "\(lines)") }
    }

    @Test(arguments: [PasswordKey.Function.least, .fastScrypt]) func passwordAndSaltMakeTheKey(
        _ function: PasswordKey.Function
    ) throws {
        let one = PasswordKey(function, salt: [UInt8](repeating: 1, count: 16))
        let two = PasswordKey(function, salt: [UInt8](repeating: 2, count: 16))
        #expect(try one.key(from: "a").isEqual(to: one.key(from: "a")))
        #expect(try !one.key(from: "a").isEqual(to: one.key(from: "b")))
        #expect(try !one.key(from: "a").isEqual(to: two.key(from: "a")))
        #expect(try !one.key(from: "").isEqual(to: one.key(from: "a")))
    }

    /// RFC 7914, section 12: password "pleaseletmein", salt "SodiumChloride"; the first half of the 64 bytes.
    @Test func scryptIsThatOfTheSpecification() throws {
        let key = try PasswordKey(.scrypt(rounds: 16384, blockSize: 8), salt: Array("SodiumChloride".utf8))
            .key(from: "pleaseletmein")
        let expected: [UInt8] = [
            0x70, 0x23, 0xbd, 0xcb, 0x3a, 0xfd, 0x73, 0x48, 0x46, 0x1c, 0x06, 0xcd, 0x81, 0xfd, 0x38, 0xeb,
            0xfd, 0xa8, 0xfb, 0xba, 0x90, 0x4f, 0x8e, 0x3e, 0xa9, 0xb5, 0x43, 0xf6, 0x54, 0x5d, 0xa1, 0xf2,
        ]
        #expect(key.isEqual(to: StorageKey(expected)))
    }

    @Test func aHistoryUnderScryptIsOpenedByEveryBuild() async throws {
        let scratch = try ScratchDirectory()
        let database = MessengerDatabase.directory(scratch.file("alice"))
        let server = SpoofServer()
        let alice = try await App.register("alice", at: server, database.with(.fastScrypt))
        alice.close()
        let parameters = try String(contentsOfFile: scratch.file("alice/password.kdf"), encoding: .utf8)
        #expect(parameters.hasPrefix("scrypt\n1024\n8\n"))
        let again = try await App.register("alice", at: server, database)
        #expect(again.messenger.deviceId == alice.messenger.deviceId)
        again.close()
    }
}
