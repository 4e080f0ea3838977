import DoubleRatchet

/// SplitMix64 generator: the same seed gives the same numbers on every platform.
///
/// The numbers are predictable, so it is for tests and fuzz programs only. Algorithm: Steele, Lea and Flood, "Fast
/// Splittable Pseudorandom Number Generators", OOPSLA 2014.
///
/// `Tests/DoubleRatchetTests/Fuzz/compile` also compiles this file into the module of the fuzz programs.
package struct SeededGenerator: RandomNumberGenerator, RandomSource, Sendable {
    /// The seed of the whole sequence, for the output of a test that draws its seed.
    package let seed: UInt64
    private var state: UInt64

    package init(seed: UInt64) {
        self.seed = seed
        state = seed
    }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound - 1`. Its small bias does not matter to tests.
    package mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }

    package mutating func fill(_ bytes: UnsafeMutableRawBufferPointer) {
        for index in bytes.indices { bytes[index] = UInt8(truncatingIfNeeded: next()) }
    }

    package mutating func bytes(_ count: Int) -> [UInt8] {
        var output = [UInt8](repeating: 0, count: count)
        output.withUnsafeMutableBytes { fill($0) }
        return output
    }
}
