import HTTPCodec
import NIOCore
import Testing

/// Requests and responses of HTTP/2 streams, as values.
@Suite struct HTTP2Tests {
    private static let head: [HeaderFields.Field] = [
        .init(":method", "POST"), .init(":scheme", "https"), .init(":path", "/a?b"), .init(":authority", "chat"),
    ]

    private static func fields(_ more: [(String, String)] = []) -> HeaderFields {
        HeaderFields(head + more.map { .init($0.0, $0.1) })
    }

    private static func request(
        _ more: [(String, String)] = [], isEnd: Bool = false
    ) throws(HTTPFault) -> HTTP2Request {
        try HTTP2Request(fields(more), isEnd: isEnd, limits: HeadLimits())
    }

    @Test func aRequestInPieces() throws {
        var request = try Self.request([("cookie", "a"), ("x", "1"), ("cookie", "b")])
        let received = try request.received.get()
        let fields: HeaderFields = ["host": "chat", "cookie": "a; b", "x": "1", "Transfer-Encoding": "chunked"]
        #expect(received.head == RequestHead("POST", "/a?b", headers: fields))
        #expect(received.framing == .chunked && !received.keepsAlive && !received.expectsContinue)
        try request.take(5, isEnd: false)
        try request.take(0, isEnd: false)
        #expect(!request.isOver && !request.isWhole)
        #expect(try request.take(["x-t": "1"], isEnd: true) == ["x-t": "1"])
        #expect(request.isOver && request.isWhole)
        #expect(throws: HTTPFault.malformed) { try request.take(0, isEnd: true) }
        #expect(throws: HTTPFault.malformed) { _ = try request.take(HeaderFields(), isEnd: true) }
    }

    @Test func theFramingOfABody() throws {
        for (more, isEnd, framing) in [
            ([], false, .chunked), ([], true, .none), ([("content-length", "5")], false, .length(5)),
            ([("content-length", "0")], false, .none), ([("content-length", "0")], true, .none),
        ] as [([(String, String)], Bool, BodyFraming)] {
            let request = try Self.request(more, isEnd: isEnd)
            let received = try request.received.get()
            #expect(received.framing == framing)
            // A policy asks the head whether a body follows.
            #expect(received.head.headers["transfer-encoding"] == (framing == .chunked ? ["chunked"] : []))
            #expect(request.isWhole == (framing == .none) && request.isOver == isEnd)
        }
    }

    /// The length that was said is the sum of what comes.
    @Test func countedBodies() throws {
        for (pieces, isWhole) in [
            ([5], true), ([2, 0, 3], true), ([4], false), ([6], false), ([5, 0], true), ([5, 1], false), ([0], false),
        ] {
            var request = try Self.request([("content-length", "5")])
            var fault: HTTPFault?
            for (index, piece) in pieces.enumerated() {
                do throws(HTTPFault) {
                    try request.take(piece, isEnd: index == pieces.count - 1)
                } catch { fault = error }
            }
            #expect((fault == nil) == isWhole && request.isOver == isWhole, "\(pieces)")
        }
        var short = try Self.request([("content-length", "5")])
        #expect(throws: HTTPFault.malformed) { _ = try short.take(HeaderFields(), isEnd: true) }
        #expect(throws: HTTPFault.malformed) { _ = try Self.request([("content-length", "5")], isEnd: true) }
        var whole = try Self.request([("content-length", "5")])
        try whole.take(5, isEnd: false)
        #expect(whole.isWhole && !whole.isOver)
        #expect(try whole.take(["x-t": "1"], isEnd: true) == [:], "HTTP/1.1 has no trailers after a counted body")
    }

    @Test(arguments: [
        [("host", "other")], [("host", "chat"), ("host", "chat")], [(":path", "/")], [("x", "1"), (":x", "1")],
        [("connection", "x")], [("keep-alive", "x")], [("proxy-connection", "x")], [("transfer-encoding", "chunked")],
        [("upgrade", "x")], [("te", "gzip")], [("te", "trailers, gzip")], [("X", "1")], [("", "1")], [("x y", "1")],
        [("x\r\n", "1")], [("x", "1\r\n")], [("x", "a\nb")], [("x", "a\0b")], [("x", "a\u{1}b")], [("x", " a")],
        [("x", "a\t")], [("x", "\u{FFFD}")], [("content-length", "1"), ("content-length", "1")],
        [("content-length", "+1")], [("content-length", "")], [("content-length", "1234567890123456789")],
    ]) func fieldsThatHaveNoPlace(_ more: [(String, String)]) {
        #expect(throws: HTTPFault.malformed) { _ = try Self.request(more) }
    }

