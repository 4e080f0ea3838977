import Foundation
import PeerKit

/// The same chat in forms that other APIs have: JSON in strings, forms, messages named by their id alone, and HTML.
extension Chat {
    /// `POST /call` with `{"message":"{\"conversation\":\"c1\",\"text\":\"hello\"}"}`, and an answer of that form.
    mutating func call(_ request: Request, by user: String, at time: Int) throws(Refusal) -> Answer {
        guard let text = try request.json()["message"].string, let call = try? JSONValue(Array(text.utf8)) else {
            throw .invalid("message is no JSON in a string")
        }
        let message = try post(call, in: call["conversation"].string ?? "", by: user, at: time).message
        return Answer(200, ["message": Self.inString(["message_id": .string(message.id)])])
    }

    /// `POST /send` with a form: `to`, `content`, `topic` and `local_id`.
    mutating func send(_ request: Request, by user: String, at time: Int) throws(Refusal) -> Answer {
        let form = try request.json()
        var body: JSONValue = [:]
        (body["text"], body["id"], body["topic"]) = (form["content"], form["local_id"], form["topic"])
        let message = try post(body, in: form["to"].string ?? "", by: user, at: time).message
        return Answer(200, ["id": .string(message.id)])
    }

    /// `GET` and `PATCH /messages/ID`, the latter with a form: `content`.
    mutating func message(_ request: Request, by user: String) throws(Refusal) -> Answer {
        let id = request.path[1]
        let place = conversations.first { $0.value.messages.contains { $0.id == id } }
        guard let conversation = place?.key else { throw .notFound("there is no message \(id)") }
        guard request.method == "PATCH" else {
            return Answer(200, ["message": try message(id, in: conversation, for: user).json])
        }
        try edit(id, ["text": try request.json()["content"]], in: conversation, by: user)
        return Answer(200, ["message_id": .string(id)])
    }

    /// `GET /rendered/CONVERSATION`: the messages, whose texts are paragraphs of HTML.
    func rendered(_ conversation: String, for user: String) throws(Refusal) -> Answer {
        let messages = try history(conversation, before: nil, limit: 1000, for: user).map { message in
            var json = message.json
            let text = (json["text"].string ?? "").replacing("&", with: "&amp;").replacing("<", with: "&lt;")
            json["text"] = .string("<p>" + text.replacing(">", with: "&gt;").replacing("\n", with: "<br>\n") + "</p>")
            return json
        }
        return Answer(200, ["messages": .array(messages)])
    }

    /// A frame of a socket: `{"event":"posted","data":{"post":"{...}"}}`.
    static func wrapped(_ frame: JSONValue) -> JSONValue {
        ["event": "posted", "data": ["post": inString(frame)]]
    }

    private static func inString(_ json: JSONValue) -> JSONValue {
        .string(String(decoding: json.bytes, as: UTF8.self))
    }
}

extension Request {
    /// The members of a form; nil if the body is none.
    var form: JSONValue? {
        guard header("Content-Type")?.lowercased().hasPrefix("application/x-www-form-urlencoded") == true else {
            return nil
        }
        return .object(Self.query(Substring(String(decoding: body, as: UTF8.self))).mapValues(JSONValue.string))
    }
}
