/// The Keccak permutation and the functions of FIPS 202 that ML-KEM needs.
///
/// swift-crypto has no public SHAKE, and libcrypto 3.0 cannot squeeze one in several calls.
///
/// A sponge: bytes are absorbed, then bytes are squeezed. Its 200 bytes of state may hold secrets and are wiped with
/// it. No branch or address depends on them.
struct Keccak: ~Copyable {
    private let lanes: UnsafeMutablePointer<UInt64>
    /// The number of bytes absorbed or squeezed between two permutations.
    private let rate: Int
    /// FIPS 202, sections 6.1 and 6.2: the function's suffix with the first bit of the padding.
    private let suffix: UInt8
    private var position = 0
    private var squeezing = false

    private init(rate: Int, suffix: UInt8) {
        lanes = .allocate(capacity: 25)
        lanes.initialize(repeating: 0, count: 25)
        self.rate = rate
        self.suffix = suffix
    }

    deinit {
        SecretBytes.wipe(UnsafeMutableRawBufferPointer(start: lanes, count: 200))
        lanes.deallocate()
    }

    static var sha3x256: Keccak { Keccak(rate: 136, suffix: 0x06) }
    static var sha3x512: Keccak { Keccak(rate: 72, suffix: 0x06) }
    static var shake128: Keccak { Keccak(rate: 168, suffix: 0x1F) }
    static var shake256: Keccak { Keccak(rate: 136, suffix: 0x1F) }

