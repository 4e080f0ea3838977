import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

@testable import JSONCodec

/// Our reading of documents beside Python's own parser, which shares nothing with it: what one takes the other takes,
/// with the same value in every string and number, and what one refuses the other refuses.
///
/// There are no differences on purpose but the bounds of ``JSONLimits``. Both take names that stand twice and half
/// surrogate pairs in escapes, and refuse a byte order mark, bytes that are not UTF-8, NaN and Infinity.
@Suite(.blocking) struct JudgeTests {
    private static func verdicts(_ documents: [[UInt8]]) throws -> [String] {
        let scratch = try ScratchDirectory()
        var bytes: [UInt8] = []
        for document in documents {
            bytes += (0..<4).map { UInt8(truncatingIfNeeded: document.count >> (24 - 8 * $0)) } + document
        }
        let file = scratch.file("documents")
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        let judge = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appending(path: "Peers/judge.py").path
        let output = try ChildProcess.run("python3", [judge, file], timeout: .seconds(120))
        guard output.succeeded else { throw PeerError("the judge failed: \(output.stderr)") }
        return output.stdout.split(separator: "\n").map(String.init)
    }

    private static func compare(_ documents: [[UInt8]]) throws -> (taken: Int, refused: Int) {
        let verdicts = try verdicts(documents)
        #expect(verdicts.count == documents.count)
        var counts = (taken: 0, refused: 0)
        for (bytes, verdict) in zip(documents, verdicts) {
            let ours = (try? document(bytes))?.dump ?? "-"
            if ours == "-" { counts.refused += 1 } else { counts.taken += 1 }
            if ours != verdict {
                let text = String(decoding: bytes, as: UTF8.self)
                Issue.record("\(text.debugDescription) (\(bytes)): ours \(ours), the judge's \(verdict)")
            }
        }
        return counts
    }

    @Test func tablesOfThisSuite() throws {
        let texts = ScannerTests.examples + ScannerTests.refusals.map(\.text)
        let sequences = ScannerTests.notUTF8.map { [0x22] + $0 + [0x22] }
        let counts = try Self.compare(texts.map { Array($0.utf8) } + sequences)
        #expect(counts.taken == ScannerTests.examples.count)
    }

    @Test(arguments: [1, 2, 3] as [UInt64]) func validDocumentsByChance(_ seed: UInt64) throws {
        var random = RandomDocument(chance: SeededGenerator(seed: seed), isOdd: true)
        let documents = (0..<1500).map { _ in Array(random.text().utf8) }
        let counts = try Self.compare(documents)
        #expect(counts.refused == 0)
    }

    @Test(arguments: [11, 12, 13, 14] as [UInt64]) func mutatedDocuments(_ seed: UInt64) throws {
        var mutator = Mutator(seed)
        let counts = try Self.compare((0..<3000).map { _ in mutator.next() })
        // a fuzzer that makes only rubbish, or none, proves nothing
        #expect(counts.taken > 150 && counts.refused > 1000, "\(counts)")
    }

    /// What we write, Python reads.
    @Test func whatIsWrittenIsRead() throws {
        let texts = (UInt32(0)..<0x900).compactMap(Unicode.Scalar.init).map { "x\($0)\\" } + ["", "\u{2028}", "😀"]
        let verdicts = try Self.verdicts(texts.map { JSONFragment.string($0).bytes })
        let expected = texts.map { text in "s" + text.utf8.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
        #expect(verdicts == expected)
    }
}

/// Documents that were valid, with one or two things done to them.
private struct Mutator {
    private var random: RandomDocument
    private static let tokens =
        [
            "\"", "\\", "\\u", "\\ud83d", "\\ude00", "{", "}", "[", "]", ",", ":", "0", "-", ".", "e", "E+", "true",
            "nul",
            "NaN", "Infinity", "\0", "\u{1F}", "\u{7F}", "\u{A0}", "\u{FEFF}", "//", "'", "1", " ", "\n", "\u{0C}",
        ].map { Array($0.utf8) } + ScannerTests.notUTF8

    init(_ seed: UInt64) { random = RandomDocument(chance: SeededGenerator(seed: seed), isOdd: true) }

    mutating func next() -> [UInt8] {
        var bytes = Array(random.text(depth: 3).utf8)
        for _ in 0..<Int.random(in: 1...2, using: &random.chance) where !bytes.isEmpty {
            let at = Int.random(in: 0..<bytes.count, using: &random.chance)
            let end = min(bytes.count, at + Int.random(in: 1...6, using: &random.chance))
            switch Int.random(in: 0..<7, using: &random.chance) {
            case 0: bytes[at] ^= 1 << UInt8.random(in: 0..<8, using: &random.chance)
            case 1: bytes[at] = UInt8.random(in: 0...255, using: &random.chance)
            case 2: bytes.removeSubrange(at..<end)
            case 3: bytes.insert(contentsOf: bytes[at..<end], at: at)
            case 4: bytes = Array(bytes[..<at])
            default:
                let token = Self.tokens.randomElement(using: &random.chance) ?? []
                bytes.replaceSubrange(at..<(Bool.random(using: &random.chance) ? at : at + 1), with: token)
            }
        }
        return bytes
    }
}
