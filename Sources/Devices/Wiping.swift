// Wiping of copies of keys.

import DoubleRatchet

extension [UInt8] {
    /// Overwrites the bytes, in a way that the optimiser may not drop, and empties the array; its room stays. For copies that a
    /// serialisation leaves; the keys themselves live in wiped memory.
    package mutating func wipe() {
        withUnsafeMutableBytes { SecretBytes.wipe($0) }
        removeAll(keepingCapacity: true)
    }
}
