/// The exact value of a number: `1`, `1.0` and `10e-1` are equal. No floating point is used, because two readers could
/// round differently, and numbers equal for one would differ for the other.
struct JSONDecimal: Hashable, Sendable {
    private let isNegative: Bool
    /// Without leading and trailing zeros; empty for zero.
    private let digits: [UInt8]
    /// The power of ten of the last digit.
    private let exponent: Int

    /// Larger exponents are all treated as this one. No meaningful number comes near.
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

    /// The value as an integer; nil if it is not whole or does not fit.
    var integer: Int? {
        // An `Int` has at most nineteen digits.
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
