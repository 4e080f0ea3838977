import Envelope
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore

func document(_ text: String) throws -> JSONDocument { try JSONDocument(ByteBuffer(string: text)) }

func path(_ text: String) throws -> JSONPath { try JSONPath(text) }

func base64(_ bytes: [UInt8]) -> String {
    var output: [UInt8] = []
    Base64.encode(bytes[...], into: &output)
    return String(decoding: output, as: UTF8.self)
}

extension Mapping {
    /// A mapping of routes as `POST /a/{b}?c`, named by their position.
    static func of(_ routes: [String]) throws -> Mapping {
        Mapping(
            name: "test", account: AccountSource(credentials: [], target: "/me", name: try path("id")),
            routes: try routes.map { text in
                let words = text.split(separator: " ")
                let parts = words[1].split(separator: "?", maxSplits: 1)
                let query = parts.count < 2 ? [] : parts[1].split(separator: "&").map(condition)
                return Mapping.Route(
                    methods: words[0] == "*" ? [] : words[0].split(separator: "|").map(String.init),
                    path: try PathPattern(String(parts[0])), query: query, label: .passthrough)
            })
    }

    private static func condition(_ text: Substring) -> QueryCondition {
        if text.hasPrefix("!") { return QueryCondition(String(text.dropFirst()), .absent) }
        let parts = text.split(separator: "=", maxSplits: 1)
        return QueryCondition(String(parts[0]), parts.count < 2 ? .present : .equals(String(parts[1])))
    }

    /// The number of the route that fits.
    func number(_ method: String, _ target: String, _ headers: HeaderFields = HeaderFields()) -> Int? {
        guard let found = route(for: RequestHead(method, target, headers: headers)) else { return nil }
        return routes.firstIndex(of: found.route)
    }

    func captures(_ method: String, _ target: String) -> Captures? {
        route(for: RequestHead(method, target))?.target.captures
    }
}

/// A shape as the tests want it: a message with `body`, `html` and `m.new` in its content.
func shape(
    _ messages: String = "$", containers: String = "$", conversation: ValueSource = .capture("c"),
    content: String? = nil, envelope: String? = nil, sender: String? = nil, recipients: String? = nil,
    flag: String = "encrypted", also: [String] = ["html", "\"m.new\""],
    kept: Set<String>? = nil
) throws -> MessageShape {
    MessageShape(
        containers: try path(containers), messages: try path(messages), conversation: conversation,
        text: try path("body"), also: try also.map(path), flag: try path(flag), envelope: try envelope.map(path),
        fallback: "Encrypted message.", sender: try sender.map(path), recipients: try recipients.map(path),
        remoteID: try path("id"), localID: try path("txn"), content: try content.map(path),
        kept: kept)
}

/// Why a text is no mapping's path; nothing where it is one.
func patternFault(_ text: String) -> String? {
    do throws(PathPatternError) {
        _ = try PathPattern(text)
        return nil
    } catch {
        return error.reason
    }
}
