/// The error correction of a block: its remainder, as a polynomial over GF(256), when divided by the generator
/// (x - 1)(x - 2)(x - 4)...
struct ReedSolomon {
    /// The generator's coefficients, highest power first, without its leading 1.
    private let generator: [UInt8]

    /// - Parameter correction: the number of error correction codewords.
    init(correction: Int) {
        var product: [UInt8] = [1]
        var root: UInt8 = 1
        for _ in 0..<correction {
            // Times (x - root); subtraction is addition here.
            let shifted = product + [0]
            let scaled = [0] + product.map { GaloisField.multiply($0, root) }
            product = zip(shifted, scaled).map { $0 ^ $1 }
            root = GaloisField.multiply(root, 2)
        }
        generator = Array(product.dropFirst())
    }

    func correction(for block: some Sequence<UInt8>) -> [UInt8] {
        var remainder = [UInt8](repeating: 0, count: generator.count)
        for byte in block {
            let factor = byte ^ (remainder.first ?? 0)
            remainder = remainder.dropFirst() + [0]
            for (index, coefficient) in generator.enumerated() {
                remainder[index] ^= GaloisField.multiply(coefficient, factor)
            }
        }
        return remainder
    }
}

/// GF(256) as defined for QR codes: polynomials over GF(2) modulo x⁸ + x⁴ + x³ + x² + 1. Addition is XOR.
enum GaloisField {
    static func multiply(_ left: UInt8, _ right: UInt8) -> UInt8 {
        var product: UInt8 = 0
        for bit in (0..<8).reversed() {
            let overflows = product & 0x80 != 0
            product = product << 1 ^ (overflows ? 0x1D : 0)
            if right >> bit & 1 == 1 { product ^= left }
        }
        return product
    }
}
