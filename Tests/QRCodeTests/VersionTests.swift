import Testing

@testable import QRCode

@Suite struct VersionTests {
    /// Codewords in all and bytes in byte mode at level M, as the standard lists them.
    static let listed = [
        (26, 14), (44, 26), (70, 42), (100, 62), (134, 84), (172, 106), (196, 122), (242, 152), (292, 180), (346, 213),
    ]

    @Test func whatFollowsIsWhatTheStandardLists() {
        #expect(Version.all.map(\.codewords) == Self.listed.map(\.0))
        #expect(Version.all.map(\.byteCapacity) == Self.listed.map(\.1))
        #expect(QRCode.capacity == 213)
    }

    @Test(arguments: Version.all) func thePatternsLeaveWhatIsCounted(_ version: Version) {
        let matrix = Matrix(version)
        let indices = 0..<matrix.size
        let free = indices.reduce(0) { sum, row in sum + indices.count { !matrix.isReserved(row, $0) } }
        #expect(free == version.freeModules)
    }

    @Test func theSmallestThatHoldsThemIsTaken() {
        var expected = 1
        for count in 0...QRCode.capacity {
            if count > Self.listed[expected - 1].1 { expected += 1 }
            #expect(Version.smallest(holding: count)?.number == expected)
        }
        #expect(QRCode([UInt8](repeating: 7, count: 65))?.size == 37)
        #expect(QRCode([UInt8](repeating: 7, count: QRCode.capacity))?.size == 57)
        #expect(QRCode([UInt8](repeating: 7, count: QRCode.capacity + 1)) == nil)
    }
}
