import Foundation
import PawlMessenger
import Synchronization
import TestKit
import Testing

/// A transport whose blob calls are missing, or whose server alters blobs.
final class BlobTransport: CypherServerTransportClient {
    struct Behaviour: Sendable {
        var publishes = true
        var reads = true
        /// Whether a bit of each blob that is read is another one.
        var alters = false
        /// A person who is offline for this device alone: no keys are read, and nothing is sent.
        var hidden: Username?
        /// All that was published.
        var published: [Data] = []
    }

    private let base: SpoofTransportClient
    let behaviour: Mutex<Behaviour>

    init(_ base: SpoofTransportClient, publishes: Bool = true, reads: Bool = true) {
        self.base = base
        behaviour = Mutex(Behaviour(publishes: publishes, reads: reads))
    }

    var delegate: (any CypherTransportClientDelegate)? {
        get { base.delegate }
        set { base.delegate = newValue }
    }
    var authenticated: AuthenticationState { base.authenticated }

    func sendMessage(
        _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId, messageId: String
    ) async throws {
        guard behaviour.withLock({ $0.hidden }) != username else { throw CypherTransportError.offline }
        try await base.sendMessage(
            message, toUser: username, otherUserDeviceId: otherUserDeviceId, messageId: messageId)
    }
    func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
        guard behaviour.withLock({ $0.hidden }) != username else { throw CypherTransportError.offline }
        return try await base.readKeyBundle(forUsername: username)
    }
    func publishKeyBundle(_ data: UserConfig) async throws { try await base.publishKeyBundle(data) }
    func reconnect() async throws { try await base.reconnect() }
    func publishBlob<C: Codable & Sendable>(_ blob: C) async throws -> ReferencedBlob<C> {
        guard behaviour.withLock({ $0.publishes }) else { throw CypherTransportError.unsupported("publishBlob") }
        let bytes = try Self.fields(blob)["data"] ?? Data()
        behaviour.withLock { $0.published.append(bytes) }
        return try await base.publishBlob(blob)
    }
    func readPublishedBlob<C: Codable & Sendable>(
        byId id: String, as type: C.Type
    ) async throws -> ReferencedBlob<C>? {
        let (reads, alters) = behaviour.withLock { ($0.reads, $0.alters) }
        guard reads else { throw CypherTransportError.unsupported("readPublishedBlob") }
        guard let blob = try await base.readPublishedBlob(byId: id, as: type) else { return nil }
        guard alters else { return blob }
        var fields = try Self.fields(blob.blob)
        fields["data"]?[0] ^= 1
        return ReferencedBlob(id: id, blob: try JSONDecoder().decode(C.self, from: JSONEncoder().encode(fields)))
    }

    private static func fields(_ blob: some Encodable) throws -> [String: Data] {
        try JSONDecoder().decode([String: Data].self, from: JSONEncoder().encode(blob))
    }
}

extension App {
    /// An app whose transport is a ``BlobTransport``.
    static func registerWithBlobs(
        _ name: Username, at server: SpoofServer, publishes: Bool = true, reads: Bool = true
    ) async throws -> App {
        let (handler, database) = (RecordingHandler(), MessengerDatabase.inMemory())
        let messenger = try await CypherMessenger.registerMessenger(
            username: name, authenticationMethod: .identity, appPassword: "app",
            usingTransport: { BlobTransport(server.client(for: $0), publishes: publishes, reads: reads) },
            database: database, eventHandler: handler)
        return App(messenger: messenger, handler: handler, database: database)
    }

    var blobs: BlobTransport? { messenger.transport as? BlobTransport }
}

/// Groups of apps, over a server in memory.
@Suite struct GroupChatTests {
    /// Waits until an app knows a group with these members, and returns its chat.
    private func chat(
        _ id: GroupChatId, of app: App, with members: Set<Username>
    ) async throws -> GroupChat {
        try await eventuallyAsync("\(app.messenger.username) knows the group") {
            try await app.messenger.groupChat(id)?.info().members.keys.sorted() == members.sorted()
        }
        guard let chat = try await app.messenger.groupChat(id) else { throw CypherMessengerError.unknownGroup }
        return chat
    }

    private func texts(_ chat: GroupChat) async throws -> [String] {
        try await chat.messages(limit: 200).map(\.text)
    }

