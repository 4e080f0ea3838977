import PeerKit

/// How the backend misbehaves, as the control endpoint says. A JSON object with these names; those that are left out are off.
struct Faults {
    /// So many writes of messages have their effect and no answer: the connection is torn.
    var loses = 0
    /// So many requests get this status and have no effect.
    var refuses = 0
    var status = 503
    /// Seconds, in `Retry-After`.
    var retryAfter: Int?
    /// The refusals are for every request, not for writes of messages only.
    var refusesAll = false
    /// The refusals are pages of HTML, as a proxy gives them.
    var page = false
    /// Milliseconds that every request waits before its effect.
    var delay = 0
    /// Nobody listens, and connections are torn.
    var away = false
    /// `Set-Cookie` of every answer over REST.
    var cookie: String?
    /// What is wrong with writes of messages over REST, by conversation.
    var trouble: [String: Trouble] = [:]

    /// How the write of a message goes wrong.
    enum Trouble: String {
        /// No effect and no answer; the connection stays.
        case hang
        /// The effect, and the beginning of an answer; the connection stays.
        case stall
        /// The same, with a byte now and then.
        case drip
        /// No effect, and the backend sends nothing more on this connection, which it does not close.
        case half
        /// All as it should be, after ``Faults/slowness``.
        case slow
    }

    /// Milliseconds.
    static let slowness = 12_000

    init() {}

    init(_ json: JSONValue) throws(Refusal) {
        let known: Set<String> = [
            "loses", "refuses", "status", "retry_after", "refuses_all", "delay", "away", "cookie", "page", "trouble",
        ]
        for name in json.object.keys where !known.contains(name) { throw .invalid("no fault is called \(name)") }
        loses = json["loses"].integer ?? 0
        refuses = json["refuses"].integer ?? 0
        status = json["status"].integer ?? 503
        retryAfter = json["retry_after"].integer
        refusesAll = json["refuses_all"].bool ?? false
        delay = json["delay"].integer ?? 0
        away = json["away"].bool ?? false
        page = json["page"].bool ?? false
        cookie = json["cookie"].string
        for (conversation, name) in json["trouble"].object {
            guard let trouble = name.string.flatMap(Trouble.init) else {
                throw .invalid("no trouble is called \(name)")
            }
            self.trouble[conversation] = trouble
        }
    }

    var json: JSONValue {
        [
            "loses": .integer(loses), "refuses": .integer(refuses), "status": .integer(status),
            "retry_after": retryAfter.map(JSONValue.integer) ?? .null, "refuses_all": .bool(refusesAll),
            "delay": .integer(delay), "away": .bool(away), "cookie": cookie.map(JSONValue.string) ?? .null,
            "page": .bool(page), "trouble": .object(trouble.mapValues { .string($0.rawValue) }),
        ]
    }

    /// The refusal of a request, where one is due.
    mutating func refusal(isWrite: Bool) -> Refusal? {
        guard refuses > 0, isWrite || refusesAll else { return nil }
        refuses -= 1
        let code = status == 429 ? "rate_limited" : "unavailable"
        var refusal = Refusal(status, code, "as it was told to", retryAfter: retryAfter)
        refusal.isPage = page
        return refusal
    }

    /// Whether the answer to a request is lost.
    mutating func losesAnswer(isWrite: Bool) -> Bool {
        guard loses > 0, isWrite else { return false }
        loses -= 1
        return true
    }
}
