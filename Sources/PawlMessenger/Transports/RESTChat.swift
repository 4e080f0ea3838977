// A chat with a small REST API, as many apps have one: config/mappings/generic.yaml describes it. The type knows nothing of
// encryption. The extension at the end joins it to a messenger: it is what an app writes for an API of its own.

public import Foundation
import RequestQueue
import RequestQueueClient
import RequestQueueURLSession
import Synchronization

/// One person's connection to a chat that has the API of `config/mappings/generic.yaml`.
public final class RESTChat: Sendable {
    /// A text of another person, in a conversation of two.
    public struct Text: Hashable, Sendable {
        /// The server's id.
        public let id: String
        /// The sender.
        public let sender: Username
        /// The text, which may be an envelope.
        public let text: String
        /// The flag of upgraded clients; nil if there is none.
        public let encrypted: Bool?
        /// When the server has taken it, in milliseconds since 1970.
        public let time: Int64
    }

    /// Why a call failed.
    public enum Failure: Error, Sendable, Hashable {
        /// The server did not answer. The call may be made again.
        case network(String)
        /// The server refused the call, with its HTTP status and its words.
        case refused(status: Int, String)
        /// The answer is not what the API says.
        case malformed
    }

    private struct State {
        var token: String?
        /// Conversations of two, by the other person.
        var conversations: [Username: String] = [:]
    }

    /// The person.
    public let username: Username
    private let url: String
    private let password: String
    private let network = URLSessionNetworkClient()
    private let state = Mutex(State())
    /// Ours: timeout of one call, in milliseconds.
    private static let timeout: Int64 = 20_000

    /// - Parameters:
    ///   - url: the root of the API, such as `https://chat.example.org`.
    ///   - username: the account.
    ///   - password: of the account at the server.
    public init(url: URL, username: Username, password: String) {
        self.url = url.absoluteString.hasSuffix("/") ? String(url.absoluteString.dropLast()) : url.absoluteString
        (self.username, self.password) = (username, password)
    }

    // MARK: Accounts

    /// Makes the account; does nothing if there is one.
    public func register() async throws {
        do {
            let credentials = Credentials(user: username.raw, password: password)
            _ = try await call(.post, "accounts", body: credentials, as: Nothing.self)
        } catch Failure.refused(409, _) {
            return
        }
    }

    /// The token of a login, which is kept until the server refuses it.
    private func token() async throws -> String {
        if let token = state.withLock({ $0.token }) { return token }
        let login = try await call(
            .post, "login", body: Credentials(user: username.raw, password: password), as: Login.self)
        state.withLock { $0.token = login.token }
        return login.token
    }

    // MARK: Texts

    /// Sends a text; returns when the server has taken it.
    ///
    /// - Parameters:
    ///   - text: as it is stored at the server.
    ///   - encrypted: the flag beside the text; nil for none.
    ///   - recipient: the other person of the conversation.
    ///   - id: the server takes a text with a known id once.
    public func send(_ text: String, encrypted: Bool?, to recipient: Username, id: String? = nil) async throws {
        let conversation = try await conversation(with: recipient)
        let message = Sent(id: id, text: text, encrypted: encrypted)
        _ = try await authenticated(.post, "conversations/\(conversation)/messages", body: message, as: Nothing.self)
    }

    /// Returns what has come since a position, and the next position. The first one is 0.
    ///
    /// - Parameters:
    ///   - position: the next position of the answer before.
    ///   - wait: how long the server may hold back the answer if nothing has come, in milliseconds. Servers that cannot
    ///     wait answer at once.
    public func updates(since position: Int, wait: Int = 0) async throws -> (next: Int, texts: [Text]) {
        let path = "updates?since=\(position)" + (wait > 0 ? "&timeout=\(wait)" : "")
        let updates = try await authenticated(.get, path, wait: wait, as: Updates.self)
        guard !updates.conversations.isEmpty else { return (updates.next, []) }
        let pairs = Set(try await pairs().flatMap(\.value))
        let messages = updates.conversations.filter { pairs.contains($0.key) }.sorted { $0.key < $1.key }
            .flatMap(\.value.messages)
        let texts = messages.filter { Username($0.sender) != username }.map {
            Text(
                id: $0.id, sender: Username($0.sender), text: $0.text, encrypted: $0.encrypted, time: $0.time)
        }
        return (updates.next, texts)
    }

    /// The conversation of two with a person; it is made if there is none.
    private func conversation(with person: Username) async throws -> String {
        if let known = state.withLock({ $0.conversations[person] }) { return known }
        if let found = try await pairs()[person]?.first { return found }
        let made = try await authenticated(
            .post, "conversations", body: NewConversation(members: [person.raw]), as: Conversation.self)
        state.withLock { $0.conversations[person] = made.id }
        return made.id
    }

    /// The conversations of two, by the other person. People who began at the same time have several: texts go to the
    /// first one, and are read from all.
    private func pairs() async throws -> [Username: [String]] {
        let list = try await authenticated(.get, "conversations", as: Conversations.self).conversations
        var pairs: [Username: [String]] = [:]
        for conversation in list {
            let others = (conversation.members ?? []).map { Username($0) }.filter { $0 != username }
            if others.count == 1 { pairs[others[0], default: []].append(conversation.id) }
        }
        state.withLock { $0.conversations = pairs.compactMapValues(\.first) }
        return pairs
    }

