import QRCode
import TestKit
import Testing

/// Codes as a decoder reads them that knows nothing of libqrencode.
@Suite struct DecodingTests {
    /// Bytes that fit into versions 1 to 10 in byte mode at level M, as the standard lists them.
    static let capacities = [14, 26, 42, 62, 84, 106, 122, 152, 180, 213]

    /// Around every limit of a version, and between.
    static let lengths = Set(capacities.flatMap { [$0 - 1, $0, $0 + 1] })
        .union([1, 2, 3, 32, 33, 64, 65, 66, 100, 200]).filter { $0 <= QRCode.capacity }.sorted()

    /// The same bytes in each run: zbarimg does not read every good code.
    static func randomBytes(_ count: Int, seed: Int = 0) -> [UInt8] {
        var random = SeededGenerator(seed: UInt64(seed * 1000 + count))
        return (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
    }

    static func picture(_ code: QRCode) -> Picture {
        let indices = -QRCode.quietZone..<code.size + QRCode.quietZone
        return Picture(rows: indices.map { row in indices.map { code.isDark(row: row, column: $0) } })
    }

    @Test(arguments: lengths) func anyLengthIsRead(_ length: Int) throws {
        for bytes in [Self.randomBytes(length), [UInt8](repeating: 0, count: length)] {
            let code = try #require(QRCode(bytes))
            #expect(try Self.picture(code).decoded() == bytes)
        }
    }

    /// What is used most: keys.
    @Test func manyOf65BytesAreRead() throws {
        for seed in 0..<20 {
            let bytes = Self.randomBytes(65, seed: seed)
            let code = try #require(QRCode(bytes))
            #expect(code.size == 37)
            #expect(try Self.picture(code).decoded() == bytes)
        }
    }

    @Test(arguments: ["irc://127.0.0.1:6667/#pawl", "Grüße, 世界 🔑", "line\nline\n", "\0\0", "\u{FEFF}x", "0123456789"])
    func textIsRead(_ text: String) throws {
        let code = try #require(QRCode([UInt8](text.utf8)))
        #expect(try Self.picture(code).decoded() == [UInt8](text.utf8))
    }

    @Test func theSmallestVersionThatHoldsThemIsTaken() {
        for count in 1...QRCode.capacity {
            let version = Self.capacities.count { $0 < count } + 1
            #expect(QRCode([UInt8](repeating: 7, count: count))?.size == 17 + 4 * version)
        }
        #expect(QRCode.capacity == Self.capacities.last)
        #expect(QRCode([UInt8](repeating: 7, count: QRCode.capacity + 1)) == nil)
        #expect(QRCode([]) == nil)
    }

    @Test func outsideIsLight() throws {
        let code = try #require(QRCode([1, 2, 3]))
        #expect(code.isDark(row: 0, column: 0))
        #expect(!code.isDark(row: -1, column: 0))
        #expect(!code.isDark(row: 0, column: code.size))
    }

    @Test(arguments: [1, 14, 65, 213]) func textForATerminalIsRead(_ length: Int) throws {
        let bytes = Self.randomBytes(length)
        let code = try #require(QRCode(bytes))
        let begin = "\u{1B}[38;5;16;48;5;231m"
        let end = "\u{1B}[0m"
        let lines = code.terminal.split(separator: "\n", omittingEmptySubsequences: false)
        // each line carries its colours, so that nothing beside it is coloured
        #expect(lines.allSatisfy { $0.hasPrefix(begin) && $0.hasSuffix(end) })
        let inner = lines.map { $0.dropFirst(begin.count).dropLast(end.count) }
        #expect(inner.allSatisfy { $0.count == code.size + 8 })
        #expect(inner.count == (code.size + 9) / 2)
        #expect(try Self.picture(inner, ink: true).decoded() == bytes)
    }

    @Test(arguments: [1, 14, 65, 213]) func plainTextIsRead(_ length: Int) throws {
        let bytes = Self.randomBytes(length)
        let code = try #require(QRCode(bytes))
        #expect(!code.plain.unicodeScalars.contains("\u{1B}"))
        let lines = code.plain.split(separator: "\n", omittingEmptySubsequences: false)
        #expect(lines.count == (code.size + 9) / 2)
        #expect(try Self.picture(lines, ink: false).decoded() == bytes)
    }

    /// As a terminal draws half blocks; `ink` says whether what is drawn is dark.
    static func picture(_ lines: [Substring], ink: Bool) -> Picture {
        let rows = lines.flatMap { line in
            [line.map { "█▀".contains($0) == ink }, line.map { "█▄".contains($0) == ink }]
        }
        return Picture(rows: rows)
    }
}
