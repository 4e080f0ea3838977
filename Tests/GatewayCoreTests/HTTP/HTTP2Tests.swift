import HTTPCodec
import NIOCore
import Testing

/// Streams of HTTP/2 said in HTTP/1.1, and back.
@Suite struct HTTP2Tests {
    private static let head: [HeaderFields.Field] = [
        .init(":method", "POST"), .init(":scheme", "https"), .init(":path", "/a?b"), .init(":authority", "chat"),
    ]

    private static func fields(_ more: [(String, String)] = []) -> HeaderFields {
        HeaderFields(head + more.map { .init($0.0, $0.1) })
    }

    private func text(_ bytes: ByteBuffer) -> String { String(buffer: bytes) }

    @Test func aRequestInPieces() throws {
        var request = HTTP2Request()
        #expect(
            text(try request.take(Self.fields([("cookie", "a"), ("x", "1"), ("cookie", "b")]), isEnd: false)) == """
                POST /a?b HTTP/1.1\r
                host: chat\r
                cookie: a; b\r
                x: 1\r
                transfer-encoding: chunked\r
                connection: close\r\n\r\n
                """)
        #expect(text(try request.take(ByteBuffer(string: "hello"), isEnd: false)) == "5\r\nhello\r\n")
        #expect(text(try request.take(ByteBuffer(), isEnd: false)) == "")
        #expect(!request.isOver)
        #expect(text(try request.take(HeaderFields([.init("x-t", "1")]), isEnd: true)) == "0\r\nx-t: 1\r\n\r\n")
        #expect(request.isOver)
        #expect(throws: HTTPFault.malformed) { _ = try request.take(ByteBuffer(), isEnd: true) }
    }

    @Test func whatComesOutIsARequestOfHTTP1() throws {
        for (more, framing) in [
            ([], BodyFraming.chunked), ([("content-length", "5")], .length(5)), ([("content-length", "0")], .none),
        ] as [([(String, String)], BodyFraming)] {
            var request = HTTP2Request()
            var bytes = try request.take(Self.fields(more), isEnd: false)
            var reader = HeadReader()
            let read = try reader.request(&bytes)
            #expect(read?.framing == framing && read?.keepsAlive == false && bytes.readableBytes == 0)
        }
    }

    /// The length that was said is the sum of what comes.
    @Test func countedBodies() throws {
        for (pieces, isWhole) in [
            (["hello"], true), (["he", "", "llo"], true), (["hell"], false), (["hello!"], false),
            (["hello", ""], true), (["hello", "x"], false), ([""], false),
        ] {
            var request = HTTP2Request()
            _ = try request.take(Self.fields([("content-length", "5")]), isEnd: false)
            var fault: HTTPFault?
            for (index, piece) in pieces.enumerated() {
                do throws(HTTPFault) {
                    _ = try request.take(ByteBuffer(string: piece), isEnd: index == pieces.count - 1)
                } catch { fault = error }
            }
            #expect((fault == nil) == isWhole && request.isOver == isWhole, "\(pieces)")
        }
        var short = HTTP2Request()
        _ = try short.take(Self.fields([("content-length", "5")]), isEnd: false)
        #expect(throws: HTTPFault.malformed) { _ = try short.take(HeaderFields(), isEnd: true) }
        var none = HTTP2Request()
        #expect(throws: HTTPFault.malformed) { _ = try none.take(Self.fields([("content-length", "5")]), isEnd: true) }
    }

    @Test(arguments: [
        [("host", "other")], [("host", "chat"), ("host", "chat")], [(":path", "/")], [("x", "1"), (":x", "1")],
        [("connection", "x")], [("keep-alive", "x")], [("proxy-connection", "x")], [("transfer-encoding", "chunked")],
        [("upgrade", "x")], [("te", "gzip")], [("te", "trailers, gzip")], [("X", "1")], [("", "1")], [("x y", "1")],
        [("x\r\n", "1")], [("x", "1\r\n")], [("x", "a\nb")], [("x", "a\0b")], [("x", "a\u{1}b")], [("x", " a")],
        [("x", "a\t")], [("x", "\u{FFFD}")], [("content-length", "1"), ("content-length", "1")],
        [("content-length", "+1")], [("content-length", "")], [("content-length", "1234567890123456789")],
    ]) func fieldsThatHaveNoPlace(_ more: [(String, String)]) {
        var request = HTTP2Request()
        #expect(throws: HTTPFault.malformed) { _ = try request.take(Self.fields(more), isEnd: false) }
    }

    @Test(arguments: [
        [":method": "CONNECT"], [":method": ""], [":method": "G T"], [":scheme": "ftp"], [":scheme": ""], [":path": ""],
        [":path": "*"], [":path": "x"], [":path": "https://chat/"], [":path": "/ HTTP/1.1\r\nX: "], [":path": "/#a"],
        [":path": "/\u{7F}"], [":authority": ""],
    ]) func pseudoFieldsThatAreWrong(_ wrong: [String: String]) {
        var request = HTTP2Request()
        let fields = HeaderFields(Self.head.map { .init($0.name, wrong[$0.name] ?? $0.value) })
        #expect(throws: HTTPFault.malformed) { _ = try request.take(fields, isEnd: true) }
        for missing in 0..<3 {
            var request = HTTP2Request()
            let rest = Self.head.enumerated().filter { $0.offset != missing }.map(\.element)
            #expect(throws: HTTPFault.malformed) { _ = try request.take(HeaderFields(rest), isEnd: true) }
        }
    }

    // MARK: Answers

    /// All parts of these bytes, cut into pieces of this size.
    private func parts(_ text: String, isToHead: Bool = false, size: Int) throws -> [HTTP2Answer.Part] {
        var answer = HTTP2Answer(limits: HeadLimits())
        var (parts, pending): ([HTTP2Answer.Part], ByteBuffer) = ([], ByteBuffer())
        var bytes = ByteBuffer(string: text)
        while let piece = bytes.readSlice(length: min(size, bytes.readableBytes)), piece.readableBytes > 0 {
            pending.writeImmutableBuffer(piece)
            while let part = try answer.next(&pending, isToHead: isToHead) {
                if case .bytes(let new) = part, case .bytes(var old) = parts.last {
                    old.writeImmutableBuffer(new)
                    parts[parts.count - 1] = .bytes(old)
                } else {
                    parts.append(part)
                }
            }
        }
        #expect(pending.readableBytes == 0)
        return parts
    }

    @Test(arguments: [1, 3, 1000]) func anAnswerInPieces(_ size: Int) throws {
        let chunked =
            "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 Fine\r\nX-A: B\r\nTransfer-Encoding: chunked\r\n"
            + "Connection: close\r\nUpgrade: x\r\nKeep-Alive: x\r\nProxy-Connection: x\r\n\r\n"
            + "3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n"
        #expect(
            try parts(chunked, size: size) == [
                .informational([":status": "103", "link": "x"]), .head([":status": "200", "x-a": "B"], isEnd: false),
                .bytes(ByteBuffer(string: "abcde")), .end(["x-t": "1"]),
            ])
        let counted = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        #expect(
            try parts(counted, size: size) == [
                .head([":status": "200", "content-length": "2"], isEnd: false), .bytes(ByteBuffer(string: "ok")),
                .end([:]),
            ])
        #expect(
            try parts(String(counted.dropLast(2)), isToHead: true, size: size) == [
                .head([":status": "200", "content-length": "2"], isEnd: true)
            ])
        #expect(
            try parts("HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n", size: size) == [
                .head([":status": "204"], isEnd: true)
            ])
    }

    @Test(arguments: ["HTTP/1.1 101 X\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "nonsense\r\n\r\n"])
    func answersThatNoStreamCanHold(_ text: String) {
        var answer = HTTP2Answer(limits: HeadLimits())
        var bytes = ByteBuffer(string: text)
        #expect(throws: HTTPFault.malformed) { _ = try answer.next(&bytes, isToHead: false) }
    }
}
