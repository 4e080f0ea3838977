import DoubleRatchet

/// The numbers of a seed, as the random source of machines.
package struct SeededSource: RandomSource, Sendable {
    private var state: UInt64

    package init(seed: UInt64) { state = seed }

    package mutating func fill(_ bytes: UnsafeMutableRawBufferPointer) {
        for index in bytes.indices {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            bytes[index] = UInt8(truncatingIfNeeded: state >> 33)
        }
    }
}
