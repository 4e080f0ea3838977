import HTTPCodec
import NIOCore
import Testing

@Suite struct BodyReaderTests {
    /// What comes out when the bytes come in pieces of this size.
    private func read(
        _ text: String, _ framing: BodyFraming, by size: Int
    ) throws(HTTPFault) -> (body: String, trailers: HeaderFields?, rest: String) {
        var reader = BodyReader(framing)
        var buffer = ByteBuffer()
        var body = ""
        var trailers: HeaderFields?
        var rest = ByteBuffer(string: text)
        while trailers == nil, let part = rest.readSlice(length: min(size, rest.readableBytes)), part.readableBytes > 0
        {
            buffer.writeImmutableBuffer(part)
            while let piece = try reader.next(&buffer) {
                switch piece {
                case .bytes(let bytes): body += String(buffer: bytes)
                case .end(let fields): trailers = fields
                }
            }
        }
        return (body, trailers, String(buffer: buffer) + String(buffer: rest))
    }

    static let chunked = "5\r\nhello\r\n1A;a=\"b\"\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n"

    @Test(arguments: [1, 2, 3, 7, 1000]) func chunksInPieces(_ size: Int) throws {
        let result = try read(Self.chunked + "GET", .chunked, by: size)
        #expect(result.body == "helloabcdefghijklmnopqrstuvwxyz")
        #expect(result.trailers == ["X-Sum": "1"])
        #expect(result.rest == "GET")
    }

    /// What a client may not claim in its head it may not claim in its trailers.
    @Test(arguments: [
        "X-Real-IP", "x_real_ip", "X-Forwarded-For", "X_Forwarded_Proto", "X-Forwarded-User", "Forwarded",
    ])
    func noTrailerNamesAClient(_ name: String) throws {
        let result = try read("0\r\n\(name): 1.2.3.4\r\nX-Sum: 1\r\n\r\n", .chunked, by: 100)
        #expect(result.trailers == ["X-Sum": "1"])
    }

    @Test func everyCutWaits() throws {
        for count in 0..<Self.chunked.utf8.count {
            #expect(
                try read(String(decoding: Self.chunked.utf8.prefix(count), as: UTF8.self), .chunked, by: 1).trailers
                    == nil, "\(count)")
        }
    }

    @Test func countedAndUntilClose() throws {
        let counted = try read("helloGET", .length(5), by: 3)
        #expect(counted.body == "hello")
        #expect(counted.rest == "GET")
        #expect(try read("hello", .untilClose, by: 2).body == "hello")
        var none = BodyReader(.none)
        var buffer = ByteBuffer()
        let end = try none.next(&buffer)
        #expect(end == .end(HeaderFields()))
    }

    @Test(arguments: [
        "\r\n", "g\r\n", ";a\r\n", "-1\r\n", "0x1\r\n", " 1\r\na\r\n", "1\na\n", "1\r\nab\r\n", "1\r\na\n", "1\r\na\rb",
        "1;a\nb\r\n", "1;\u{0}\r\n", "1000000000000000\r\n", "5\r\nhello0\r\n\r\n",
        "0\r\nA : b\r\n\r\n", "0\r\nA: b\nC: d\r\n\r\n", "1;" + String(repeating: "a", count: 2000),
    ]) func isRefused(_ text: String) {
        #expect(throws: HTTPFault.self) { try read(text, .chunked, by: 1) }
        #expect(throws: HTTPFault.self) { try read(text, .chunked, by: 5000) }
    }
}
