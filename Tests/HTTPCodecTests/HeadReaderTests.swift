import HTTPCodec
import NIOCore
import Testing

@Suite struct HeadReaderTests {
    private func read(_ text: String) throws(HTTPFault) -> ReceivedRequest? {
        var reader = HeadReader()
        var buffer = ByteBuffer(string: text)
        return try reader.request(&buffer)
    }

    private func readAnswer(_ text: String, isToHead: Bool = false) throws(HTTPFault) -> ReceivedResponse? {
        var reader = HeadReader()
        var buffer = ByteBuffer(string: text)
        return try reader.response(&buffer, isToHead: isToHead)
    }

    static let request =
        "POST /a%20b?c=d HTTP/1.1\r\nhost: x:8008\r\nX-Empty:\r\nX-Two:  a b\t \r\nCONTENT-LENGTH: 3\r\n\r\n"

    @Test func aTargetIsDividedAtItsFirstQuestionMark() {
        let head = RequestHead("GET", "/a?b?c")
        #expect(head.path == "/a" && head.query == "b?c")
        #expect(RequestHead("GET", "/a").path == "/a" && RequestHead("GET", "/a").query == nil)
        // With a combining mark behind it, the question mark is part of another character.
        let combined = RequestHead("GET", "/a?\u{301}b")
        #expect(combined.path == "/a" && combined.query.map { Array($0.utf8) } == Array("\u{301}b".utf8))
    }

