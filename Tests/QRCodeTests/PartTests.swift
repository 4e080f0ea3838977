import Testing

@testable import QRCode

/// The parts, against the examples that the standard gives and the properties that they must have.
@Suite struct PartTests {
    /// ISO/IEC 18004, annex I: the digits 01234567 at 1-M.
    @Test func theStandardsExampleHasItsCorrection() {
        let data: [UInt8] = [
            0x10, 0x20, 0x0C, 0x56, 0x61, 0x80, 0xEC, 0x11, 0xEC, 0x11, 0xEC, 0x11, 0xEC, 0x11, 0xEC, 0x11,
        ]
        let correction: [UInt8] = [0xA5, 0x24, 0xD4, 0xC1, 0xED, 0x36, 0xC7, 0x87, 0x2C, 0x55]
        #expect(ReedSolomon(correction: 10).correction(for: data) == correction)
    }

    /// A block with its correction is a multiple of the generator: it has the generator's roots.
    @Test(arguments: [10, 16, 18, 22, 24, 26]) func correctedBlocksHaveTheRoots(_ count: Int) {
        let data = DecodingTests.randomBytes(44)
        let block = data + ReedSolomon(correction: count).correction(for: data)
        var root: UInt8 = 1
        for _ in 0..<count {
            #expect(block.reduce(0) { GaloisField.multiply($0, root) ^ $1 } == 0)
            root = GaloisField.multiply(root, 2)
        }
        // A multiple may have more roots by chance. The generator itself, which is the block of the data 1, has no more.
        let generator = [1] + ReedSolomon(correction: count).correction(for: [1])
        #expect(generator.reduce(0) { GaloisField.multiply($0, root) ^ $1 } != 0)
    }

    @Test func theFieldIsAField() {
        for value in UInt8.min...UInt8.max {
            #expect(GaloisField.multiply(value, 1) == value)
            #expect(GaloisField.multiply(value, 0) == 0)
            let products = Set((UInt8.min...UInt8.max).map { GaloisField.multiply(value, $0) })
            #expect(products.count == (value == 0 ? 1 : 256))
        }
        // 2 generates all of it
        let powers = (0..<255).reduce(into: [UInt8(1)]) { list, _ in
            list.append(GaloisField.multiply(list.last ?? 0, 2))
        }
        #expect(Set(powers).count == 255)
        #expect(powers.last == 1)
    }

    @Test func codewordsAreFilledAndCutAsInTheStandard() {
        let short = Codewords([0xAB], Version.all[0])
        #expect(short.data.starts(with: [0x40, 0x1A, 0xB0, 0xEC, 0x11, 0xEC]))
        #expect(short.data.count == 16)
        // 16 bits of count from version 10 on; no filling where the bytes take all
        let long = Codewords([UInt8](repeating: 0xFF, count: 213), Version.all[9])
        #expect(long.data.starts(with: [0x40, 0x0D, 0x5F]))
        #expect(long.data.last == 0xF0)
        #expect(long.blocks.map(\.count) == [43, 43, 43, 43, 44])
        #expect(Codewords([], Version.all[7]).blocks.map(\.count) == [38, 38, 39, 39])
        #expect(long.interleaved.count == 346)
    }

    /// The standard's examples: level M with mask 5, and version 7.
    @Test func formatAndVersionAreProtected() {
        #expect(BCHCode.format(Mask(number: 5)) == 0b100_0000_1100_1110)
        #expect(BCHCode.version(Version.all[6]) == 0b00_0111_1100_1001_0100)
    }

    @Test(arguments: Mask.all) func masksLeaveFunctionPatternsAloneAndUndoThemselves(_ mask: Mask) {
        let version = Version.all[6]
        let bare = Matrix(version)
        var masked = bare
        masked.apply(mask)
        var changed = 0
        for row in 0..<bare.size {
            for column in 0..<bare.size where bare[row, column] != masked[row, column] {
                changed += 1
                #expect(!bare.isReserved(row, column))
            }
        }
        // each inverts between a third and a half
        #expect((version.freeModules / 4...version.freeModules * 2 / 3).contains(changed))
        masked.apply(mask)
        for row in 0..<bare.size { for column in 0..<bare.size { #expect(bare[row, column] == masked[row, column]) } }
    }

    @Test func theMaskOfTheLeastPenaltyIsTaken() throws {
        for count in [5, 65, 213] {
            let bytes = DecodingTests.randomBytes(count)
            let version = try #require(Version.smallest(holding: count))
            let codewords = Codewords(bytes, version).interleaved
            let penalties = Mask.all.map { QRCode(codewords, version, $0).penalty }
            let code = try #require(QRCode(bytes))
            #expect(penalties[code.mask.number] == penalties.min())
            #expect(code.penalty == penalties.min())
        }
    }

    @Test func penaltiesAreCounted() {
        func line(_ text: String) -> [Bool] { text.map { $0 == "#" } }
        #expect(Penalty.runs(line("####.####")) == 0)
        #expect(Penalty.runs(line("#####......#")) == 3 + 4)
        #expect(Penalty.finders(line("#...#.###.#...#")) == 0)
        #expect(Penalty.finders(line("#....#.###.#...#")) == 40)
        #expect(Penalty.finders(line("#...#.###.#....#")) == 40)
        // the quiet zone is light
        #expect(Penalty.finders(line("#.###.#.#")) == 40)
        #expect(Penalty.finders(line("##.#.###.#")) == 40)
        #expect(Penalty.squares([line("###"), line("###"), line("###")]) == 4 * 3)
        #expect(Penalty.squares([line("#.#"), line(".#."), line("#.#")]) == 0)
        let half = [line("#.#.#.#.#."), line("#.#.#.#.#.")]
        #expect(Penalty.imbalance(half) == 0)
        #expect(Penalty.imbalance([line("##########"), line("..........")]) == 0)
        #expect(Penalty.imbalance([line("##########"), line("#.........")]) == 10)
        #expect(Penalty.imbalance([line("##########"), line("##########")]) == 100)
    }

    @Test func outsideIsLight() throws {
        let code = try #require(QRCode([1, 2, 3]))
        #expect(code.isDark(row: 0, column: 0))
        #expect(!code.isDark(row: -1, column: 0))
        #expect(!code.isDark(row: 0, column: code.size))
        // of no bytes there is a code too
        #expect(QRCode([])?.size == 21)
    }
}
