import Foundation
import PeerKit

/// A request over REST, taken apart.
struct Request {
    let method: String
    /// As it came.
    let target: String
    let headers: [(name: String, value: String)]
    let body: [UInt8]
    /// The parts of the path, decoded.
    let path: [String]
    private let query: [String: String]

    init(method: String, target: String, headers: [(name: String, value: String)], body: [UInt8]) {
        (self.method, self.target, self.headers, self.body) = (method, target, headers, body)
        let parts = target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        path = (parts.first ?? "").split(separator: "/").map { String($0).removingPercentEncoding ?? String($0) }
        query = parts.count < 2 ? [:] : Self.query(parts[1])
    }

    static func query(_ text: Substring) -> [String: String] {
        var items: [String: String] = [:]
        for item in text.split(separator: "&") {
            let parts = item.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map {
                $0.replacing("+", with: " ").removingPercentEncoding ?? String($0)
            }
            items[parts[0]] = parts.count > 1 ? parts[1] : ""
        }
        return items
    }

    func query(_ name: String) -> String? { query[name] }

    func header(_ name: String) -> String? {
        headers.first { $0.name.lowercased() == name.lowercased() }?.value
    }

    /// A bearer token; else the password of HTTP Basic; else `X-Auth-Token`, which counts with `X-User-Id` only; else the
    /// cookie `session`.
    var token: String? {
        if let value = header("Authorization") {
            if value.lowercased().hasPrefix("bearer ") { return String(value.dropFirst(7)) }
            guard value.lowercased().hasPrefix("basic "), let pair = Data(base64Encoded: String(value.dropFirst(6)))
            else {
                return nil
            }
            return String(decoding: pair, as: UTF8.self).split(separator: ":", maxSplits: 1).last.map(String.init)
        }
        if let token = header("X-Auth-Token"), claimedUser != nil { return token }
        let cookies = headers.filter { $0.name.lowercased() == "cookie" }.flatMap { $0.value.split(separator: ";") }
        return cookies.map { $0.trimmingCharacters(in: .whitespaces) }.first { $0.hasPrefix("session=") }
            .map { String($0.dropFirst("session=".count)) }
    }

    /// Whose token it has to be.
    var claimedUser: String? { header("X-User-Id") }

    /// - Throws: ``Refusal`` where the body is no object.
    func json() throws(Refusal) -> JSONValue {
        if body.isEmpty { return [:] }
        if let form { return form }
        guard let value = try? JSONValue(body), case .object = value else {
            throw .invalid("the body is no JSON object")
        }
        return value
    }

    /// It makes, changes or takes away a message: what faults are about.
    var writesMessage: Bool {
        path.count >= 3 && path.count <= 4 && path[0] == "conversations" && path[2] == "messages"
            && ["POST", "PATCH", "DELETE"].contains(method)
    }
}

/// What is answered to a request.
struct Answer {
    var status: Int
    var contentType: String?
    var body: [UInt8]
    var retryAfter: Int?
    var cookie: String?

    init(_ status: Int, _ json: JSONValue) {
        (self.status, contentType, body) = (status, "application/json", json.bytes)
    }

    init(_ bytes: [UInt8]) {
        (status, contentType, body) = (200, "application/octet-stream", bytes)
    }

    init(_ refusal: Refusal) {
        self.init(refusal.status, refusal.json)
        retryAfter = refusal.retryAfter
        if refusal.isPage { (contentType, body) = ("text/html", Array("<html>\(refusal.message)</html>".utf8)) }
    }

    private init() { (status, contentType, body) = (204, nil, []) }

    static let done = Answer()
}
