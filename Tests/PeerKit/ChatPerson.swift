/// Somebody who uses the chat of Tests/ChatBackend as its own clients do: directly, or through a gateway that it knows nothing of.
package final class ChatPerson {
    package let name: String
    package let port: UInt16
    package let client: WebClient
    package let token: String
    private var socketClient: WebSocketClient?
    private var lastNumber = 0

    /// Makes the account, if there is none, and logs in.
    package init(_ name: String, port: UInt16, password: String = "correct-horse") throws {
        (self.name, self.port) = (name, port)
        client = WebClient(port: port)
        let body: JSONValue = ["user": .string(name), "password": .string(password)]
        let made = try client.request("POST", "/accounts", body)
        guard made.status == 201 || made.status == 409 else { throw PeerError("\(name): \(made.status) \(made.text)") }
        let login = try client.request("POST", "/login", body)
        guard login.status == 200, let token = login.json["token"].string else {
            throw PeerError("\(name) cannot log in: \(login.status) \(login.text)")
        }
        self.token = token
        client.headers = [("Authorization", "Bearer \(token)")]
    }

    /// The same login at another port: the backend's own, say.
    package init(_ other: ChatPerson, port: UInt16) {
        (name, self.port, token, lastNumber) = (other.name, port, other.token, other.lastNumber)
        client = WebClient(port: port)
        client.headers = [("Authorization", "Bearer \(other.token)")]
    }

    // MARK: REST

    /// - Throws: ``PeerError`` where the answer is no success.
    @discardableResult
    package func ask(_ method: String, _ target: String, _ body: JSONValue = [:]) throws -> JSONValue {
        let answer = try client.request(method, target, body)
        guard (200..<300).contains(answer.status) else {
            throw PeerError("\(method) \(target): \(answer.status) \(answer.text)")
        }
        return answer.json
    }

    /// A request over a connection of its own, whose answer is waited for later.
    package func begin(_ method: String, _ target: String, _ body: JSONValue) throws -> PendingRequest {
        let begin: () throws -> WebClient = { [port] in
            let client = WebClient(port: port)
            try self.send(method, target, body, on: client)
            return client
        }
        let hasID = body["id"].string != nil
        return PendingRequest(try begin(), again: hasID ? begin : nil)
    }

    /// Sends a request on a connection and does not wait for its answer.
    package func send(_ method: String, _ target: String, _ body: JSONValue, on client: WebClient) throws {
        let bytes = body.bytes
        let head = [
            "\(method) \(target) HTTP/1.1", "Host: chat", "Authorization: Bearer \(token)",
            "Content-Type: application/json", "Content-Length: \(bytes.count)", "", "",
        ]
        try client.send(Array(head.joined(separator: "\r\n").utf8) + bytes)
    }

    package func open(_ id: String, with members: [String]) throws {
        try ask("POST", "/conversations", ["id": .string(id), "members": .array(members.map(JSONValue.string))])
    }

    /// An id that this person has used for nothing else.
    package func nextID() -> String {
        lastNumber += 1
        return "\(name)-\(lastNumber)"
    }

    /// - Returns: The answer, of whatever status.
    package func tryPosting(
        _ text: String, in conversation: String, id: String? = nil, html: String? = nil
    ) throws -> WebAnswer {
        var body: JSONValue = ["id": .string(id ?? nextID()), "text": .string(text)]
        body["html"] = html.map(JSONValue.string) ?? .null
        return try client.request("POST", "/conversations/\(conversation)/messages", body)
    }

    /// - Returns: The message's id.
    @discardableResult
    package func post(
        _ text: String, in conversation: String, id: String? = nil, html: String? = nil
    ) throws -> String {
        let answer = try tryPosting(text, in: conversation, id: id, html: html)
        guard (200..<300).contains(answer.status), let message = answer.json["message_id"].string else {
            throw PeerError("\(name) cannot say \(text): \(answer.status) \(answer.text)")
        }
        return message
    }

    package func edit(_ message: String, _ text: String, in conversation: String, html: String? = nil) throws {
        var body: JSONValue = ["text": .string(text)]
        body["html"] = html.map(JSONValue.string) ?? .null
        try ask("PATCH", "/conversations/\(conversation)/messages/\(message)", body)
    }

    package func delete(_ message: String, in conversation: String) throws {
        try ask("DELETE", "/conversations/\(conversation)/messages/\(message)")
    }

    /// The oldest first.
    package func history(_ conversation: String, before: String? = nil, limit: Int = 50) throws -> [JSONValue] {
        let range = "?limit=\(limit)" + (before.map { "&before=\($0)" } ?? "")
        return try ask("GET", "/conversations/\(conversation)/messages\(range)")["messages"].array
    }

    package func texts(_ conversation: String) throws -> [String] {
        try history(conversation).map { $0["text"].string ?? "-" }
    }

    /// A long poll.
    package func updates(since: Int?, timeout: Int = 0) throws -> JSONValue {
        try ask("GET", "/updates?timeout=\(timeout)" + (since.map { "&since=\($0)" } ?? ""))
    }

    // MARK: WebSocket

    /// Opened when it is used first.
    package func socket() throws -> WebSocketClient {
        if let socketClient { return socketClient }
        let socket = try WebClient(port: port).webSocket("/socket", headers: client.headers)
        socketClient = socket
        return socket
    }

    /// A new one is opened at the next use.
    package func dropSocket() {
        socketClient = nil
    }

    /// Says it over the socket and waits for the `ack`.
    ///
    /// - Returns: The message's id.
    @discardableResult
    package func postOverSocket(_ text: String, in conversation: String, id: String? = nil) throws -> String {
        let id = id ?? nextID()
        let socket = try socket()
        try socket.send([
            "type": "send", "conversation": .string(conversation), "id": .string(id), "text": .string(text),
        ])
        let answer = try socket.expect("answer to \(id)") {
            ["ack", "error"].contains($0["type"].string) && $0["id"].string == id
        }
        guard let message = answer["message_id"].string else {
            throw PeerError("\(name) cannot say \(text): \(answer)")
        }
        return message
    }

    /// The next frame of this type with this text.
    @discardableResult
    package func expect(_ type: String, _ text: String, timeout: Duration = Deadline.usual) throws -> JSONValue {
        try socket().expect("\(type) \"\(text)\" for \(name)", timeout: timeout) {
            $0["type"].string == type && $0["text"].string == text
        }
    }
}
