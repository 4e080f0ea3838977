import Foundation
import PawlMessenger
import PeerKit
import TestKit
import TestThreads
import Testing

/// A chat whose clients are upgraded, over a backend of its own process that knows nothing of encryption.
@Suite(.blocking) struct RESTChatTests {
    /// A person with the upgraded client.
    private struct Person {
        let app: App
        let channel: PlaintextChannel

        static func register(
            _ name: Username, at backend: ChatBackendProcess, _ scratch: ScratchDirectory
        ) async throws -> Person {
            let chat = try RESTChatTests.chat(name, at: backend)
            try await chat.register()
            let handler = RecordingHandler()
            let position = URL(filePath: scratch.file("\(name)-position"))
            let database = MessengerDatabase.directory(scratch.file("\(name)")).with(.least)
            let messenger = try await CypherMessenger.registerMessenger(
                username: name, authenticationMethod: .password("secret"), appPassword: "secret",
                usingTransport: { chat.transport(for: $0, positionFile: position) }, database: database,
                eventHandler: handler)
            let channel = try #require(messenger.transport as? PlaintextChannel)
            return Person(app: App(messenger: messenger, handler: handler, database: database), channel: channel)
        }
    }

    private static func chat(_ name: Username, at backend: ChatBackendProcess) throws -> RESTChat {
        let url = try #require(URL(string: "http://127.0.0.1:\(backend.port)/"))
        return RESTChat(url: url, username: name, password: "secret")
    }

    /// What the database of the backend holds, as one text.
    private func database(_ backend: ChatBackendProcess) throws -> String { "\(try backend.messages())" }

    @Test func twoUpgradedClientsAndAnOldOneShareABackend() async throws {
        let (backend, scratch) = (try ChatBackendProcess(), try ScratchDirectory())
        let old = try Self.chat("olga", at: backend)
        try await old.register()
        let alice = try await Person.register("alice", at: backend, scratch)
        let bob = try await Person.register("bob", at: backend, scratch)
        try await alice.app.chat("bob").sendText("first of all")
        try await eventuallyAsync("both have the other's keys") {
            alice.channel.support(of: "bob") == .capable && bob.channel.support(of: "alice") == .capable
        }
        #expect(try await bob.app.chat("alice").sendText("only for you").isEncrypted)
        try await alice.app.chat("olga").sendText("as before")
        try await old.send("as ever", encrypted: nil, to: "alice")
        try await eventuallyAsync("all texts have come") {
            let texts = try await alice.app.texts(with: "bob")
            let olgas = try await alice.app.texts(with: "olga")
            return texts == ["first of all", "only for you"] && olgas == ["as before", "as ever"]
        }
        // The old client has the words, and nothing else.
        try await eventuallyAsync("the old client has a text") { try await !old.updates(since: 0).texts.isEmpty }
        #expect(try await old.updates(since: 0).texts.map(\.text) == ["as before"])
        let held = try database(backend)
        #expect(held.contains("first of all") && held.contains("as before") && held.contains("as ever"))
        #expect(!held.contains("only for you"))
        for person in [alice, bob] { person.app.close() }
    }

    /// The answer to a write is lost, and the backend goes away: nothing is lost, and nothing is shown twice.
    @Test func aBackendWithFaultsLosesAndDoublesNothing() async throws {
        let (backend, scratch) = (try ChatBackendProcess(), try ScratchDirectory())
        let alice = try await Person.register("alice", at: backend, scratch)
        let bob = try await Person.register("bob", at: backend, scratch)
        try await alice.app.chat("bob").sendText("0")
        try await eventuallyAsync("both have the other's keys") {
            alice.channel.support(of: "bob") == .capable && bob.channel.support(of: "alice") == .capable
        }
        try backend.set(.loses(2))
        for number in 1...3 { try await alice.app.chat("bob").sendText("\(number)") }
        try backend.set(.away)
        for number in 4...6 { try await alice.app.chat("bob").sendText("\(number)") }
        try backend.behave()
        try await eventuallyAsync("all have come") {
            try await bob.app.texts(with: "alice") == (0...6).map { "\($0)" }
        }
        try await eventuallyAsync("the outcome is known") {
            try await alice.app.chat("bob").messages().allSatisfy { ![.waiting, .undelivered].contains($0.state) }
        }
        #expect(try await bob.app.texts(with: "alice") == (0...6).map { "\($0)" })
        for person in [alice, bob] { person.app.close() }
    }

    /// The process ends after a text was stored and before its position was: the same text comes again.
    @Test func aTextThatComesAgainIsShownOnce() async throws {
        let (backend, scratch) = (try ChatBackendProcess(), try ScratchDirectory())
        let old = try Self.chat("olga", at: backend)
        try await old.register()
        let first = try await Person.register("alice", at: backend, scratch)
        try await old.send("hello", encrypted: nil, to: "alice")
        try await eventuallyAsync("it has come") { try await first.app.texts(with: "olga") == ["hello"] }
        first.app.close()
        try? FileManager.default.removeItem(atPath: scratch.file("alice-position"))
        let second = try await Person.register("alice", at: backend, scratch)
        try await old.send("hello again", encrypted: nil, to: "alice")
        try await eventuallyAsync("it has come") {
            try await second.app.texts(with: "olga").contains("hello again")
        }
        #expect(try await second.app.texts(with: "olga") == ["hello", "hello again"])
        second.app.close()
    }

    /// Two people who began at the same time have two conversations.
    @Test func textsAreReadFromAllConversationsOfTwo() async throws {
        let backend = try ChatBackendProcess()
        let bob = RESTChat(
            url: try #require(URL(string: "http://127.0.0.1:\(backend.port)")), username: "bob",
            password: "correct-horse")
        try await bob.register()
        let alice = try ChatPerson("alice", port: backend.port)
        for name in ["a", "b"] {
            try alice.open(name, with: ["bob"])
            _ = try alice.post("in \(name)", in: name)
        }
        #expect(try await bob.updates(since: 0).texts.map(\.text) == ["in a", "in b"])
        try await bob.send("back", encrypted: nil, to: "alice")
        #expect(try alice.texts("a") == ["in a", "back"])
    }

    @Test func refusalsHaveTheirStatusAndWords() async throws {
        let backend = try ChatBackendProcess()
        let chat = try Self.chat("alice", at: backend)
        await #expect(throws: RESTChat.Failure.refused(status: 401, "user or password is wrong")) {
            try await chat.send("hello", encrypted: nil, to: "bob")
        }
        try await chat.register()
        // A second time, and with a login that the server has forgotten.
        try await chat.register()
        await #expect(throws: RESTChat.Failure.refused(status: 404, "nobody is called bob")) {
            try await chat.send("hello", encrypted: nil, to: "bob")
        }
        backend.stop()
        do {
            _ = try await chat.updates(since: 0)
            Issue.record("a stopped backend has answered")
        } catch RESTChat.Failure.network {
            // As it should be.
        }
    }
}
