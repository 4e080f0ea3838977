import DoubleRatchet
import Testing

@Suite("Randomness of the operating system")
struct SystemRandomSourceTests {
    /// The kernel gives at most 256 bytes at once.
    @Test(arguments: [0, 1, 8, 255, 256, 257, 1000])
    func everyByteIsFilled(count: Int) {
        var source = SystemRandomSource()
        var seen = [UInt8](repeating: 0, count: count)
        for _ in 0..<32 {
            var bytes = [UInt8](repeating: 0, count: count)
            bytes.withUnsafeMutableBytes { source.fill($0) }
            for index in bytes.indices { seen[index] |= bytes[index] }
        }
        #expect(!seen.contains(0))
    }
}