    @Test func aGroupOfThreeFromItsMakingToItsEnd() async throws {
        let server = SpoofServer(seed: 1)
        let alice = try await App.register("alice", at: server)
        let bob = try await App.register("bob", at: server)
        let carol = try await App.register("carol", at: server)
        let group = try await alice.messenger.createGroupChat(with: ["bob", "carol"], name: "team", metadata: [7])
        let everybody: Set<Username> = ["alice", "bob", "carol"]
        let (atBob, atCarol) = (
            try await chat(group.id, of: bob, with: everybody), try await chat(group.id, of: carol, with: everybody)
        )
        let message = try await group.sendText("hello")
        try await eventuallyAsync("bob has it") { try await texts(atBob) == ["hello"] }
        let received = try #require(try await atBob.messages().first)
        #expect(received.sender == "alice" && received.group == group.id && received.isEncrypted && !received.isOwn)
        #expect(received.id == message.id)
        try await atBob.react(to: received, with: "!")
        try await eventuallyAsync("the reaction is there") {
            try await group.messages().first?.reactions.first?.username == "bob"
        }
        try await atBob.markAsRead()
        try await eventuallyAsync("bob has read it") {
            try await group.messages().first?.receipts["bob"] == .read
        }
        #expect(try await group.messages().first?.state != .read)
        try await eventuallyAsync("carol has it") { try await texts(atCarol) == ["hello"] }
        try await atCarol.markAsRead()
        try await eventuallyAsync("all have read it") { try await group.messages().first?.state == .read }
        // Lists.
        #expect(try await alice.messenger.listPrivateChats().isEmpty)
        #expect(try await alice.messenger.listGroupChats().map(\.name) == ["team"])
        var names: [String] = []
        for await list in bob.messenger.groupChatList() {
            names.append(list.first?.name ?? "")
            if list.first?.name == "renamed" { break }
            if names.count == 1 { try await group.rename("renamed") }
        }
        #expect(names.last == "renamed" && bob.handler.events.created.map(\.text) == ["hello"])
        // Roles.
        await #expect(throws: CypherMessengerError.notAllowed) { try await atBob.removeMembers(["carol"]) }
        try await group.removeMembers(["carol"])
        try await eventuallyAsync("carol knows it") { try await atCarol.info().isMember == false }
        await #expect(throws: CypherMessengerError.unknownGroup) { try await atCarol.sendText("still here") }
        try await eventuallyAsync("bob knows it") { try await atBob.info().members.count == 2 }
        try await atBob.sendText("without carol")
        try await eventuallyAsync("alice has it") { try await texts(group) == ["hello", "without carol"] }
        #expect(try await texts(atCarol) == ["hello"])
        try await atBob.leave()
        try await eventuallyAsync("alice is alone") { try await group.info().members.count == 1 }
        for app in [alice, bob, carol] { app.close() }
        // The server has seen neither texts nor names.
        for bytes in server.receivedBytes {
            for canary in ["hello", "without", "renamed", "team"] {
                let isThere = bytes.indices.contains { bytes[$0...].starts(with: canary.utf8) }
                #expect(!isThere)
            }
        }
    }

