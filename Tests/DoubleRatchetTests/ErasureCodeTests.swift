import TestKit
import Testing

@testable import DoubleRatchet

@Suite("The erasure code")
struct ErasureCodeTests {
    private func record(_ chunk: ErasureCode.Chunk) -> [UInt8] {
        [UInt8(chunk.index >> 8), UInt8(chunk.index & 0xFF)] + chunk.bytes.array
    }

    @Test("the field: inverses, distributivity, sixteen at a time") func field() {
        var random = SeededGenerator(seed: 910)
        #expect(GF65536.multiply(0x8000, 2) == 0x100B)
        for _ in 0..<500 {
            let (a, b, c) = (
                UInt16(random.below(65535) + 1), UInt16(random.below(65536)), UInt16(random.below(65536))
            )
            #expect(GF65536.multiply(a, GF65536.inverse(a)) == 1)
            #expect(GF65536.multiply(a, b) == GF65536.multiply(b, a))
            #expect(GF65536.multiply(a, b ^ c) == GF65536.multiply(a, b) ^ GF65536.multiply(a, c))
            var symbols = SIMD16<UInt16>(repeating: 0)
            (symbols[0], symbols[15]) = (a.bigEndian, b.bigEndian)
            let product = GF65536.doubled(bigEndian: symbols)
            #expect(product[0].bigEndian == GF65536.multiply(a, 2) && product[15].bigEndian == GF65536.multiply(b, 2))
            #expect(product[7] == 0)
        }
    }

    @Test("the first chunks are the data", arguments: [3, 5, 30, 36]) func systematic(count: Int) {
        var random = SeededGenerator(seed: 911)
        let data = random.bytes(32 * count)
        let chunks = (0..<UInt16(count)).flatMap { ErasureCode.chunk($0, of: data).bytes.array }
        #expect(chunks == data)
    }

    @Test("any different chunks of the right number are enough", arguments: [3, 5, 30, 36]) func anyChunks(count: Int) {
        var random = SeededGenerator(seed: 912)
        let data = random.bytes(32 * count)
        for round in 0..<8 {
            var indices: [UInt16] = []
            while indices.count < count {
                // From none of the data to most of it.
                let bound = round == 0 ? Int(ErasureCode.maximumIndex) : count + 2 * round
                let index = UInt16(random.below(bound))
                if !indices.contains(index) { indices.append(index) }
            }
            let records = indices.flatMap { record(ErasureCode.chunk($0, of: data)) }
            #expect(ErasureCode.decode(records) == data, "round \(round)")
        }
    }

    @Test("a parity chunk, computed by hand") func byHand() {
        // Two points p(0) = 1 and p(1) = 2: the line 1 + 3x has the value 1 + 3 * 2 = 7 at 2.
        let one = [UInt8](repeating: 0, count: 31) + [1]
        let two = [UInt8](repeating: 0, count: 31) + [2]
        #expect(ErasureCode.chunk(2, of: one + two).bytes.array == [UInt8](repeating: 0, count: 31) + [7])
    }
}
