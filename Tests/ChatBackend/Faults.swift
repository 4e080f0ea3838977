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
    /// Milliseconds that every request waits before its effect.
    var delay = 0
    /// Nobody listens, and connections are torn.
    var away = false
    /// `Set-Cookie` of every answer over REST.
    var cookie: String?

    init() {}

    init(_ json: JSONValue) throws(Refusal) {
        let known: Set<String> = [
            "loses", "refuses", "status", "retry_after", "refuses_all", "delay", "away", "cookie",
        ]
        for name in json.object.keys where !known.contains(name) { throw .invalid("no fault is called \(name)") }
        loses = json["loses"].integer ?? 0
        refuses = json["refuses"].integer ?? 0
        status = json["status"].integer ?? 503
        retryAfter = json["retry_after"].integer
        refusesAll = json["refuses_all"].bool ?? false
        delay = json["delay"].integer ?? 0
        away = json["away"].bool ?? false
        cookie = json["cookie"].string
    }

    var json: JSONValue {
        [
            "loses": .integer(loses), "refuses": .integer(refuses), "status": .integer(status),
            "retry_after": retryAfter.map(JSONValue.integer) ?? .null, "refuses_all": .bool(refusesAll),
            "delay": .integer(delay), "away": .bool(away), "cookie": cookie.map(JSONValue.string) ?? .null,
        ]
    }

    /// The refusal of a request, where one is due.
    mutating func refusal(isWrite: Bool) -> Refusal? {
        guard refuses > 0, isWrite || refusesAll else { return nil }
        refuses -= 1
        let code = status == 429 ? "rate_limited" : "unavailable"
        return Refusal(status, code, "as it was told to", retryAfter: retryAfter)
    }

    /// Whether the answer to a request is lost.
    mutating func losesAnswer(isWrite: Bool) -> Bool {
        guard loses > 0, isWrite else { return false }
        loses -= 1
        return true
    }
}