    /// The error names the call that the transport does not have.
    @Test func groupsNeedBlobs() async throws {
        let server = SpoofServer(seed: 2)
        let alice = try await App.registerWithBlobs("alice", at: server, publishes: false)
        await #expect(throws: CypherMessengerError.unsupportedCall("publishBlob")) {
            try await alice.messenger.createGroupChat(with: ["bob"])
        }
        #expect(try await alice.messenger.listGroupChats().isEmpty)
        let bob = try await App.registerWithBlobs("bob", at: server, reads: false)
        let carol = try await App.registerWithBlobs("carol", at: server, reads: false)
        let group = try await bob.messenger.createGroupChat(with: ["carol"])
        try await group.sendText("hello")
        try await eventuallyAsync("carol cannot join") { !carol.handler.events.unavailableGroups.isEmpty }
        #expect(carol.handler.events.unavailableGroups.first?.contains("readPublishedBlob") == true)
        await #expect(throws: CypherMessengerError.unsupportedCall("readPublishedBlob")) {
            try await carol.messenger.joinGroupChats()
        }
        // Private chats go on. With a transport that can read, she joins, and has what was written before.
        try await carol.chat("bob").sendText("I cannot join")
        try await eventuallyAsync("bob has it") { try await bob.texts(with: "carol") == ["I cannot join"] }
        carol.blobs?.behaviour.withLock { $0.reads = true }
        try await carol.messenger.joinGroupChats()
        let atCarol = try #require(try await carol.messenger.groupChat(group.id))
        #expect(try await texts(atCarol) == ["hello"])
        for app in [alice, bob, carol] { app.close() }
    }

    /// Three people, one of them with two devices, over a server with all faults, while their apps end and start again.
    @Test(arguments: [UInt64(1), 2, 3])
    func groupsConvergeUnderFaultsAndCrashes(_ seed: UInt64) async throws {
        var random = SeededGenerator(seed: seed)
        let server = SpoofServer(seed: seed)
        let databases = (0..<4).map { _ in MessengerDatabase.inMemory() }
        let names: [Username] = ["alice", "bob", "carol", "alice"]
        var apps: [App] = []
        for (name, database) in zip(names, databases) {
            apps.append(try await App.registerStubbornly(name, at: server, database, adopts: true))
        }
        try await eventuallyAsync("the phone is adopted, seed \(seed)") { await apps[3].messenger.isAdopted() }
        let group = try await apps[0].messenger.createGroupChat(with: ["bob", "carol"], name: "team")
        for app in apps { _ = try await chat(group.id, of: app, with: ["alice", "bob", "carol"]) }
        server.setFaults(.all(8))
        var (sent, shown): ([String], [[String]]) = ([], [[], [], [], []])
        for number in 0..<40 {
            let place = Int.random(in: 0..<4, using: &random)
            if Int.random(in: 0..<8, using: &random) == 0 {
                shown[place] += apps[place].handler.events.created.map(\.text)
                apps[place].close()
                apps[place] = try await App.registerStubbornly(names[place], at: server, databases[place], adopts: true)
            }
            if Int.random(in: 0..<6, using: &random) == 0 {
                apps[place].transport?.supportsMultiRecipientMessages = Bool.random(using: &random)
            }
            let chat = try #require(try await apps[place].messenger.groupChat(group.id))
            if Int.random(in: 0..<8, using: &random) == 0 {
                // It may fail, as the server does.
                try? await chat.rename("name \(number)")
            }
            let text = "text number \(number)"
            try await chat.sendText(text)
            sent.append(text)
        }
        server.setFaults(SpoofServer.Faults())
        for (place, app) in apps.enumerated() {
            let chat = try #require(try await app.messenger.groupChat(group.id))
            try await eventuallyAsync("device \(place) has all texts, seed \(seed)") {
                Set(try await texts(chat)) == Set(sent)
            }
            #expect(try await texts(chat).count == sent.count, "a text is there twice, seed \(seed)")
            shown[place] += app.handler.events.created.map(\.text)
            #expect(Set(shown[place]).count == shown[place].count, "a text was shown twice, seed \(seed)")
        }
        try await eventuallyAsync("all have the same version, seed \(seed)") {
            var versions: Set<String> = []
            for app in apps {
                guard let info = try await app.messenger.listGroupChats().first else { return false }
                versions.insert("\(info.version) \(info.name)")
            }
            return versions.count == 1
        }
        // Nobody removed reads.
        let chat = try #require(try await apps[0].messenger.groupChat(group.id))
        server.setFaults(.all(5))
        while (try? await chat.removeMembers(["carol"])) == nil {}
        for number in 0..<5 { try await chat.sendText("secret \(number)") }
        let atBob = try #require(try await apps[1].messenger.groupChat(group.id))
        try await eventuallyAsync("bob has the secrets, seed \(seed)") {
            try await texts(atBob).count { $0.hasPrefix("secret") } == 5
        }
        let atCarol = try #require(try await apps[2].messenger.groupChat(group.id))
        #expect(try await texts(atCarol).allSatisfy { !$0.hasPrefix("secret") })
        for app in apps { app.close() }
        let canary = Array("text number".utf8)
        for bytes in server.receivedBytes {
            let isThere = bytes.indices.contains { bytes[$0...].starts(with: canary) }
            #expect(!isThere)
        }
    }

    /// The app ends while a group is being made, or right after.
    @Test func aGroupIsThereWithItsMessagesAfterARestart() async throws {
        let server = SpoofServer(seed: 4)
        let database = MessengerDatabase.inMemory()
        var alice = try await App.register("alice", at: server, database)
        let group = try await alice.messenger.createGroupChat(with: ["bob"], name: "team")
        let sent = try await group.sendText("before bob is there")
        #expect(sent.state == .waiting)
        alice.close()
        alice = try await App.register("alice", at: server, database)
        let bob = try await App.register("bob", at: server)
        let atBob = try await chat(group.id, of: bob, with: ["alice", "bob"])
        try await eventuallyAsync("bob has it") { try await texts(atBob) == ["before bob is there"] }
        let again = try #require(try await alice.messenger.groupChat(group.id))
        #expect(try await texts(again) == ["before bob is there"])
        for app in [alice, bob] { app.close() }
    }
}