    @Test(arguments: [
        [":method": "CONNECT"], [":method": ""], [":method": "G T"], [":scheme": "ftp"], [":scheme": ""], [":path": ""],
        [":path": "*"], [":path": "x"], [":path": "https://chat/"], [":path": "/ HTTP/1.1\r\nX: "], [":path": "/#a"],
        [":path": "/\u{7F}"], [":authority": ""], [":authority": " chat"], [":method": "GET\t"],
    ]) func pseudoFieldsThatAreWrong(_ wrong: [String: String]) {
        let fields = HeaderFields(Self.head.map { .init($0.name, wrong[$0.name] ?? $0.value) })
        #expect(throws: HTTPFault.malformed) { _ = try HTTP2Request(fields, isEnd: true, limits: HeadLimits()) }
        for missing in 0..<3 {
            let rest = Self.head.enumerated().filter { $0.offset != missing }.map(\.element)
            #expect(throws: HTTPFault.malformed) {
                _ = try HTTP2Request(HeaderFields(rest), isEnd: true, limits: HeadLimits())
            }
        }
        #expect(throws: HTTPFault.malformed) { _ = try Self.request([(":protocol", "websocket")]) }
    }

    @Test func everyTokenCharacterIsAllowedInNames() throws {
        for byte in UInt8(0)...127 {
            let name = String(decoding: [0x78, byte], as: UTF8.self)
            let isToken = "!#$%&'*+-.^_`|~abcdefghijklmnopqrstuvwxyz0123456789".utf8.contains(byte)
            let isAllowed = (try? Self.request([(name, "1")])) != nil
            #expect(isAllowed == isToken, "\(byte)")
        }
    }

    // MARK: Limits

    private static let limits: [(fault: HTTPFault?, more: [(String, String)], path: String, authority: String?)] = [
        (nil, [], "/", "chat"),
        (.host, [], "/", nil),
        (.host, [], "/", "a@b"),
        (.host, [("host", "a b")], "/", nil),
        (.expectationUnknown, [("expect", "more")], "/", "chat"),
        (nil, [("expect", "100-Continue")], "/", "chat"),
        (nil, [], "/" + String(repeating: "x", count: (16 << 10) - 1), "chat"),
        (.targetTooLong, [], "/" + String(repeating: "x", count: 16 << 10), "chat"),
        (.headTooLong, (0..<128).map { ("x-\($0)", "") }, "/", "chat"),
        (.headTooLong, [("x", String(repeating: "y", count: 64 << 10))], "/", "chat"),
    ]

    /// A limit or a rule of HTTP/1.1 is one of HTTP/2: the request is well-formed, and is answered with the same status.
    @Test(arguments: limits.indices) func bothVersionsRefuseTheSame(_ index: Int) throws {
        let (fault, more, path, authority) = Self.limits[index]
        var fields: [HeaderFields.Field] = [
            .init(":method", "GET"), .init(":scheme", "https"), .init(":path", path),
        ]
        if let authority { fields.append(.init(":authority", authority)) }
        let plain = more.map { HeaderFields.Field($0.0, $0.1) }
        let request = try HTTP2Request(HeaderFields(fields + plain), isEnd: true, limits: HeadLimits())
        let host = authority.map { [HeaderFields.Field("host", $0)] } ?? []
        var text = ByteBuffer()
        text.write(RequestHead("GET", path, headers: HeaderFields(host + plain)))
        var reader = HeadReader()
        guard let fault else {
            #expect(try request.received.get().head == reader.request(&text)?.head)
            return
        }
        #expect(request.received == .failure(fault))
        #expect(throws: fault) { _ = try reader.request(&text) }
    }

    @Test func crumbsOfACookieAreOneField() throws {
        let crumbs = (0..<500).map { ("cookie", "c\($0)=1") }
        let head = try Self.request(crumbs).received.get().head
        #expect(head.headers["cookie"].count == 1)
        #expect(head.headers.first("cookie")?.split(separator: ";").count == 500)
    }

    @Test func trailersHaveTheLimitsOfHeads() throws {
        var few = try Self.request()
        let allowed = HeaderFields((0..<128).map { .init("x-\($0)", "1") })
        #expect(try few.take(allowed, isEnd: true) == allowed)
        var many = try Self.request()
        #expect(throws: HTTPFault.headTooLong) {
            _ = try many.take(HeaderFields((0..<129).map { .init("x-\($0)", "1") }), isEnd: true)
        }
        var long = try Self.request()
        #expect(throws: HTTPFault.headTooLong) {
            _ = try long.take(["x": String(repeating: "y", count: 64 << 10)], isEnd: true)
        }
        var framing = try Self.request()
        let trailers: HeaderFields = ["x-t": "1", "content-length": "7", "host": "other", "authorization": "x"]
        #expect(try framing.take(trailers, isEnd: true) == ["x-t": "1"])
        for wrong in [(":path", "/"), ("connection", "x"), ("x", "a\r\nb"), ("X", "1")] {
            var request = try Self.request()
            #expect(throws: HTTPFault.malformed) {
                _ = try request.take(HeaderFields([.init(wrong.0, wrong.1)]), isEnd: true)
            }
        }
        var open = try Self.request()
        #expect(throws: HTTPFault.malformed) { _ = try open.take(["x-t": "1"], isEnd: false) }
    }

    // MARK: Responses

    @Test func fieldsOfAResponse() {
        let fields: HeaderFields = [
            "X-Up": "Value", "Connection": "close", "Keep-Alive": "5", "Proxy-Connection": "x", "Upgrade": "h2c",
            "Transfer-Encoding": "chunked", "Set-Cookie": "a", "set-cookie": "b", "x": "caf\u{F7E9}",
        ]
        var sent: [String] = []
        fields.forEachInHTTP2 { sent.append("\($0)=\($1)") }
        #expect(sent == ["x-up=Value", "set-cookie=a", "set-cookie=b", "x=caf\u{E9}"])
    }
}
