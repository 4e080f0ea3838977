// Reports on single requests. Their JSON has one schema for every chat protocol; what a protocol does not know is left out.

/// One line of `pawl queue list`.
struct RequestRow: Codable {
    var id: String
    var state: String
    var held: Bool
    var account: String
    var target: String
    var lines: Int
    var accepted: String
    var remoteID: String?
    var reason: String?
}

/// The report of `pawl queue show`.
struct RequestReport: Codable {
    var id: String
    var state: String
    var held: Bool
    var account: String
    /// The recipient's account; nil if only the backend knows it.
    var recipient: String?
    /// The nick, room or conversation that the request is addressed to.
    var target: String
    /// The protocol's word for what is done: `PRIVMSG`, `PUT`.
    var verb: String
    /// Lines that carry the message; nil over HTTP.
    var lines: Int?
    var bytes: Int
    var accepted: String
    var finished: String?
    var attempts: Int
    /// Attempts that ended without an answer.
    var doubts: Int
    var remoteID: String?
    var reason: String?
    /// Why the last attempts of this process failed.
    var failures: [String]
    var waitsFor: String?

    var text: String {
        let size = lines.map { "\(bytes) bytes of ciphertext in \($0) line\($0 == 1 ? "" : "s")" }
        var rows = [
            "request     \(id), \(state)" + (held ? ", held by an operator" : ""),
            "from        \(account)",
            "to          " + (recipient.map { "\($0), written to as \(target) by \(verb)" } ?? "\(target), by \(verb)"),
            "size        " + (size ?? "\(bytes) bytes for the whole request; its text is sealed"),
            "accepted    \(accepted)",
        ]
        if let waitsFor { rows.append("waits for   \(waitsFor)") }
        if let finished { rows.append("ended       \(finished)") }
        if let reason { rows.append("because     \(reason)") }
        if let remoteID { rows.append("remote id   \(remoteID)") }
        rows += failures.map { "failed      \($0)" }
        if doubts > 0 {
            rows.append(
                "in doubt    \(doubts) attempt\(doubts == 1 ? "" : "s") without an answer: the backend may have done it twice"
            )
        }
        rows.append("attempts    \(attempts) since this gateway started; times: pawl trace \(id)")
        return rows.map(Printable.line).joined(separator: "\n")
    }
}