    // MARK: Calls

    private func authenticated<Answer: Decodable>(
        _ method: RequestQueue.HTTPMethod, _ path: String, body: (any Encodable)? = nil, wait: Int = 0,
        as type: Answer.Type
    ) async throws -> Answer {
        let token = try await token()
        do {
            return try await call(method, path, body: body, token: token, wait: wait, as: type)
        } catch Failure.refused(401, _) {
            state.withLock { state in
                if state.token == token { state.token = nil }
            }
            return try await call(method, path, body: body, token: try await self.token(), wait: wait, as: type)
        }
    }

    private func call<Answer: Decodable>(
        _ method: RequestQueue.HTTPMethod, _ path: String, body: (any Encodable)? = nil, token: String? = nil,
        wait: Int = 0, as type: Answer.Type
    ) async throws -> Answer {
        var request = NetworkRequest(method: method, url: "\(url)/\(path)", timeoutInterval: Self.timeout + Int64(wait))
        if let body {
            request.headers.append(.init("Content-Type", "application/json"))
            request.body = try Array(JSONEncoder().encode(body))
        }
        if let token { request.headers.append(.init("Authorization", "Bearer \(token)")) }
        let response: NetworkResponse
        do {
            response = try await network.send(request)
        } catch {
            throw Failure.network("\(error)")
        }
        let bytes = Data(response.body)
        guard (200..<300).contains(response.status) else {
            let words = (try? JSONDecoder().decode(Refused.self, from: bytes).message) ?? ""
            throw Failure.refused(status: response.status, words)
        }
        if let nothing = Nothing() as? Answer { return nothing }
        guard !response.isCut, let answer = try? JSONDecoder().decode(type, from: bytes) else {
            throw Failure.malformed
        }
        return answer
    }
}

// MARK: - The messenger's transport

extension RESTChat {
    /// Ours: how often a server is asked that does not hold back answers, and how long after a call that failed.
    private static let (interval, pause): (Duration, Duration) = (.milliseconds(200), .seconds(2))
    /// Ours: how long the server may hold back the answer, in milliseconds.
    private static let wait = 15_000

    /// A transport of a messenger over this chat, for `usingTransport`. It ends with the messenger.
    ///
    /// - Parameters:
    ///   - request: as `usingTransport` passes it.
    ///   - policy: for texts to people whose client was not upgraded.
    ///   - positionFile: holds how far the texts were taken, so that a start does not begin at the first one.
    public func transport(
        for request: TransportCreationRequest, policy: PlaintextChannel.Policy = .opportunistic, positionFile: URL
    ) -> PlaintextChannel {
        let channel = PlaintextChannel(
            for: request, policy: policy,
            sendWithID: { [self] text, encrypted, recipient, id in
                do {
                    try await send(text, encrypted: encrypted, to: recipient, id: id)
                } catch Failure.refused(let status, let words) where status < 500 && status != 429 && status != 401 {
                    throw CypherTransportError.refused(words)
                }
            })
        channel.authenticated = .unauthenticated
        Task { [weak channel, self] in
            var position = (try? String(contentsOf: positionFile, encoding: .utf8)).flatMap(Int.init) ?? 0
            while channel != nil {
                do {
                    // Nothing is taken before the messenger listens.
                    if channel?.delegate != nil {
                        let begin = ContinuousClock.now
                        // The first answer shows that the login is good, so it is not held back.
                        let wait = channel?.authenticated == .authenticated ? Self.wait : 0
                        let (next, texts) = try await updates(since: position, wait: wait)
                        for text in texts {
                            try await channel?.receive(
                                text.text, encrypted: text.encrypted, from: text.sender, id: text.id)
                        }
                        if next != position {
                            try Data("\(next)".utf8).write(to: positionFile, options: .atomic)
                            position = next
                        }
                        if channel?.authenticated != .authenticated { channel?.authenticated = .authenticated }
                        if begin.duration(to: .now) >= Self.interval { continue }
                    }
                    try? await Task.sleep(for: Self.interval)
                } catch {
                    var state = AuthenticationState.unauthenticated
                    if case Failure.refused(401, _) = error { state = .authenticationFailure }
                    channel?.authenticated = state
                    try? await Task.sleep(for: Self.pause)
                }
            }
        }
        return channel
    }
}

// MARK: - JSON

private struct Nothing: Codable {}

private struct Credentials: Encodable { var user, password: String }

private struct Login: Decodable { var token: String }

private struct Refused: Decodable { var message: String }

private struct NewConversation: Encodable { var members: [String] }

private struct Conversation: Decodable {
    var id: String
    var members: [String]?
}

private struct Conversations: Decodable { var conversations: [Conversation] }

private struct Sent: Encodable {
    var id: String?
    var text: String
    var encrypted: Bool?
}

private struct Updates: Decodable {
    struct Message: Decodable {
        enum CodingKeys: String, CodingKey {
            case id = "message_id"
            case sender, text, encrypted, time
        }

        var id, sender, text: String
        var encrypted: Bool?
        var time: Int64
    }

    struct Page: Decodable { var messages: [Message] }

    var next: Int
    var conversations: [String: Page]
}
