/// The short codes that protect format and version: the value followed by its remainder.
enum BCHCode {
    /// The code of level M (two bits, both 0) and the mask, XORed with a pattern so that it is never all light.
    static func format(_ mask: Mask) -> Int {
        append(to: mask.number, generator: 0b101_0011_0111) ^ 0b101_0100_0001_0010
    }

    static func version(_ version: Version) -> Int {
        append(to: version.number, generator: 0b1_1111_0010_0101)
    }

    private static func append(to value: Int, generator: Int) -> Int {
        let degree = highestBit(generator)
        var remainder = value << degree
        while remainder >> degree != 0 {
            remainder ^= generator << (highestBit(remainder) - degree)
        }
        return value << degree | remainder
    }

    private static func highestBit(_ value: Int) -> Int {
        Int.bitWidth - 1 - value.leadingZeroBitCount
    }
}
