import Foundation

/// matrix-nio as it is, without encryption, as a process of its own. What it can do is listed in Peers/nio_client.py. It belongs to
/// one thread at a time.
package final class Nio {
    /// What a request came to.
    package struct Answer: Sendable {
        package let status: Int
        package let body: JSONValue
        /// What the library made of it: `RoomSendResponse`, or `RoomSendError`.
        package let made: String

        package var succeeded: Bool { (200..<300).contains(status) }
    }

    /// A request that is under way.
    package struct Ticket: Hashable, Sendable {
        fileprivate let number: Int
    }

    /// What came over `follow` and nobody has asked for yet: `room`, `event`, `made`.
    package private(set) var events: [JSONValue] = []
    /// Rooms that it was invited to.
    package private(set) var invitations: [String] = []
    /// Requests that got no answer and were tried again.
    package private(set) var troubles: [String] = []
    package private(set) var user = ""
    package private(set) var token = ""
    private let peer: LinePeer
    private var lastNumber = 0
    private var answers: [Int: JSONValue] = [:]

    package init(port: UInt16) throws {
        peer = try LinePeer(MatrixPrograms.python(), [MatrixPrograms.client, "http://127.0.0.1:\(port)"])
    }

    /// Logs in as an account that there is.
    package convenience init(_ user: String, port: UInt16) throws {
        try self.init(port: port)
        let answer = try ask(
            "login", ["user": .string(user), "password": .string(Synapse.password)])
        guard let token = answer.body["access_token"].string, let id = answer.body["user_id"].string else {
            throw PeerError("\(user) cannot log in: \(answer)")
        }
        (self.user, self.token) = (id, token)
    }

    // MARK: Asking

    /// Begins something; ``finish(_:timeout:)`` hears how it ends.
    package func begin(_ verb: String, _ arguments: JSONValue = [:]) throws -> Ticket {
        lastNumber += 1
        var line = arguments
        (line["n"], line["do"]) = (.integer(lastNumber), .string(verb))
        try peer.send(line.description)
        return Ticket(number: lastNumber)
    }

    /// - Throws: ``PeerError`` where the library has given up, or nothing comes.
    package func finish(_ ticket: Ticket, timeout: Duration = Deadline.usual) throws -> Answer {
        try read("an answer", timeout) { answers[ticket.number] != nil }
        let line = answers.removeValue(forKey: ticket.number) ?? .null
        if let failure = line["failure"].string {
            throw PeerError("matrix-nio gave up: \(failure); \(troubles.suffix(3))\n\(line["trace"].string ?? "")")
        }
        return Answer(status: line["status"].integer ?? 0, body: line["body"], made: line["made"].string ?? "")
    }

    /// Whether something that is under way has ended by now.
    package func hasEnded(_ ticket: Ticket) throws -> Bool {
        while try readLine(.zero) {}
        return answers[ticket.number] != nil
    }

    /// Does something and waits for its end, whatever its status.
    @discardableResult
    package func ask(_ verb: String, _ arguments: JSONValue = [:], timeout: Duration = Deadline.usual) throws -> Answer
    {
        try finish(begin(verb, arguments), timeout: timeout)
    }

    /// - Throws: ``PeerError`` where the answer is no success.
    @discardableResult
    package func done(_ verb: String, _ arguments: JSONValue = [:]) throws -> JSONValue {
        let answer = try ask(verb, arguments)
        guard answer.status == 0 || answer.succeeded else { throw PeerError("\(user) cannot \(verb): \(answer)") }
        return answer.body
    }

    // MARK: Rooms and messages

    /// - Returns: The room's id.
    package func create(inviting others: [String] = []) throws -> String {
        let body = try done("create", ["invite": .array(others.map { .string(Synapse.id($0)) })])
        guard let room = body["room_id"].string else { throw PeerError("no room: \(body)") }
        return room
    }

    package func join(_ room: String) throws {
        try done("join", ["room": .string(room)])
    }

    /// - Returns: The event's id.
    @discardableResult
    package func send(_ text: String, to room: String, html: String? = nil, transaction: String? = nil) throws -> String
    {
        try Self.event(done("send", Self.message(text, room, html, transaction)))
    }

    package func beginSending(_ text: String, to room: String, transaction: String? = nil) throws -> Ticket {
        try begin("send", Self.message(text, room, nil, transaction))
    }

    @discardableResult
    package func edit(_ event: String, _ text: String, in room: String, html: String? = nil) throws -> String {
        var arguments = Self.message(text, room, html, nil)
        arguments["event"] = .string(event)
        return try Self.event(done("edit", arguments))
    }

    @discardableResult
    package func redact(_ event: String, in room: String) throws -> String {
        try Self.event(done("redact", ["room": .string(room), "event": .string(event)]))
    }

    /// The messages of a room, the newest first, read page by page to its beginning.
    package func history(_ room: String, page: Int = 10) throws -> [JSONValue] {
        var events: [JSONValue] = []
        var from = JSONValue.null
        repeat {
            var arguments: JSONValue = ["room": .string(room), "limit": .integer(page)]
            arguments["from"] = from
            let body = try done("messages", arguments)
            events += body["chunk"].array
            from = body["end"]
        } while from != .null
        return events.filter { $0["type"].string == "m.room.message" }
    }

    /// What people see of it, the oldest first: edits count in the place of what they edit, as the server aggregates them.
    package func texts(_ room: String) throws -> [String] {
        try history(room).reversed().map { Self.text($0) }
    }

    /// What stands in a message.
    package static func text(_ event: JSONValue) -> String {
        event["content"]["body"].string ?? "-"
    }

    /// All that there is, or what came since the last time, by room.
    package func sync(anew: Bool = false, full: Bool = false) throws -> JSONValue {
        try done("sync", ["anew": .bool(anew), "full": .bool(full)])
    }

    /// The texts of a room in what `sync` answered.
    package static func texts(_ room: String, in sync: JSONValue) -> [String] {
        sync["rooms"]["join"][room]["timeline"]["events"].array.filter { $0["type"].string == "m.room.message" }
            .map(text)
    }

    // MARK: Hearing

    /// Syncs from now on, until the process ends.
    package func follow() throws {
        try done("follow")
    }

    /// The first event that fits, taken out of ``events``. Those before it stay there.
    @discardableResult
    package func expect(
        _ what: String, timeout: Duration = Deadline.usual, where fits: (JSONValue) -> Bool
    ) throws -> JSONValue {
        var found: Int?
        try read(what, timeout) {
            found = events.firstIndex { fits($0["event"]) }
            return found != nil
        }
        guard let found else { throw PeerError("no \(what)") }
        return events.remove(at: found)["event"]
    }

    /// The first message with this text.
    @discardableResult
    package func expect(_ text: String, timeout: Duration = Deadline.usual) throws -> JSONValue {
        try expect("message \"\(text)\"", timeout: timeout) {
            $0["type"].string == "m.room.message" && Self.text($0) == text
        }
    }

    /// Waits until it has been invited somewhere; answers the room.
    package func expectInvitation(timeout: Duration = Deadline.usual) throws -> String {
        try read("invitation", timeout) { !invitations.isEmpty }
        return invitations.removeFirst()
    }

    /// Waits until a request has got no answer.
    package func expectTrouble(timeout: Duration = Deadline.usual) throws {
        let before = troubles.count
        try read("trouble", timeout) { troubles.count > before }
    }

    // MARK: Parts

    private static func message(_ text: String, _ room: String, _ html: String?, _ transaction: String?) -> JSONValue {
        var arguments: JSONValue = ["room": .string(room), "text": .string(text)]
        arguments["html"] = html.map(JSONValue.string) ?? .null
        arguments["txn"] = transaction.map(JSONValue.string) ?? .null
        return arguments
    }

    private static func event(_ body: JSONValue) throws -> String {
        guard let event = body["event_id"].string else { throw PeerError("no event: \(body)") }
        return event
    }

    private func read(_ what: String, _ timeout: Duration, until enough: () -> Bool) throws {
        let deadline = Deadline(timeout)
        while !enough() {
            let isThere = try readLine(.milliseconds(Int64(deadline.milliseconds)))
            guard isThere || !deadline.hasPassed else {
                throw PeerError(
                    "\(user): no \(what) within \(timeout); troubles \(troubles.suffix(3)), events \(events)")
            }
        }
    }

    private func readLine(_ timeout: Duration) throws -> Bool {
        guard let text = try peer.line(within: timeout) else { return false }
        let line = try JSONValue(Array(text.utf8))
        if let number = line["n"].integer {
            answers[number] = line
        } else if let trouble = line["trouble"].string {
            troubles.append(trouble)
        } else if let room = line["invited"].string {
            invitations.append(room)
        } else {
            events.append(line)
        }
        return true
    }
}
