import PeerKit

/// What somebody has said.
struct Message {
    let id: String
    let conversation: String
    let sender: String
    /// Milliseconds since 1970.
    let time: Int
    /// Where in the order of all that happened to messages it stands.
    var position: Int
    /// As the sender wrote it: `id`, `text`, `html`, `reply_to`, and what the chat does not know.
    var fields: JSONValue
    private(set) var isEdited = false

    init(id: String, conversation: String, sender: String, time: Int, position: Int, fields: JSONValue) {
        (self.id, self.conversation, self.sender, self.time) = (id, conversation, sender, time)
        (self.position, self.fields) = (position, fields)
    }

    /// What only the chat says of a message; a sender's word for it counts for nothing.
    private static let ours: Set<String> = ["message_id", "conversation", "sender", "time", "edited", "type"]
    private static let theirs: Set<String> = ["id", "text", "html", "reply_to"]
    /// What an edit leaves as it was.
    private static let lasting: Set<String> = ["id", "reply_to"]

    /// What of a request belongs to the message.
    static func sent(_ body: JSONValue) -> JSONValue {
        .object(body.object.filter { !ours.contains($0.key) })
    }

    static func known(_ body: JSONValue) -> JSONValue {
        .object(body.object.filter { theirs.contains($0.key) })
    }

    mutating func replace(with fields: JSONValue) {
        let kept = self.fields.object.filter { Self.lasting.contains($0.key) }
        let new = fields.object.filter { !Self.lasting.contains($0.key) }
        self.fields = .object(kept.merging(new) { $1 })
        isEdited = true
    }

    var json: JSONValue {
        var json = fields
        json["message_id"] = .string(id)
        json["conversation"] = .string(conversation)
        json["sender"] = .string(sender)
        json["time"] = .integer(time)
        json["edited"] = .bool(isEdited)
        return json
    }

    func frame(_ type: String) -> JSONValue {
        var frame = json
        frame["type"] = .string(type)
        return frame
    }
}
