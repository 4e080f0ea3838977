import Foundation

/// The chat of Tests/ChatBackend as a process of its own.
package final class ChatBackendProcess: Sendable {
    package struct Options: Sendable {
        /// The same id of the same sender is the same message.
        package var deduplicates = true
        /// Members of a message that the chat does not know are kept.
        package var keepsUnknown = true
        /// The longest text, in characters; nil if there is no limit.
        package var textLimit: Int?
        /// Frames about messages are JSON in a string of another frame.
        package var wrapsFrames = false
        /// The origin whose pages may use the chat; nil if it says nothing of pages.
        package var pages: String?

        package init() {}
    }

    /// How it misbehaves; what is not said is as it should be.
    package struct Faults: Sendable {
        /// So many writes of messages have their effect and no answer.
        package var loses = 0
        /// So many requests get `status` and have no effect.
        package var refuses = 0
        package var status = 503
        /// Seconds, in `Retry-After`.
        package var retryAfter: Int?
        /// The refusals are for every request, not for writes of messages only.
        package var refusesAll = false
        /// The refusals are pages of HTML, as a proxy gives them.
        package var page = false
        /// Milliseconds before every effect.
        package var delay = 0
        /// Nobody listens, and all connections are torn. Nothing is forgotten.
        package var away = false
        /// `Set-Cookie` of every answer over REST.
        package var cookie: String?
        /// What is wrong with writes of messages over REST, by conversation: `hang`, `stall`, `drip`, `half` or `slow`; see `Faults` in
        /// Tests/ChatBackend.
        package var trouble: [String: String] = [:]

        package init() {}

        package static func trouble(_ name: String, in conversations: [String]) -> Faults {
            var faults = Faults()
            for conversation in conversations { faults.trouble[conversation] = name }
            return faults
        }

        package static func loses(_ count: Int) -> Faults {
            var faults = Faults()
            faults.loses = count
            return faults
        }

        package static func refuses(_ count: Int, status: Int, retryAfter: Int? = nil, all: Bool = false) -> Faults {
            var faults = Faults()
            (faults.refuses, faults.status, faults.retryAfter, faults.refusesAll) = (count, status, retryAfter, all)
            return faults
        }

        /// So many writes get the page of a proxy.
        package static func page(_ count: Int, status: Int) -> Faults {
            var faults = Faults.refuses(count, status: status)
            faults.page = true
            return faults
        }

        package static func delay(milliseconds: Int) -> Faults {
            var faults = Faults()
            faults.delay = milliseconds
            return faults
        }

        package static var away: Faults {
            var faults = Faults()
            faults.away = true
            return faults
        }

        fileprivate var json: JSONValue {
            var json: JSONValue = [
                "loses": .integer(loses), "refuses": .integer(refuses), "status": .integer(status),
                "refuses_all": .bool(refusesAll), "delay": .integer(delay), "away": .bool(away),
                "cookie": cookie.map(JSONValue.string) ?? .null, "page": .bool(page),
            ]
            json["trouble"] = .object(trouble.mapValues(JSONValue.string))
            json["retry_after"] = retryAfter.map(JSONValue.integer) ?? .null
            return json
        }
    }

    private let reservation: FreePort
    private let controlReservation: FreePort
    private let process: ChildProcess

    package var port: UInt16 { reservation.number }
    package var controlPort: UInt16 { controlReservation.number }

    /// Starts it; ready when this returns.
    package init(_ options: Options = Options()) throws {
        reservation = try FreePort()
        controlReservation = try FreePort()
        process = try ChildProcess(
            PawlProcess.builtProgram("ChatBackend"),
            [
                "--port", "\(reservation.number)", "--control-port", "\(controlReservation.number)",
                "--deduplicate", options.deduplicates ? "yes" : "no",
                "--keep-unknown", options.keepsUnknown ? "yes" : "no",
                "--wrap-frames", options.wrapsFrames ? "yes" : "no",
            ] + (options.textLimit.map { ["--text-limit", "\($0)"] } ?? [])
                + (options.pages.map { ["--pages", $0] } ?? []))
        try process.waitForOutput("listening on \(reservation.number)")
    }

    deinit {
        stop()
    }

    package func stop() {
        process.stop()
    }

    // MARK: Control

    package func set(_ faults: Faults) throws {
        try control("PUT", "faults", faults.json)
    }

    /// Ends all faults.
    package func behave() throws {
        try set(Faults())
    }

    /// How many answers are still to be lost and requests to be refused.
    package func faultsToCome() throws -> (loses: Int, refuses: Int) {
        let json = try control("GET", "faults")
        return (json["loses"].integer ?? 0, json["refuses"].integer ?? 0)
    }

    /// Ends all connections.
    package func tear() throws {
        try control("POST", "tear")
    }

    /// Everything that ever came, in order: `method`, `target`, `headers` and `body`, or `account` and `frame`.
    package func received() throws -> [JSONValue] {
        try control("GET", "received")["received"].array
    }

    /// The messages that there are, as the backend has them.
    package func messages() throws -> [JSONValue] {
        try control("GET", "messages")["messages"].array
    }

    /// Whether the backend was ever shown this text, in any form.
    package func knows(_ text: String) throws -> Bool {
        let search = PlaintextSearch(text)
        return try received().contains { item in
            let strings = [item["target"], item["body"], item["frame"]].compactMap(\.string)
            let headers = item["headers"].array.flatMap(\.array).compactMap(\.string)
            return (strings + headers).contains { search.finds(in: Data($0.utf8)) }
        }
    }

    @discardableResult
    private func control(_ method: String, _ name: String, _ body: JSONValue = [:]) throws -> JSONValue {
        let answer = try WebClient(port: controlPort).request(method, "/_control/\(name)", body)
        guard (200..<300).contains(answer.status) else { throw PeerError("\(name): \(answer.status) \(answer.text)") }
        return answer.json
    }
}
