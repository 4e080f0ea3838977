/// Bytes as hexadecimal digits in lower case, in the JSON of transports.
package enum Hexadecimal {
    package static func text(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    /// Reads digits of either case; nil for an odd number of them, and for other characters.
    package static func bytes(_ text: String) -> [UInt8]? {
        let digits = text.utf8.map { Character(UnicodeScalar($0)).hexDigitValue }
        guard digits.count.isMultiple(of: 2), digits.allSatisfy({ $0 != nil }) else { return nil }
        let values = digits.compactMap(\.self)
        return stride(from: 0, to: values.count, by: 2).map { UInt8(values[$0] << 4 | values[$0 + 1]) }
    }
}
