/// Memory for the secrets of one message. Its owner wipes it.
package struct MessageKeys {
    /// A position in a chain: the key of its message, and the ``ChainKey`` of the next position.
    package struct Place {
        package static let size = 2 * Primitives.hashSize

        package let bytes: UnsafeMutableRawBufferPointer

        /// Calls `body` with a place on the stack and wipes it afterwards.
        package static func with<Result, Failure: Error>(
            _ body: (Place) throws(Failure) -> Result
        ) throws(Failure) -> Result {
            try withUnsafeTemporaryAllocation(byteCount: size, alignment: 16) { (memory) throws(Failure) in
                memory.initializeMemory(as: UInt8.self, repeating: 0)
                defer { SecretBytes.wipe(memory) }
                return try body(Place(bytes: memory))
            }
        }

        package var messageKey: UnsafeRawBufferPointer {
            UnsafeRawBufferPointer(rebasing: bytes[..<Primitives.hashSize])
        }
        package var next: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: bytes[Primitives.hashSize...]) }
    }

    package static let size = 2 * Place.size + Primitives.hashSize

    private static let info = Array("DoubleRatchet/2 message".utf8)

    /// In the chain of the Diffie-Hellman ratchet.
    let classical: Place
    /// In the chain of the ``SparsePostQuantumRatchet``.
    let postQuantum: Place
    private let both: UnsafeMutableRawBufferPointer

    package init(_ memory: UnsafeMutableRawBufferPointer) {
        classical = Place(bytes: UnsafeMutableRawBufferPointer(rebasing: memory[..<Place.size]))
        postQuantum = Place(bytes: UnsafeMutableRawBufferPointer(rebasing: memory[Place.size..<2 * Place.size]))
        both = UnsafeMutableRawBufferPointer(rebasing: memory[2 * Place.size..<Self.size])
    }

    /// `KDF_HYBRID` (Double Ratchet, section 6.2) of both keys: the result is secret if at least one of them is.
    func combine() -> UnsafeRawBufferPointer {
        Self.combine(classical.messageKey, postQuantum.messageKey, into: both)
        return UnsafeRawBufferPointer(both)
    }

    static func combine(
        _ classical: UnsafeRawBufferPointer, _ postQuantum: UnsafeRawBufferPointer,
        into key: UnsafeMutableRawBufferPointer
    ) {
        info.withUnsafeBytes { Primitives.hkdf(salt: postQuantum, secret: classical, info: $0, into: key) }
    }
}
