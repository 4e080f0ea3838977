// Wiping copies of keys.

import DoubleRatchet

extension [UInt8] {
    /// Overwrites the bytes, in a way that the optimiser may not remove, and empties the array; it keeps its capacity.
    /// For copies left by serialisation; the keys themselves are in wiped memory.
    package mutating func wipe() {
        withUnsafeMutableBytes { SecretBytes.wipe($0) }
        removeAll(keepingCapacity: true)
    }
}
