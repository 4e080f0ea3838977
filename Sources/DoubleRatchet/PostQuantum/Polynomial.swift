/// Arithmetic of ML-KEM (FIPS 203, sections 4.2 and 4.3) over polynomials of 256 coefficients modulo 3329.
///
/// Coefficients are signed and not always reduced; each function states its input. Products have a factor of 2^-16
/// (Montgomery), which ``inverseTransform(_:)`` removes. No branch or address depends on a coefficient.
typealias Polynomial = UnsafeMutableBufferPointer<Int16>

enum PolynomialArithmetic {
    package static let count = 256
    static let modulus: Int16 = 3329

    /// 17^bitrev(i) * 2^16 modulo 3329 for i in 0..<128 (FIPS 203, appendix A), between -1664 and 1664.
    private static let zetas: [Int16] = (0..<128).map { index in
        var (power, exponent) = (1, 0)
        for bit in 0..<7 where index >> bit & 1 == 1 { exponent |= 64 >> bit }
        for _ in 0..<exponent { power = power * 17 % 3329 }
        let scaled = power * 65536 % 3329
        return Int16(scaled > 1664 ? scaled - 3329 : scaled)
    }

    // MARK: Reduction

    /// `value * 2^-16`, between -3328 and 3328, for `value` up to 2^15 * 3329 in size.
    @inline(__always) private static func montgomery(_ value: Int32) -> Int16 {
        let factor = Int16(truncatingIfNeeded: value) &* -3327
        return Int16(truncatingIfNeeded: (value &- Int32(factor) &* 3329) >> 16)
    }

    @inline(__always) private static func product(_ left: Int16, _ right: Int16) -> Int16 {
        montgomery(Int32(left) &* Int32(right))
    }

    /// The representative between -1664 and 1664.
    @inline(__always) private static func centered(_ value: Int16) -> Int16 {
        let quotient = (Int32(value) &* 20159 &+ 1 << 25) >> 26
        return value &- Int16(truncatingIfNeeded: quotient) &* modulus
    }

    /// The representative between 0 and 3328.
    @inline(__always) private static func canonical(_ value: Int16) -> UInt32 {
        let reduced = centered(value)
        return UInt32(UInt16(bitPattern: reduced &+ (reduced >> 15 & modulus)))
    }

    // MARK: Transforms (algorithms 9 to 12)

    /// NTT in place; the result is reduced.
    static func transform(_ values: Polynomial) {
        zetas.withUnsafeBufferPointer { zetas in
            var (length, next) = (128, 1)
            while length >= 2 {
                for start in stride(from: 0, to: count, by: 2 * length) {
                    let zeta = zetas[next]
                    next += 1
                    for index in start..<start + length {
                        let term = product(zeta, values[index + length])
                        values[index + length] = values[index] &- term
                        values[index] = values[index] &+ term
                    }
                }
                length /= 2
            }
        }
        for index in 0..<count { values[index] = centered(values[index]) }
    }

    /// The inverse NTT in place, times 2^16.
    static func inverseTransform(_ values: Polynomial) {
        zetas.withUnsafeBufferPointer { zetas in
            var (length, next) = (2, 127)
            while length <= 128 {
                for start in stride(from: 0, to: count, by: 2 * length) {
                    let zeta = zetas[next]
                    next -= 1
                    for index in start..<start + length {
                        let upper = values[index + length]
                        let lower = values[index]
                        values[index] = centered(lower &+ upper)
                        values[index + length] = product(zeta, upper &- lower)
                    }
                }
                length *= 2
            }
        }
        // 2^32 / 128 modulo 3329.
        for index in 0..<count { values[index] = product(values[index], 1441) }
    }

    /// Adds the product of two transformed polynomials, times 2^-16, to `sum`; after three of these, reduce.
    static func accumulate(_ left: Polynomial, _ right: Polynomial, into sum: Polynomial) {
        zetas.withUnsafeBufferPointer { zetas in
            for pair in 0..<count / 2 {
                let zeta = pair % 2 == 0 ? zetas[64 + pair / 2] : -zetas[64 + pair / 2]
                let (low, high) = (2 * pair, 2 * pair + 1)
                let cross = product(product(left[high], right[high]), zeta)
                sum[low] = centered(sum[low] &+ cross &+ product(left[low], right[low]))
                sum[high] = centered(
                    sum[high] &+ product(left[low], right[high]) &+ product(left[high], right[low]))
            }
        }
    }

