import TestKit
import Testing

/// The programmes of `Tests/fuzz codecs` without a fuzzer. Its finds come here.
@Suite struct CodecTests {
    @Test(arguments: 0..<UInt8(CodecProgramme.readerCount)) func bytesDrawnFromASeed(_ reader: UInt8) throws {
        var random = SeededGenerator(seed: 500 + UInt64(reader))
        // What lines are made of comes more often than chance would have it.
        let pieces = ["@", ":", " ", ";", "=", "\\s", "\\", "!", "005", "NICKLEN=9", "\u{1}DCC", ",", ".", "AAAA"]
        for _ in 0..<2000 {
            var input: [UInt8] = [reader]
            for _ in 0..<random.byte() % 20 {
                let isPiece = random.byte() % 2 == 0
                input += isPiece ? Array(pieces[random.byte() % pieces.count].utf8) : [UInt8(random.byte())]
            }
            do {
                try CodecProgramme.run(input)
            } catch {
                Issue.record("\(error) \(input)")
                return
            }
        }
    }
}

extension SeededGenerator {
    fileprivate mutating func byte() -> Int {
        var byte: UInt8 = 0
        withUnsafeMutableBytes(of: &byte) { fill($0) }
        return Int(byte)
    }
}
