/// The exact value of a number, however it is written: `1`, `1.0`, `10e-1` are the same. No floating point: what two
/// readers round differently must not be equal here and different there.
struct JSONDecimal: Hashable, Sendable {
    private let isNegative: Bool
    /// Without zeros at either end; empty for zero.
    private let digits: [UInt8]
    /// Of the last digit, as a power of ten.
    private let exponent: Int

    /// Exponents beyond this are all the same to us. No number that means something comes near.
    private static let largestExponent = 1 << 32

    /// - Parameter text: a number that is valid by RFC 8259 section 6.
    init(_ text: some Sequence<UInt8>) {
        var (digits, exponent, written): ([UInt8], Int, Int) = ([], 0, 0)
        var (isNegative, isFraction, isExponent, isSmall) = (false, false, false, false)
        for byte in text {
            switch byte {
            case UInt8(ascii: "-"): if isExponent { isSmall = true } else { isNegative = true }
            case UInt8(ascii: "."): isFraction = true
            case UInt8(ascii: "e"), UInt8(ascii: "E"): isExponent = true
            case UInt8(ascii: "+"): break
            default:
                let digit = byte &- UInt8(ascii: "0")
                if isExponent {
                    written = min(written * 10 + Int(digit), Self.largestExponent)
                } else {
                    if isFraction { exponent -= 1 }
                    if digit != 0 || !digits.isEmpty { digits.append(digit) }
                }
            }
        }
        exponent += isSmall ? -written : written
        while digits.last == 0 {
            digits.removeLast()
            exponent += 1
        }
        self.isNegative = isNegative && !digits.isEmpty
        self.digits = digits
        self.exponent = digits.isEmpty ? 0 : exponent
    }

    /// The value where it is whole and fits.
    var integer: Int? {
        // nineteen digits are the most that fit
        guard exponent >= 0, digits.count + exponent <= 19 else { return nil }
        var value = 0
        for digit in digits + Array(repeating: 0, count: exponent) {
            let (product, overflow) = value.multipliedReportingOverflow(by: 10)
            let (sum, carry) =
                isNegative
                ? product.subtractingReportingOverflow(Int(digit)) : product.addingReportingOverflow(Int(digit))
            guard !overflow, !carry else { return nil }
            value = sum
        }
        return value
    }
}