/// Files over a server in memory.
@Suite struct FileChatTests {
    /// A directory that is removed with the test.
    private func withDirectory(_ body: (URL) async throws -> Void) async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "pawl-files-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        try await body(directory)
    }

    @Test func filesArriveWholeUnderFaultsAndTheServerSeesNothing() async throws {
        try await withDirectory { directory in
            let server = SpoofServer(seed: 11)
            let alice = try await App.registerWithBlobs("alice", at: server, publishes: true)
            let bob = try await App.registerWithBlobs("bob", at: server, reads: true)
            try await alice.chat("bob").sendText("start")
            try await eventuallyAsync("bob has it") { try await bob.texts(with: "alice") == ["start"] }
            server.setFaults(.all(5))
            let canary = Array("the canary of the file".utf8)
            var random = SeededGenerator(seed: 12)
            let bytes = canary + (0..<700_000).map { _ in UInt8.random(in: 0...255, using: &random) }
            let source = directory.appending(path: "picture.png")
            try Data(bytes).write(to: source)
            let sent = try await alice.chat("bob").sendFile(source, type: "image/png")
            #expect(sent.attachment?.name == "picture.png" && sent.attachment?.size == UInt64(bytes.count))
            try await eventuallyAsync("bob has the message") {
                try await bob.chat("alice").messages().last?.attachment != nil
            }
            let message = try #require(try await bob.chat("alice").messages().last)
            #expect(message.text.isEmpty && message.attachment == sent.attachment && message.isEncrypted)
            let copy = directory.appending(path: "copy.png")
            try await bob.messenger.readFile(of: message, to: copy)
            #expect(try Data(contentsOf: copy) == Data(bytes))
            // Nothing is left behind, and only the person reads it.
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).count == 2)
            let mode = try FileManager.default.attributesOfItem(atPath: copy.path)[.posixPermissions] as? Int
            #expect(mode == 0o600)
            // The server has other bytes: nothing is given out, and what was there stays.
            server.setFaults(SpoofServer.Faults())
            bob.blobs?.behaviour.withLock { $0.alters = true }
            await #expect(throws: CypherMessengerError.notAuthentic) {
                try await bob.messenger.readFile(of: message, to: copy)
            }
            #expect(try Data(contentsOf: copy) == Data(bytes))
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).count == 2)
            for blob in alice.blobs?.behaviour.withLock({ $0.published }) ?? [] {
                #expect(blob.range(of: Data(canary)) == nil)
            }
            await #expect(throws: CypherMessengerError.unknownMessage) {
                try await bob.messenger.readFile(of: try await bob.chat("alice").messages()[0], to: copy)
            }
            await #expect(throws: CypherMessengerError.fileFailed("The file cannot be read.")) {
                try await alice.chat("bob").sendFile(directory.appending(path: "none"))
            }
            for app in [alice, bob] { app.close() }
        }
    }

    @Test func filesInGroupsAndWithoutBlobs() async throws {
        try await withDirectory { directory in
            let server = SpoofServer(seed: 13)
            let source = directory.appending(path: "note.txt")
            try Data("hello".utf8).write(to: source)
            let alice = try await App.register("alice", at: server)
            let bob = try await App.register("bob", at: server)
            let group = try await alice.messenger.createGroupChat(with: ["bob"])
            try await group.sendFile(source, name: "for all.txt", type: "text/plain")
            try await eventuallyAsync("bob has it") {
                let chat = try await bob.messenger.groupChat(group.id)
                return try await chat?.messages().last?.attachment?.name == "for all.txt"
            }
            let message = try #require(try await bob.messenger.groupChat(group.id)?.messages().last)
            let copy = directory.appending(path: "copy.txt")
            try await bob.messenger.readFile(of: message, to: copy)
            #expect(try String(contentsOf: copy, encoding: .utf8) == "hello")
            let carol = try await App.registerWithBlobs("carol", at: server, publishes: false)
            await #expect(throws: CypherMessengerError.unsupportedCall("publishBlob")) {
                try await carol.chat("bob").sendFile(source)
            }
            for app in [alice, bob, carol] { app.close() }
        }
    }
}
