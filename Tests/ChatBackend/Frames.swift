import PeerKit

/// The chat's WebSocket messages.
extension Chat {
    /// What a sender itself hears; the rest is news.
    mutating func answer(_ frame: JSONValue, by user: String, at time: Int) -> JSONValue? {
        do {
            return try perform(frame, by: user, at: time)
        } catch {
            var answer = error.json
            answer["type"] = "error"
            answer["id"] = frame["id"]
            return answer
        }
    }

    private mutating func perform(
        _ frame: JSONValue, by user: String, at time: Int
    ) throws(Refusal) -> JSONValue? {
        let conversation = frame["conversation"].string ?? ""
        let message = frame["message_id"].string ?? ""
        switch frame["type"].string {
        case "send":
            let posted = try post(frame, in: conversation, by: user, at: time).message
            var answer: JSONValue = ["type": "ack", "message_id": .string(posted.id)]
            answer["id"] = frame["id"]
            return answer
        case "edit": try edit(message, frame, in: conversation, by: user)
        case "delete": try delete(message, in: conversation, by: user)
        case "typing": try pass("typing", [:], in: conversation, by: user)
        case "read": try pass("read", ["message_id": .string(message)], in: conversation, by: user)
        case "ping": return ["type": "pong"]
        default: throw .invalid("no frame has this type")
        }
        return nil
    }

    static func writesMessage(_ frame: JSONValue) -> Bool {
        ["send", "edit", "delete"].contains(frame["type"].string)
    }
}
