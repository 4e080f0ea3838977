import NIOCore
import TestKit
import Testing

@testable import HTTPCodec

/// Multipart bodies in pieces of all sizes, cut anywhere, too large, and in every form in which programs could differ.
@Suite struct MultipartTests {
    private static let boundary = "----abcdefgh"

    /// One line for each part: `name|file name|type|content`.
    private static func read(_ body: [UInt8], by size: Int, boundary: String = boundary) throws -> [String] {
        var reader = MultipartReader(try #require(MultipartBoundary(Array(boundary.utf8))))
        var parts: [String] = []
        var content: [UInt8] = []
        var isOver = false
        for start in stride(from: 0, to: body.count, by: size) {
            body[start..<min(start + size, body.count)].withUnsafeBytes { reader.append($0) }
            while let piece = try reader.next() {
                #expect(!isOver)
                switch piece {
                case .head(let head):
                    parts.append("\(head.name)|\(head.fileName ?? "-")|\(head.type ?? "-")|")
                    content = []
                case .bytes(let bytes): content += bytes
                case .end: parts[parts.count - 1] += String(decoding: content, as: UTF8.self)
                case .over: isOver = true
                }
            }
            #expect(reader.offset <= start + size)
        }
        try reader.finish()
        return parts
    }

    private static func body(_ parts: [String], end: String = "\r\n") -> [UInt8] {
        Array((parts.map { "--\(boundary)\r\n\($0)\r\n" }.joined() + "--\(boundary)--" + end).utf8)
    }

    private static func part(_ disposition: String, _ content: String = "x", _ more: String = "") -> String {
        "Content-Disposition: \(disposition)\r\n\(more)\r\n\(content)"
    }

    private static let whole = body([
        part("form-data; name=\"channel_id\"", "c1"),
        part(
            "form-data; name=\"files\"; filename=\"a b;=\u{e9}.png\"",
            "\r\n-\r\n--\r\n------abcdefg\r\r\n\n\0\r\n--x", "Content-Type: image/png\r\nX-Other: 1\r\n"),
        part("FORM-DATA;name=plain ; filename=", "").replacing(" ; filename=", with: " ;"),
        part("form-data; name=e", ""),
    ])
    private static let expected = [
        "channel_id|-|-|c1",
        "files|a b;=\u{e9}.png|image/png|\r\n-\r\n--\r\n------abcdefg\r\r\n\n\0\r\n--x",
        "plain|-|-|", "e|-|-|",
    ]

    @Test(arguments: [1, 2, 3, 5, 7, 13, 64, 100_000]) func partsComeInPieces(_ size: Int) throws {
        #expect(try Self.read(Self.whole, by: size) == Self.expected)
    }

    @Test func theLineEndBehindTheLastMayBeMissing() throws {
        for count in [1, 1000] {
            #expect(try Self.read(Array(Self.whole.dropLast(2)), by: count) == Self.expected)
            #expect(throws: MultipartFault.trailing) { try Self.read(Array(Self.whole.dropLast()), by: count) }
        }
    }

    @Test func everyCutIsIncomplete() {
        for count in 0..<(Self.whole.count - 2) {
            #expect(throws: MultipartFault.incomplete, "\(count)") { try Self.read(Array(Self.whole[..<count]), by: 9) }
        }
    }

    @Test(arguments: ["\r\n\r\n", "\n", " ", "\r\nepilogue", "x", "-"]) func nothingFollowsTheLast(_ end: String) {
        for size in [1, 2, 1000] {
            let body = Self.body([Self.part("form-data; name=a")], end: end)
            #expect(throws: MultipartFault.trailing) { try Self.read(body, by: size) }
        }
    }

    @Test(arguments: [
        ("preamble\r\n", ""), ("\r\n", ""), (" ", ""), ("", " "), ("", "x"), ("", "\n"), ("", "\t"), ("", "-"),
    ]) func aDelimiterStandsByItself(_ before: String, _ behind: String) {
        let text =
            before + "--\(Self.boundary)\(behind)\r\n" + Self.part("form-data; name=a") + "\r\n--\(Self.boundary)--"
        for size in [1, 1000] {
            #expect(throws: MultipartFault.delimiter, "\(text)") { try Self.read(Array(text.utf8), by: size) }
        }
    }

    @Test func aLineThatGoesOnAfterTheBoundaryIsAmbiguous() {
        for line in ["--\(Self.boundary)i", "--\(Self.boundary) ", "--\(Self.boundary)\n", "--\(Self.boundary)-x"] {
            let body = Self.body([Self.part("form-data; name=a", "1\r\n\(line)\r\n2")])
            #expect(throws: MultipartFault.delimiter, "\(line)") { try Self.read(body, by: 4) }
        }
        // A form without parts is none.
        #expect(throws: MultipartFault.delimiter) { try Self.read(Self.body([]), by: 4) }
    }

    @Test(arguments: [
        "", "attachment; name=\"a\"", "form-data", "form-data; filename=\"a\"", "form-data; name=",
        "form-data; name=\"\"",
        "form-data; name=\"a", "form-data; name=\"a\"b\"", "form-data; name=\"a\\\"b\"", "form-data; name=\"a\\b\"",
        "form-data; name=\"a\"; name=\"b\"", "form-data; name=\"a\"; NAME=\"b\"", "form-data; name*=utf-8''a",
        "form-data; name=\"a\"; size=1", "form-data; name = \"a\"", "form-data, name=\"a\"", "form-data; name=\"a\" x",
        "form-data; name=\"a\"; filename=\"b\"; filename=\"c\"", "form-data; name=\"a\"; filename*=latin1''b",
        "form-data; name=\"a\"; filename*=utf-8''%f", "form-data; name=\"a\"; filename*=b",
        "form-data; name=\"a\u{1}\"",
        "form-data;\r\n name=\"a\"", "form-data; name=\"a\"\r\ncontent-disposition: form-data; name=\"b\"",
        "form-data; name=\"a\"\r\nContent-Type: text/plain\r\ncontent-type: image/png",
        "form-data; name=\"a\"\r\nContent-Type: multipart/mixed; boundary=b",
        "form-data; name=\"a\"\r\nContent-Transfer-Encoding: base64", "form-data; name=\"a\"\nX: y",
        "form-data; name=\"a\"\r\nX : y", "form-data; name=\"a\"\r\n: y", "form-data; name=\"a\"\r\nX",
        "form-data; name=\"a\"\rX",
    ]) func anAmbiguousHeadIsRejected(_ disposition: String) {
        for size in [1, 1000] {
            #expect(throws: MultipartFault.head, "\(disposition)") {
                try Self.read(Self.body([Self.part(disposition)]), by: size)
            }
        }
    }

