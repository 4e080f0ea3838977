import TestKit
import Testing

/// The programmes of `Tests/fuzz web` without a fuzzer. Its finds come here.
@Suite struct ProgrammeTests {
    private static let pieces = [
        "GET / HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n", "Host: x\r\n", "Content-Length: 3\r\n", "\r\n", "\r", "\n",
        "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n", "0\r\n", "Connection: close\r\n", ":method\tGET\n",
        ":path\t/\n", ":scheme\thttps\n", ":authority\tx\n", "a\tb\n", "--boundary\r\n", "\r\n--boundary", "--",
        "Content-Disposition: form-data; name=\"a\"\r\n", "; filename=\"b\"", "{", "}", "[", "]", ",", ":", "\"a\"",
        "\"id\"", "\"{\\\"b\\\":1}\"", "1", "-0.5e3", "true", "null", "\\ud800", "a=b", "&", "+", "%41", "/", "..", ";",
        "?",
        "\u{81}\u{3}abc", "\u{1}\u{1}a", "\u{0}",
    ]

    @Test(arguments: 0..<UInt8(WebProgramme.readerCount)) func bytesDrawnFromASeed(_ reader: UInt8) throws {
        var random = SeededGenerator(seed: 600 + UInt64(reader))
        for _ in 0..<2000 {
            var input = [reader] + random.bytes(1)
            for _ in 0..<random.below(14) {
                let isPiece = random.below(8) > 0
                input += isPiece ? Array(Self.pieces[random.below(Self.pieces.count)].utf8) : random.bytes(1)
            }
            do {
                try WebProgramme.run(input)
            } catch {
                Issue.record("\(error) \(input)")
                return
            }
        }
    }
}