    @Test func aRequestWholeAndAtEveryCut() throws {
        let whole = try #require(try read(Self.request))
        #expect(whole.head.method == "POST")
        #expect(whole.head.target == "/a%20b?c=d")
        #expect(whole.framing == .length(3))
        #expect(whole.keepsAlive)
        #expect(
            whole.head.headers
                == ["host": "x:8008", "X-Empty": "", "X-Two": "a b", "CONTENT-LENGTH": "3"])
        for count in 0..<Self.request.utf8.count {
            #expect(try read(String(decoding: Self.request.utf8.prefix(count), as: UTF8.self)) == nil, "\(count) bytes")
        }
        var reader = HeadReader()
        var buffer = ByteBuffer()
        for byte in Self.request.utf8.dropLast() {
            buffer.writeInteger(byte)
            let none = try reader.request(&buffer)
            #expect(none == nil)
        }
        buffer.writeString("\nabcGET")
        let again = try reader.request(&buffer)
        #expect(again == whole)
        #expect(String(buffer: buffer) == "abcGET")
    }

    @Test(arguments: [
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\r\nHost: x\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nA\u{00E4}: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x, y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
        "GET /#a HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT http://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: x\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / http/1.1\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999999999\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    ]) func isRefused(_ text: String) {
        #expect { try read(text) } throws: { ($0 as? HTTPFault)?.status == 400 }
    }

    @Test(arguments: [
        "chunked, chunked", "gzip, chunked", "chunked\r\nTransfer-Encoding: chunked", "identity", "xchunked",
        "chunked;a=b", "\u{0B}chunked",
    ]) func codingsAreRefused(_ value: String) {
        #expect(throws: HTTPFault.self) {
            try read("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \(value)\r\n\r\n")
        }
    }

    @Test func versions() throws {
        #expect(try read("GET / HTTP/1.0\r\n\r\n")?.keepsAlive == false)
        #expect(try read("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")?.keepsAlive == true)
        #expect(try read("GET / HTTP/1.1\r\nHost: x\r\nConnection: a, Close\r\n\r\n")?.keepsAlive == false)
        #expect(throws: HTTPFault.versionUnknown) { try read("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") }
    }

    @Test func emptyLinesBeforeARequestAndTheAbsoluteForm() throws {
        #expect(try read("\r\n\r\n\(Self.request)") == read(Self.request))
        #expect(try read("GET http://X/a?b HTTP/1.1\r\nHost: x\r\n\r\n")?.head.target == "/a?b")
        #expect(try read("GET http://x HTTP/1.1\r\nHost: x\r\n\r\n")?.head.target == "/")
        #expect(try read("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")?.head.target == "*")
    }

    /// The bytes of an empty line may come in two reads.
    @Test func anEmptyLineByteByByte() throws {
        var (reader, buffer) = (HeadReader(), ByteBuffer())
        var request: ReceivedRequest?
        for byte in ("\r\n\r\n" + Self.request).utf8 {
            buffer.writeInteger(byte)
            request = try reader.request(&buffer)
        }
        #expect(try request == read(Self.request))
    }

    @Test func limits() {
        let many = (0..<129).map { "A\($0): b\r\n" }.joined()
        #expect(throws: HTTPFault.headTooLong) { try read("GET / HTTP/1.1\r\nHost: x\r\n\(many)\r\n") }
        let long = String(repeating: "a", count: HeadLimits().bytes)
        #expect(throws: HTTPFault.headTooLong) { try read("GET / HTTP/1.1\r\nHost: x\r\nA: \(long)") }
        #expect(throws: HTTPFault.targetTooLong) { try read("GET /\(long)") }
        #expect(throws: HTTPFault.targetTooLong) {
            try read("GET /\(long.prefix(HeadLimits().target)) HTTP/1.1\r\nHost: x\r\n\r\n")
        }
        #expect(throws: HTTPFault.expectationUnknown) {
            try read("GET / HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n")
        }
    }

    @Test func answers() throws {
        let plain = try #require(try readAnswer("HTTP/1.1 200 Fine by me\r\nContent-Length: 2\r\n\r\n"))
        #expect(plain.head == ResponseHead(200, reason: "Fine by me", headers: ["Content-Length": "2"]))
        #expect(plain.framing == .length(2))
        #expect(try readAnswer("HTTP/1.1 200\r\n\r\n")?.framing == .untilClose)
        #expect(try readAnswer("HTTP/1.1 200 \r\n\r\n")?.keepsAlive == false)
        #expect(try readAnswer("HTTP/1.1 304 \r\nContent-Length: 9\r\n\r\n")?.framing == BodyFraming.none)
        #expect(
            try readAnswer("HTTP/1.1 200 \r\nContent-Length: 9\r\n\r\n", isToHead: true)?.framing == BodyFraming.none)
        #expect(try readAnswer("HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n")?.framing == .chunked)
        for bad in [
            "HTTP/1.1 99 \r\n\r\n", "HTTP/1.1 2000 \r\n\r\n", "HTTP/1.1 200 \r\nA: b\r\n c\r\n\r\n",
            "HTTP/1.1 200 \r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 \r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 \r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "ICY 200 OK\r\n\r\n",
        ] {
            #expect(throws: HTTPFault.self, "\(bad)") { try readAnswer(bad) }
        }
    }

    /// Every byte that may stand in a value comes out as it went in.
    @Test(
        arguments: [
            [0xE4, 0xF6], [0xC3, 0xA4], [0xEF, 0x9E, 0x80], [0x41, 0xFF, 0x42], [0xF0, 0x9F, 0x8C], [0x09, 0x20, 0x7E],
        ] as [[UInt8]]) func valuesAreFaithful(_ bytes: [UInt8]) throws
    {
        let value = [0x78] + bytes + [0x78]
        var buffer = ByteBuffer(string: "GET / HTTP/1.1\r\nHost: x\r\nA: ")
        buffer.writeBytes(value)
        buffer.writeString("\r\n\r\n")
        let whole = buffer
        var reader = HeadReader()
        let request = try #require(try reader.request(&buffer))
        var written = ByteBuffer()
        written.write(request.head)
        #expect(written == whole)
    }

    @Test func noValueForgesAField() {
        var written = ByteBuffer()
        written.write(ResponseHead(200, reason: "a\r\nb", headers: ["A": "b\r\nC: d"]))
        #expect(String(buffer: written) == "HTTP/1.1 200 a  b\r\nA: b  C: d\r\n\r\n")
    }

    /// What a log says of an answer that is refused.
    @Test(arguments: [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", HTTPFault.lengthAndCoding),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n", .contentLength),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\n", .lineEnd),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", .codingUnknown),
        ("nonsense\r\n\r\n", .malformed),
    ]) func theRuleHasAName(_ text: String, _ fault: HTTPFault) {
        #expect(throws: fault) { try readAnswer(text) }
        #expect(!fault.rule.isEmpty)
    }

    @Test func theRuleNamesTheLimitsThatApply() {
        let limits = HeadLimits()
        #expect(HTTPFault.targetTooLong.rule.contains("\(limits.target / 1024) KiB"))
        #expect(HTTPFault.headTooLong.rule.contains("\(limits.bytes / 1024) KiB"))
        #expect(HTTPFault.headTooLong.rule.contains("\(limits.fields) fields"))
    }
}
