import Foundation

/// What an HTTP server has answered.
package struct WebAnswer: Sendable {
    package var status: Int
    package var reason: String
    /// In their order, names as they came.
    package var headers: [(name: String, value: String)]
    /// Without the borders of chunks.
    package var body: [UInt8]
    /// As it came, byte by byte.
    package var raw: [UInt8]

    package var text: String { String(decoding: body, as: UTF8.self) }
    /// Null where the body is no JSON.
    package var json: JSONValue { (try? JSONValue(body)) ?? .null }

    package func header(_ name: String) -> String? {
        headers.first { $0.name.lowercased() == name.lowercased() }?.value
    }
}

/// A client of HTTP/1.1 that can say exact bytes and shows exact answers. One connection, begun again when it has ended.
package final class WebClient {
    package let port: UInt16
    /// Sent with each request, behind `Host`.
    package var headers: [(String, String)] = []
    private var stream: ByteStream?

    package init(port: UInt16) {
        self.port = port
    }

    /// Says a request and hears the answer to it.
    ///
    /// - Throws: ``PeerError`` when nobody listens, or the connection ends before the end of the answer.
    package func request(
        _ method: String, _ target: String, headers: [(String, String)] = [], body: [UInt8]? = nil,
        timeout: Duration = Deadline.usual
    ) throws -> WebAnswer {
        var head = "\(method) \(target) HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\n"
        for (name, value) in self.headers + headers { head += "\(name): \(value)\r\n" }
        if let body { head += "Content-Length: \(body.count)\r\n" }
        try send(Array((head + "\r\n").utf8) + (body ?? []))
        return try answer(to: method, timeout: timeout)
    }

    /// The same with a JSON body.
    package func request(
        _ method: String, _ target: String, _ body: JSONValue, headers: [(String, String)] = [],
        timeout: Duration = Deadline.usual
    ) throws -> WebAnswer {
        try request(
            method, target, headers: [("Content-Type", "application/json")] + headers, body: body.bytes,
            timeout: timeout)
    }

    /// Says exactly this.
    package func send(_ bytes: [UInt8]) throws {
        stream?.lookAround()
        if stream?.hasEnded ?? true { stream = try ByteStream(port: port) }
        try stream?.send(bytes)
    }

    package func send(_ text: String) throws {
        try send(Array(text.utf8))
    }

    /// The next answer on this connection. Interim answers (1xx but 101) are answers of their own.
    package func answer(to method: String = "GET", timeout: Duration = Deadline.usual) throws -> WebAnswer {
        guard let stream else { throw PeerError("nothing was asked") }
        do {
            let answer = try AnswerReader(stream: stream, timeout: timeout).read(method: method)
            if answer.header("connection")?.lowercased() == "close" { self.stream = nil }
            return answer
        } catch {
            self.stream = nil
            throw error
        }
    }

    /// All that comes up to the end of the connection.
    package func rest(timeout: Duration = Deadline.usual) throws -> [UInt8] {
        defer { stream = nil }
        return try stream?.takeAll(timeout: timeout) ?? []
    }

    /// Ends the connection without a word.
    package func hangUp() {
        stream = nil
    }

    /// Makes this connection a WebSocket. The client has no connection afterwards.
    package func webSocket(_ target: String, headers: [(String, String)] = []) throws -> WebSocketClient {
        let answer = try request("GET", target, headers: WebSocketClient.handshake + headers)
        guard let stream, answer.status == 101, answer.header("sec-websocket-accept") == WebSocketClient.accept else {
            throw PeerError("no WebSocket at \(target): \(answer.status) \(answer.text)")
        }
        self.stream = nil
        return WebSocketClient(stream)
    }
}

/// Takes one answer off a connection. RFC 9112 section 6.
private final class AnswerReader {
    let stream: ByteStream
    let timeout: Duration
    private var raw: [UInt8] = []

    init(stream: ByteStream, timeout: Duration) {
        (self.stream, self.timeout) = (stream, timeout)
    }

    func read(method: String) throws -> WebAnswer {
        let lines = try head()
        let words = lines[0].split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false)
        guard words.count >= 2, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]) else {
            throw PeerError("no answer of HTTP: \(lines[0].debugDescription)")
        }
        var answer = WebAnswer(
            status: status, reason: words.count > 2 ? String(words[2]) : "", headers: lines.dropFirst().map(Self.field),
            body: [], raw: [])
        if method != "HEAD", status >= 200, status != 204, status != 304 {
            answer.body = try body(answer)
        }
        answer.raw = raw
        return answer
    }

    private static func field(_ line: String) -> (name: String, value: String) {
        let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        return (String(parts[0]), parts.count > 1 ? parts[1].trimmingCharacters(in: .whitespaces) : "")
    }

    private func head() throws -> [String] {
        let end = try position(of: [13, 10, 13, 10], "head of an answer")
        return String(decoding: take(end + 4).dropLast(4), as: UTF8.self).components(separatedBy: "\r\n")
    }

    private func body(_ answer: WebAnswer) throws -> [UInt8] {
        if answer.header("transfer-encoding")?.lowercased().hasSuffix("chunked") == true { return try chunks() }
        guard let length = answer.header("content-length").flatMap(Int.init) else {
            let rest = try stream.takeAll(timeout: timeout)
            raw += rest
            return rest
        }
        return try exactly(length)
    }

    private func chunks() throws -> [UInt8] {
        var body: [UInt8] = []
        while true {
            let first = try line()
            guard let size = Int(first.prefix { $0 != ";" }, radix: 16) else {
                throw PeerError("no size of a chunk: \(first.debugDescription)")
            }
            if size == 0 { break }
            body += try exactly(size)
            guard try line() == "" else { throw PeerError("a chunk is longer than it says") }
        }
        // Trailers.
        while try line() != "" {}
        return body
    }

    private func line() throws -> String {
        let end = try position(of: [13, 10], "line")
        return String(decoding: take(end + 2).dropLast(2), as: UTF8.self)
    }

    private func exactly(_ count: Int) throws -> [UInt8] {
        guard try stream.read("\(count) bytes of a body", timeout: timeout, until: { $0.count >= count }) else {
            throw PeerError("the connection to \(stream.port) ended within a body")
        }
        return take(count)
    }

    private func take(_ count: Int) -> [UInt8] {
        let bytes = stream.take(count)
        raw += bytes
        return bytes
    }

    private func position(of mark: [UInt8], _ what: String) throws -> Int {
        var found: Int?
        _ = try stream.read(what, timeout: timeout) { bytes in
            found = bytes.firstRange(of: mark)?.lowerBound
            return found != nil
        }
        guard let found else { throw PeerError("the connection to \(stream.port) ended before the \(what)") }
        return found
    }
}