    mutating func absorb(_ bytes: UnsafeRawBufferPointer) {
        precondition(!squeezing)
        var offset = 0
        while offset < bytes.count {
            if position % 8 == 0 && bytes.count - offset >= 8 {
                lanes[position / 8] ^= UInt64(
                    littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
                (offset, position) = (offset + 8, position + 8)
            } else {
                lanes[position / 8] ^= UInt64(bytes[offset]) << UInt64(8 * (position % 8))
                (offset, position) = (offset + 1, position + 1)
            }
            if position == rate { permute() }
        }
    }

    mutating func absorb(_ byte: UInt8) {
        withUnsafeBytes(of: byte) { absorb($0) }
    }

    mutating func squeeze(into output: UnsafeMutableRawBufferPointer) {
        if !squeezing {
            squeezing = true
            lanes[position / 8] ^= UInt64(suffix) << UInt64(8 * (position % 8))
            lanes[rate / 8 - 1] ^= 1 << 63
            permute()
        }
        var offset = 0
        while offset < output.count {
            if position == rate { permute() }
            if position % 8 == 0 && output.count - offset >= 8 {
                output.storeBytes(of: lanes[position / 8].littleEndian, toByteOffset: offset, as: UInt64.self)
                (offset, position) = (offset + 8, position + 8)
            } else {
                output[offset] = UInt8(truncatingIfNeeded: lanes[position / 8] >> UInt64(8 * (position % 8)))
                (offset, position) = (offset + 1, position + 1)
            }
        }
    }

    // MARK: The permutation (FIPS 202, section 3)

    private static let roundConstants: [UInt64] = [
        0x0000_0000_0000_0001, 0x0000_0000_0000_8082, 0x8000_0000_0000_808A, 0x8000_0000_8000_8000,
        0x0000_0000_0000_808B, 0x0000_0000_8000_0001, 0x8000_0000_8000_8081, 0x8000_0000_0000_8009,
        0x0000_0000_0000_008A, 0x0000_0000_0000_0088, 0x0000_0000_8000_8009, 0x0000_0000_8000_000A,
        0x0000_0000_8000_808B, 0x8000_0000_0000_008B, 0x8000_0000_0000_8089, 0x8000_0000_0000_8003,
        0x8000_0000_0000_8002, 0x8000_0000_0000_0080, 0x0000_0000_0000_800A, 0x8000_0000_8000_000A,
        0x8000_0000_8000_8081, 0x8000_0000_0000_8080, 0x0000_0000_8000_0001, 0x8000_0000_8000_8008,
    ]

    @inline(__always) private static func rotate(_ value: UInt64, _ count: UInt64) -> UInt64 {
        value << count | value >> (64 - count)
    }

    /// All rounds over 25 local values; lane (x, y) is `a[x + 5y]`.
    private mutating func permute() {
        position = 0
        var (a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12) = (
            lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5], lanes[6], lanes[7], lanes[8], lanes[9],
            lanes[10], lanes[11], lanes[12]
        )
        var (a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24) = (
            lanes[13], lanes[14], lanes[15], lanes[16], lanes[17], lanes[18], lanes[19], lanes[20], lanes[21],
            lanes[22], lanes[23], lanes[24]
        )
        Self.roundConstants.withUnsafeBufferPointer { constants in
            for constant in constants {
                let c0 = a0 ^ a5 ^ a10 ^ a15 ^ a20
                let c1 = a1 ^ a6 ^ a11 ^ a16 ^ a21
                let c2 = a2 ^ a7 ^ a12 ^ a17 ^ a22
                let c3 = a3 ^ a8 ^ a13 ^ a18 ^ a23
                let c4 = a4 ^ a9 ^ a14 ^ a19 ^ a24
                let d0 = c4 ^ Self.rotate(c1, 1)
                let d1 = c0 ^ Self.rotate(c2, 1)
                let d2 = c1 ^ Self.rotate(c3, 1)
                let d3 = c2 ^ Self.rotate(c4, 1)
                let d4 = c3 ^ Self.rotate(c0, 1)
                let b0 = a0 ^ d0
                let b16 = Self.rotate(a5 ^ d0, 36)
                let b7 = Self.rotate(a10 ^ d0, 3)
                let b23 = Self.rotate(a15 ^ d0, 41)
                let b14 = Self.rotate(a20 ^ d0, 18)
                let b10 = Self.rotate(a1 ^ d1, 1)
                let b1 = Self.rotate(a6 ^ d1, 44)
                let b17 = Self.rotate(a11 ^ d1, 10)
                let b8 = Self.rotate(a16 ^ d1, 45)
                let b24 = Self.rotate(a21 ^ d1, 2)
                let b20 = Self.rotate(a2 ^ d2, 62)
                let b11 = Self.rotate(a7 ^ d2, 6)
                let b2 = Self.rotate(a12 ^ d2, 43)
                let b18 = Self.rotate(a17 ^ d2, 15)
                let b9 = Self.rotate(a22 ^ d2, 61)
                let b5 = Self.rotate(a3 ^ d3, 28)
                let b21 = Self.rotate(a8 ^ d3, 55)
                let b12 = Self.rotate(a13 ^ d3, 25)
                let b3 = Self.rotate(a18 ^ d3, 21)
                let b19 = Self.rotate(a23 ^ d3, 56)
                let b15 = Self.rotate(a4 ^ d4, 27)
                let b6 = Self.rotate(a9 ^ d4, 20)
                let b22 = Self.rotate(a14 ^ d4, 39)
                let b13 = Self.rotate(a19 ^ d4, 8)
                let b4 = Self.rotate(a24 ^ d4, 14)
                a0 = b0 ^ (~b1 & b2) ^ constant
                a1 = b1 ^ (~b2 & b3)
                a2 = b2 ^ (~b3 & b4)
                a3 = b3 ^ (~b4 & b0)
                a4 = b4 ^ (~b0 & b1)
                a5 = b5 ^ (~b6 & b7)
                a6 = b6 ^ (~b7 & b8)
                a7 = b7 ^ (~b8 & b9)
                a8 = b8 ^ (~b9 & b5)
                a9 = b9 ^ (~b5 & b6)
                a10 = b10 ^ (~b11 & b12)
                a11 = b11 ^ (~b12 & b13)
                a12 = b12 ^ (~b13 & b14)
                a13 = b13 ^ (~b14 & b10)
                a14 = b14 ^ (~b10 & b11)
                a15 = b15 ^ (~b16 & b17)
                a16 = b16 ^ (~b17 & b18)
                a17 = b17 ^ (~b18 & b19)
                a18 = b18 ^ (~b19 & b15)
                a19 = b19 ^ (~b15 & b16)
                a20 = b20 ^ (~b21 & b22)
                a21 = b21 ^ (~b22 & b23)
                a22 = b22 ^ (~b23 & b24)
                a23 = b23 ^ (~b24 & b20)
                a24 = b24 ^ (~b20 & b21)
            }
        }
        (lanes[0], lanes[1], lanes[2], lanes[3], lanes[4]) = (a0, a1, a2, a3, a4)
        (lanes[5], lanes[6], lanes[7], lanes[8], lanes[9]) = (a5, a6, a7, a8, a9)
        (lanes[10], lanes[11], lanes[12], lanes[13], lanes[14]) = (a10, a11, a12, a13, a14)
        (lanes[15], lanes[16], lanes[17], lanes[18], lanes[19]) = (a15, a16, a17, a18, a19)
        (lanes[20], lanes[21], lanes[22], lanes[23], lanes[24]) = (a20, a21, a22, a23, a24)
    }
}
