import Foundation
import PawlMessenger
import PeerKit
import Synchronization
import TestKit
import TestThreads
import Testing

// The code of the tutorial in PawlMessenger.docc, with the public interface only. The suite compares the two.

/// The API of the chat server, as the app has it.
protocol ChatAPI: Sendable {
    /// Throws if the server has not accepted the text.
    func send(_ text: String, encrypted: Bool?, to person: String) async throws
    /// The texts for this person, in their order.
    var incoming: AsyncStream<(text: String, encrypted: Bool?, sender: String)> { get }
}

/// Makes the messenger of a person, with the history in a directory.
func register(
    _ name: String, password: String, api: some ChatAPI, directory: String, handler: some CypherMessengerEventHandler
) async throws -> CypherMessenger {
    let messenger = try await CypherMessenger.registerMessenger(
        username: Username(name), authenticationMethod: .password(password), appPassword: password,
        usingTransport: { request in
            PlaintextChannel(for: request) { text, encrypted, recipient in
                try await api.send(text, encrypted: encrypted, to: recipient.raw)
            }
        }, database: .directory(directory), eventHandler: handler)
    guard let channel = messenger.transport as? PlaintextChannel else { return messenger }
    Task { [weak messenger] in
        for await (text, encrypted, sender) in api.incoming {
            // A text that cannot be stored is taken later: the disk may be full for a while.
            while messenger != nil {
                do {
                    try await channel.receive(text, encrypted: encrypted, from: Username(sender))
                    break
                } catch {
                    try? await Task.sleep(for: .seconds(1))
                }
            }
        }
    }
    return messenger
}

/// Shows what happens.
final class Screen: CypherMessengerEventHandler {
    func onKeysExchanged(with username: Username) async {
        print("Messages with \(username) are encrypted from now on.")
    }

    func onContactIdentityChange(of username: Username) async {
        print("\(username) uses other keys. Compare the safety number before you accept them.")
    }

    func onWithheldMessage(from username: Username) async {
        print("An unprotected text under the name of \(username) was not shown.")
    }
}

@Suite(.blocking) struct TutorialTests {
    /// A chat server in memory, and the API of one person at it. `RESTChatTests` has a real one.
    private final class MemoryChat: Sendable {
        typealias Text = (text: String, encrypted: Bool?, sender: String)

        struct API: ChatAPI {
            let name: String
            let chat: MemoryChat
            let incoming: AsyncStream<Text>

            func send(_ text: String, encrypted: Bool?, to person: String) async throws {
                chat.deliver(text, encrypted, from: name, to: person)
            }
        }

        private let state = Mutex((people: [String: AsyncStream<Text>.Continuation](), texts: [String]()))

        var texts: [String] { state.withLock { $0.texts } }

        func api(of name: String) -> API {
            let (stream, continuation) = AsyncStream.makeStream(of: Text.self)
            state.withLock { $0.people[name] = continuation }
            return API(name: name, chat: self, incoming: stream)
        }

        private func deliver(_ text: String, _ encrypted: Bool?, from sender: String, to person: String) {
            _ = state.withLock { state in
                state.texts.append(text)
                return state.people[person]?.yield((text, encrypted, sender))
            }
        }
    }

    @Test func theTutorialRuns() async throws {
        let (scratch, server) = (try ScratchDirectory(), MemoryChat())
        let alice = try await register(
            "alice", password: "open sesame", api: server.api(of: "alice"), directory: scratch.file("alice"),
            handler: Screen())
        let bob = try await register(
            "bob", password: "open barley", api: server.api(of: "bob"), directory: scratch.file("bob"),
            handler: Screen())

        let chat = alice.createPrivateChat(with: "bob")
        try await chat.sendText("Hello, Bob")

        try await eventuallyAsync("both have the other's keys") {
            chat.safetyNumber() != nil && bob.createPrivateChat(with: "alice").safetyNumber() != nil
        }
        try await bob.createPrivateChat(with: "alice").sendText("Hello, Alice")

        for await messages in chat.messageList() {
            for message in messages {
                let mark = message.isVerified ? "verified" : message.isEncrypted ? "encrypted" : "not encrypted"
                print("[\(mark)] \(message.isOwn ? "me" : "\(message.chat)"): \(message.text)")
            }
            if messages.contains(where: \.isEncrypted) { break }
        }

        if let digits = chat.safetyNumber() { print("Compare with Bob:", digits) }
        #expect(chat.safetyNumber() == bob.createPrivateChat(with: "alice").safetyNumber())

        try await chat.verify()

        // On Bob's screen.
        let uri = try await bob.contactCard().uri
        let scanned = uri

        // What Alice's camera has read.
        switch try await alice.verify(card: ContactCard(uri: scanned)) {
        case .verified: print("Verified: nobody is in between.")
        case .differs, .serverShowsOthers: print("These are not the keys that are known. Someone may read along.")
        case .confirmsNewKeys: print("Bob has new keys. Accept them, then read the card again.")
        case .own: print("This is your own card.")
        }

        #expect(chat.isVerified)
        let message = try await chat.sendText("Are we alone?")
        #expect(message.isVerified && message.isEncrypted)
        try await eventuallyAsync("it has come") {
            try await bob.createPrivateChat(with: "alice").messages().map(\.text)
                == ["Hello, Bob", "Hello, Alice", "Are we alone?"]
        }
        #expect(!server.texts.contains { $0.contains("Hello, Alice") || $0.contains("Are we alone?") })
        alice.close()
        bob.close()
    }

    @Test func everyBlockOfCodeIsCompiledAndRun() throws {
        let examples = try Catalogue(of: "PawlMessenger", file: #filePath).missing(
            in: "Tests/PawlMessengerTests/TutorialTests.swift")
        #expect(examples.blocks.isEmpty && examples.count == 10, "\(examples)")
    }

    @Test(.enabled(if: Catalogue.isConvertible, "docc not found"))
    func docCConvertsAllWithoutAWarning() throws {
        let complaints = try Catalogue(of: "PawlMessenger", file: #filePath).convert()
        #expect(complaints.isEmpty, "\(complaints.prefix(4000))")
    }
}