    @Test func aPartWithoutAHeadIsRejected() {
        #expect(throws: MultipartFault.head) { try Self.read(Self.body(["X: y\r\n\r\ncontent"]), by: 3) }
        #expect(throws: (any Error).self) { try Self.read(Self.body(["\r\ncontent"]), by: 3) }
    }

    @Test(arguments: [
        ("filename=\"a\\\"b\"", "a\"b"), ("filename=\"C:\\dir\\a.txt\"", "C:\\dir\\a.txt"), ("filename=a.txt", "a.txt"),
        ("filename=\"\"", ""), ("filename*=UTF-8''%e2%82%ac%20a", "\u{20ac} a"), ("filename*=utf-8'de'a", "a"),
        ("filename=\"_\"; filename*=utf-8''%C3%A9", "\u{e9}"), ("filename=\"a\";", "a"), ("filename=\"%22\"", "%22"),
    ]) func namesOfFiles(_ parameter: String, _ name: String) throws {
        let body = Self.body([Self.part("form-data; name=\"f\"; \(parameter)")])
        #expect(try Self.read(body, by: 1000) == ["f|\(name)|-|x"])
    }

    @Test func encodingsThatChangeNothingAreTaken() throws {
        for encoding in ["7bit", "8BIT", "binary"] {
            let part = Self.part("form-data; name=f", "x", "content-transfer-encoding: \(encoding)\r\n")
            #expect(try Self.read(Self.body([part]), by: 10) == ["f|-|-|x"])
        }
    }