    static func add(_ other: Polynomial, to values: Polynomial) {
        for index in 0..<count { values[index] = centered(values[index] &+ other[index]) }
    }

    // MARK: Sampling (algorithms 7 and 8)

    /// `SampleNTT` of `seed || column || row`: public, in variable time.
    static func sampleUniform(_ seed: UnsafeRawBufferPointer, _ column: UInt8, _ row: UInt8, into values: Polynomial) {
        var sponge = Keccak.shake128
        sponge.absorb(seed)
        sponge.absorb(column)
        sponge.absorb(row)
        withUnsafeTemporaryAllocation(byteCount: 168, alignment: 8) { block in
            var filled = 0
            while true {
                sponge.squeeze(into: block)
                for offset in stride(from: 0, to: 168, by: 3) {
                    let first = Int16(block[offset]) | Int16(block[offset + 1] & 0x0F) << 8
                    let second = Int16(block[offset + 1] >> 4) | Int16(block[offset + 2]) << 4
                    for value in [first, second] where value < modulus {
                        values[filled] = value
                        filled += 1
                        if filled == count { return }
                    }
                }
            }
        }
    }

    /// `SamplePolyCBD` with eta 2 of SHAKE256(`seed || number`), 128 bytes.
    static func sampleNoise(_ seed: UnsafeRawBufferPointer, _ number: UInt8, into values: Polynomial) {
        var sponge = Keccak.shake256
        sponge.absorb(seed)
        sponge.absorb(number)
        withUnsafeTemporaryAllocation(byteCount: 128, alignment: 8) { bytes in
            defer { SecretBytes.wipe(bytes) }
            sponge.squeeze(into: bytes)
            for index in 0..<128 {
                let pairs = bytes[index] & 0x55 &+ bytes[index] >> 1 & 0x55
                values[2 * index] = Int16(pairs & 3) &- Int16(pairs >> 2 & 3)
                values[2 * index + 1] = Int16(pairs >> 4 & 3) &- Int16(pairs >> 6 & 3)
            }
        }
    }

    // MARK: Compression and encoding (section 4.2.1)

    /// `ByteDecode12` of 384 bytes. Returns whether all coefficients are below the modulus (section 7.2).
    static func decode(_ bytes: UnsafeRawBufferPointer, into values: Polynomial) -> Bool {
        var isCanonical = true
        for index in 0..<128 {
            let middle = Int16(bytes[3 * index + 1])
            values[2 * index] = Int16(bytes[3 * index]) | (middle & 0x0F) << 8
            values[2 * index + 1] = middle >> 4 | Int16(bytes[3 * index + 2]) << 4
            isCanonical = isCanonical && values[2 * index] < modulus && values[2 * index + 1] < modulus
        }
        return isCanonical
    }

    /// `Decompress1` of 32 bytes, added: a one bit is 1665, without a branch.
    static func addMessage(_ message: UnsafeRawBufferPointer, to values: Polynomial) {
        for index in 0..<count {
            let bit = Int16(message[index / 8] >> UInt8(index % 8) & 1)
            values[index] = centered(values[index] &+ (0 &- bit) & 1665)
        }
    }

    /// `ByteEncode10(Compress10)`: 320 bytes. Multiplies instead of dividing: a division's time may depend on the value.
    static func encode10(_ values: Polynomial, into output: UnsafeMutableRawBufferPointer) {
        for group in 0..<64 {
            var bits: UInt64 = 0
            for lane in 0..<4 {
                let scaled = UInt64(canonical(values[4 * group + lane])) << 10 + 1665
                bits |= ((scaled &* 1_290_167) >> 32 & 0x3FF) << UInt64(10 * lane)
            }
            for byte in 0..<5 { output[5 * group + byte] = UInt8(truncatingIfNeeded: bits >> UInt64(8 * byte)) }
        }
    }

    /// `ByteEncode4(Compress4)`: 128 bytes.
    static func encode4(_ values: Polynomial, into output: UnsafeMutableRawBufferPointer) {
        for index in 0..<128 {
            var byte: UInt32 = 0
            for half in 0..<2 {
                let scaled = canonical(values[2 * index + half]) << 4 + 1665
                byte |= ((scaled &* 80635) >> 28 & 0x0F) << UInt32(4 * half)
            }
            output[index] = UInt8(truncatingIfNeeded: byte)
        }
    }
}
