package import HTTPCodec
import JSONCodec
package import NIOCore

/// A request or an answer that was copied into a file: first line, header fields, an empty line, the body.
///
/// Lines may end with LF or CRLF. `Content-Length` is ignored, and so are scheme and host in front of the path.
package struct HTTPSample: Sendable {
    /// Ours: maximum size, in bytes: the largest body that a gateway collects, and a head.
    package static let sizeLimit = JSONLimits.standard.size + lengthOfHead
    private static let lengthOfHead = HeadLimits.standard.bytes

    package enum Head: Sendable {
        case request(RequestHead)
        case response(ResponseHead)
    }

    package let head: Head
    package let body: ByteBuffer

    /// Why it is not a sample, in words.
    package struct Fault: Error, Sendable, Equatable {
        package let words: String

        init(_ words: String) { self.words = words }
    }

    /// Reads a request.
    package static func request(_ bytes: [UInt8]) throws(Fault) -> (RequestHead, ByteBuffer) {
        let sample = try HTTPSample(bytes)
        guard case .request(let head) = sample.head else {
            throw Fault("this is an answer; a request begins with a line as `POST /messages HTTP/1.1`")
        }
        return (head, sample.body)
    }

    /// Reads an answer. A JSON body alone is enough.
    package static func response(_ bytes: [UInt8]) throws(Fault) -> (ResponseHead, ByteBuffer) {
        let first = bytes.first { !" \t\r\n".utf8.contains($0) }
        if first == UInt8(ascii: "{") || first == UInt8(ascii: "[") {
            return (ResponseHead(200), ByteBuffer(bytes: bytes))
        }
        let sample = try HTTPSample(bytes)
        guard case .response(let head) = sample.head else {
            throw Fault("this is a request; an answer begins with a line as `HTTP/1.1 200 OK`, or is JSON alone")
        }
        return (head, sample.body)
    }

    init(_ bytes: [UInt8]) throws(Fault) {
        guard bytes.count <= Self.sizeLimit else { throw Fault("it is larger than the gateway would read") }
        var rest = bytes[...]
        guard let line = Self.line(&rest), !line.isEmpty else {
            throw Fault("it is empty; a request begins with a line as `POST /messages HTTP/1.1`")
        }
        let words = line.split(separator: " ", maxSplits: 2).map(String.init)
        var fields = HeaderFields()
        while let line = Self.line(&rest), !line.isEmpty {
            guard bytes.count - rest.count <= Self.lengthOfHead else {
                throw Fault("its head is longer than \(Self.lengthOfHead >> 10) KiB")
            }
            guard let colon = line.firstIndex(of: ":"), colon != line.startIndex else {
                throw Fault("`\(line.prefix(60))` is no header field; an empty line stands before the body")
            }
            let value = line[line.index(after: colon)...].drop { $0 == " " || $0 == "\t" }
            fields.add(String(line[..<colon]), String(value))
        }
        if words[0].hasPrefix("HTTP/") {
            guard words.count > 1, let status = Int(words[1]), 100...599 ~= status else {
                throw Fault("`\(line.prefix(60))` is no status line; write `HTTP/1.1 200 OK`")
            }
            head = .response(ResponseHead(status, reason: words.count > 2 ? words[2] : "", headers: fields))
        } else {
            guard words.count == 2 || words.count == 3 && words[2].hasPrefix("HTTP/"),
                words[0].utf8.allSatisfy({ 0x41...0x5A ~= $0 || $0 == UInt8(ascii: "-") })
            else {
                throw Fault("`\(line.prefix(60))` is no request line; write `POST /messages HTTP/1.1`")
            }
            head = .request(RequestHead(words[0], Self.target(words[1]), headers: fields))
        }
        while let last = rest.last, last == 0x0A || last == 0x0D { rest.removeLast() }
        // An editor has made LF of the line ends of a form, which have to be CR LF.
        let isEdited = fields.describeParts && !rest.contains(0x0D)
        body = ByteBuffer(bytes: isEdited ? Array(rest.flatMap { $0 == 0x0A ? [0x0D, 0x0A] : [$0] }) : Array(rest))
    }

    /// The path and query of a target, which browsers show with scheme and host.
    private static func target(_ word: String) -> String {
        guard let scheme = word.firstRange(of: "://"),
            ["http", "https"].contains(word[..<scheme.lowerBound].lowercased())
        else { return word }
        let rest = word[scheme.upperBound...]
        return rest.firstIndex { $0 == "/" || $0 == "?" }.map { (rest[$0] == "?" ? "/" : "") + rest[$0...] } ?? "/"
    }

    private static func line(_ rest: inout ArraySlice<UInt8>) -> String? {
        guard !rest.isEmpty else { return nil }
        let end = rest.firstIndex(of: 0x0A) ?? rest.endIndex
        var line = rest[..<end]
        if line.last == 0x0D { line.removeLast() }
        rest = end < rest.endIndex ? rest[(end + 1)...] : []
        return String(decoding: line, as: UTF8.self)
    }
}
