import PeerKit

/// Why something is not done, as clients hear of it.
struct Refusal: Error {
    var status: Int
    var code: String
    var message: String
    /// Seconds.
    var retryAfter: Int?
    /// Given as HTML.
    var isPage = false

    init(_ status: Int, _ code: String, _ message: String, retryAfter: Int? = nil) {
        (self.status, self.code, self.message, self.retryAfter) = (status, code, message, retryAfter)
    }

    static func invalid(_ message: String) -> Refusal { Refusal(400, "invalid", message) }
    static func forbidden(_ message: String) -> Refusal { Refusal(403, "forbidden", message) }
    static func notFound(_ message: String) -> Refusal { Refusal(404, "not_found", message) }

    var json: JSONValue { ["error": .string(code), "message": .string(message)] }
}
