import DoubleRatchet

#if !ONE_MODULE
    import TestKit
#endif

/// Random source of a ``SeededGenerator``: the same seed gives the same conversation.
struct SeededRandomSource: RandomSource {
    private var generator: SeededGenerator

    init(_ seed: UInt64) { generator = SeededGenerator(seed: seed) }

    mutating func next() -> UInt64 { generator.next() }

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
