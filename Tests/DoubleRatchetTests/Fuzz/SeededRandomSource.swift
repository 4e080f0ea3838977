import DoubleRatchet

/// SplitMix64: the same seed gives the same conversation.
struct SeededRandomSource: RandomSource {
    var state: UInt64

    init(_ seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
        return mixed ^ mixed >> 31
    }

    mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }

    mutating func fill(_ bytes: UnsafeMutableRawBufferPointer) {
        for index in bytes.indices { bytes[index] = UInt8(truncatingIfNeeded: next()) }
    }

    mutating func bytes(_ count: Int) -> [UInt8] {
        var output = [UInt8](repeating: 0, count: count)
        output.withUnsafeMutableBytes { fill($0) }
        return output
    }
}