    @Test func limitsHold() throws {
        let long = String(repeating: "a", count: MultipartReader.headLimit)
        for size in [1000, 100_000] {
            #expect(throws: MultipartFault.headTooLong) {
                try Self.read(Self.body([Self.part("form-data; name=a", "x", "X: \(long)\r\n")]), by: size)
            }
        }
        // A head that never ends is not collected.
        var reader = MultipartReader(try #require(MultipartBoundary(Array(Self.boundary.utf8))))
        Array("--\(Self.boundary)\r\n\(long)aa".utf8).withUnsafeBytes { reader.append($0) }
        #expect(throws: MultipartFault.headTooLong) { try reader.next() }
        let parts = Array(repeating: Self.part("form-data; name=a"), count: MultipartReader.partLimit)
        #expect(try Self.read(Self.body(parts), by: 5000).count == MultipartReader.partLimit)
        #expect(throws: MultipartFault.tooManyParts) {
            try Self.read(Self.body(parts + parts.prefix(1)), by: 5000)
        }
    }

    @Test(arguments: [
        ("multipart/form-data; boundary=----abcdefgh", "----abcdefgh"),
        ("Multipart/Form-Data;boundary=\"a:b=c/d?e\"", "a:b=c/d?e"),
        ("multipart/form-data; boundary=----=_Part_1.2", "----=_Part_1.2"),
        ("multipart/form-data; charset=UTF-8; boundary=12345678", "12345678"),
    ]) func boundariesAreFound(_ type: String, _ boundary: String) throws {
        #expect(try MultipartBoundary(["content-type": type]).bytes == Array(boundary.utf8))
    }

    @Test(arguments: [
        "", "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=1234567",
        "multipart/form-data; boundary=\"1234567 \"", "multipart/form-data; boundary=12345678; boundary=12345679",
        "multipart/form-data; boundary=12345678; charset=utf-16", "multipart/form-data; boundary=12345678; a=b",
        "multipart/mixed; boundary=12345678", "multipart/form-data boundary=12345678",
        "multipart/form-data; boundary=1234\"5678",
        "multipart/form-data; boundary=1234567\u{e9}",
        "multipart/form-data; boundary=" + String(repeating: "a", count: 71),
    ]) func otherTypesHaveNoBoundary(_ type: String) {
        #expect(throws: MultipartFault.boundary) { try MultipartBoundary(["Content-Type": type]) }
        #expect(throws: MultipartFault.boundary) {
            try MultipartBoundary([
                "Content-Type": "multipart/form-data; boundary=12345678", "content-type": "a/b",
            ])
        }
    }

    /// Random bytes out of pieces of a form end in a fault or in parts, and the size of the pieces changes nothing.
    @Test(arguments: 1...10 as ClosedRange<UInt64>) func thePiecesChangeNothing(_ seed: UInt64) {
        var chance = SeededGenerator(seed: seed)
        let pieces = [
            "--\(Self.boundary)", "--\(Self.boundary)", "\r\n", "\r\n", "\r\n\r\n", "--", "\r", "\n", "a", "------",
            "Content-Disposition: form-data; name=\"a\"\r\n\r\n",
            "Content-Disposition: form-data; name=\"a\"; filename=\"b\"",
        ]
        var sound = 0
        for _ in 0..<500 {
            var body = "--\(Self.boundary)\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"
            for _ in 0..<Int.random(in: 0..<6, using: &chance) { body += pieces.randomElement(using: &chance) ?? "" }
            if Bool.random(using: &chance) { body += "\r\n--\(Self.boundary)--" }
            func result(_ size: Int) -> Result<[String], MultipartFault> {
                do { return .success(try Self.read(Array(body.utf8), by: size)) } catch {
                    return .failure(error as? MultipartFault ?? .incomplete)
                }
            }
            let whole = result(100_000)
            if case .success = whole { sound += 1 }
            #expect(result(1) == whole, "\(body)")
            #expect(result(3) == whole, "\(body)")
        }
        #expect(sound > 20)
    }

    @Test func aBoundaryWithDashesIsFoundInBytes() throws {
        let boundary = try #require(MultipartBoundary(Array(Self.boundary.utf8)))
        #expect(
            boundary.isIn(Array("a\n--\(Self.boundary)".utf8)) && !boundary.isIn(Array("a\n-\(Self.boundary)".utf8)))
        #expect(!boundary.isIn([]))
    }

    /// The `Origin` of a request that is rejected, or that has not come as a whole.
    @Test(arguments: [
        ("GET / HTTP/1.1\r\nOrigin: https://a\r\nHost: x\r\n\r\n", ["https://a"]),
        ("GET / HTTP/1.1\norigin:\thttps://a \nHost: x\n\n", ["https://a"]),
        ("GET / HTTP/1.1\r\nOrigin: https://a\r\nORIGIN: b\r\nX", ["https://a", "b"]),
        ("GET / HTTP/1.1\r\nOrigin: https://a", []), ("Origin: https://a\r\nHost: x\r\n", []),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\nOrigin: https://a\r\n", []), ("GET / HTTP/1.1\r\nOrigin: \u{1}\r\n\r\n", []),
        ("", []),
        ("GET / HTTP/1.1\r\nX-Origin: https://a\r\nOrigin : b\r\n\r\n", []),
    ]) func originsOfARejectedHead(_ head: String, _ origins: [String]) {
        #expect(HeadReader().origins(ByteBuffer(string: head))["Origin"] == origins)
    }
}
