/// Integers modulo p = 2^255 - 19, for public keys only: the arithmetic is not constant-time in every respect.
///
/// Its one purpose is to convert an Ed25519 identity to its X25519 key (RFC 7748, section 4.1) and back, because the
/// cryptographic library does not export these maps. Five limbs of 51 bits, least significant first.
package struct FieldElement {
    private var limbs: (UInt64, UInt64, UInt64, UInt64, UInt64)
    private static let mask: UInt64 = (1 << 51) - 1

    private init(_ l0: UInt64, _ l1: UInt64, _ l2: UInt64, _ l3: UInt64, _ l4: UInt64) {
        limbs = (l0, l1, l2, l3, l4)
    }

    package init(_ small: UInt64) {
        self.init(small & Self.mask, small >> 51, 0, 0, 0)
    }

    /// The low 255 bits of 32 little-endian bytes; the top bit is ignored.
    package init(littleEndian bytes: Bytes32) {
        self = bytes.withUnsafeBytes { bytes in
            func word(_ index: Int) -> UInt64 {
                UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: index * 8, as: UInt64.self))
            }
            return FieldElement(
                word(0) & Self.mask,
                (word(0) >> 51 | word(1) << 13) & Self.mask,
                (word(1) >> 38 | word(2) << 26) & Self.mask,
                (word(2) >> 25 | word(3) << 39) & Self.mask,
                word(3) >> 12 & Self.mask)
        }
    }

    /// The canonical 32 little-endian bytes.
    package var littleEndian: Bytes32 {
        let (a, b, c, d, e) = carried().carried().limbs
        // One more than the quotient's carry decides whether p has to be subtracted once.
        var quotient = (a + 19) >> 51
        quotient = (b + quotient) >> 51
        quotient = (c + quotient) >> 51
        quotient = (d + quotient) >> 51
        quotient = (e + quotient) >> 51
        let l0 = a + 19 * quotient
        let l1 = b + l0 >> 51
        let l2 = c + l1 >> 51
        let l3 = d + l2 >> 51
        let l4 = e + l3 >> 51
        let (m0, m1, m2, m3, m4) = (l0 & Self.mask, l1 & Self.mask, l2 & Self.mask, l3 & Self.mask, l4 & Self.mask)
        let words = (
            (m0 | m1 << 51).littleEndian, (m1 >> 13 | m2 << 38).littleEndian,
            (m2 >> 26 | m3 << 25).littleEndian, (m3 >> 39 | m4 << 12).littleEndian
        )
        return withUnsafeBytes(of: words) { Bytes32($0) }
    }

    var isZero: Bool { littleEndian == FieldElement(0).littleEndian }

    private func carried() -> FieldElement {
        let (a, b, c, d, e) = limbs
        return FieldElement(
            a & Self.mask + 19 * (e >> 51), b & Self.mask + a >> 51, c & Self.mask + b >> 51, d & Self.mask + c >> 51,
            e & Self.mask + d >> 51)
    }

    package static func + (x: FieldElement, y: FieldElement) -> FieldElement {
        let (a, b) = (x.limbs, y.limbs)
        return FieldElement(a.0 + b.0, a.1 + b.1, a.2 + b.2, a.3 + b.3, a.4 + b.4).carried()
    }

    package static func - (x: FieldElement, y: FieldElement) -> FieldElement {
        // Adds 4p first, so that no limb goes below zero.
        let (a, b, low, high) = (x.limbs, y.limbs, UInt64(4) * (mask - 18), UInt64(4) * mask)
        return FieldElement(
            a.0 + low - b.0, a.1 + high - b.1, a.2 + high - b.2, a.3 + high - b.3, a.4 + high - b.4
        ).carried()
    }

    package static func * (x: FieldElement, y: FieldElement) -> FieldElement {
        let (a, b) = (x.limbs, y.limbs)
        func product(_ left: UInt64, _ right: UInt64) -> UInt128 { UInt128(left) * UInt128(right) }
        let (b1, b2, b3, b4) = (19 * b.1, 19 * b.2, 19 * b.3, 19 * b.4)
        var r0 = product(a.0, b.0) + product(a.1, b4)
        r0 += product(a.2, b3) + product(a.3, b2) + product(a.4, b1)
        var r1 = product(a.0, b.1) + product(a.1, b.0) + r0 >> 51
        r1 += product(a.2, b4) + product(a.3, b3) + product(a.4, b2)
        var r2 = product(a.0, b.2) + product(a.1, b.1) + r1 >> 51
        r2 += product(a.2, b.0) + product(a.3, b4) + product(a.4, b3)
        var r3 = product(a.0, b.3) + product(a.1, b.2) + r2 >> 51
        r3 += product(a.2, b.1) + product(a.3, b.0) + product(a.4, b4)
        var r4 = product(a.0, b.4) + product(a.1, b.3) + r3 >> 51
        r4 += product(a.2, b.2) + product(a.3, b.1) + product(a.4, b.0)
        func limb(_ value: UInt128) -> UInt64 { UInt64(truncatingIfNeeded: value) & mask }
        return FieldElement(
            limb(r0) + 19 * UInt64(truncatingIfNeeded: r4 >> 51), limb(r1), limb(r2), limb(r3), limb(r4)
        ).carried()
    }

    /// `self` to the power of p - 2: the inverse, or zero for zero.
    package var inverse: FieldElement {
        // p - 2 = 32 (2^250 - 1) + 11.
        let (top, eleventh) = topPower
        return top.squared(5) * eleventh
    }

    /// Euler's criterion, `self` to the power of (p - 1) / 2. Zero counts as a square.
    var isSquare: Bool {
        // (p - 1) / 2 = 16 (2^250 - 1) + 6.
        let square = self * self
        let symbol = topPower.top.squared(4) * (square * square * square)
        return symbol.isZero || (symbol - FieldElement(1)).isZero
    }

    /// To the powers of 2^250 - 1 and 11. With x(n) for the power of 2^n - 1: x(m + n) = x(m)^(2^n) * x(n).
    private var topPower: (top: FieldElement, eleventh: FieldElement) {
        let square = self * self
        let ninth = square.squared(2) * self
        let eleventh = ninth * square
        let x5 = eleventh * eleventh * ninth
        let x10 = x5.squared(5) * x5
        let x20 = x10.squared(10) * x10
        let x40 = x20.squared(20) * x20
        let x50 = x40.squared(10) * x10
        let x100 = x50.squared(50) * x50
        let x200 = x100.squared(100) * x100
        return (x200.squared(50) * x50, eleventh)
    }

    /// Squared so many times.
    private func squared(_ times: Int) -> FieldElement {
        var result = self
        for _ in 0..<times { result = result * result }
        return result
    }
}
