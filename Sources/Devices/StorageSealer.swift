// Sealing at rest. Each row is bound to its kind and identity, so that rows cannot be exchanged.

import Crypto
package import DoubleRatchet

/// A sealed row could not be opened.
package struct SealedRowDamaged: Error, Equatable, Sendable {}

/// Seals rows under the storage key with AES-256-GCM-SIV (RFC 8452) and a random nonce.
///
/// The nonce, 12 bytes, precedes the ciphertext. The SIV mode is used because one key seals more rows than plain GCM
/// allows with random nonces. The library's cipher is used, not swift-crypto's, which would return an opened row in a
/// `Data` that nobody can wipe.
package struct StorageSealer: Sendable {
    private static let nonceLength = 12
    private static let tagLength = 16

    private let key: SecretBytes

    /// - Parameter key: 32 bytes.
    package init(key: [UInt8]) {
        precondition(key.count == 32, "a storage key has 32 bytes")
        self.key = key.withUnsafeBytes { SecretBytes(copying: $0) }
    }

    /// Derives 32 bytes for another purpose from the storage key: HKDF-SHA-256, RFC 5869.
    package func secret(for purpose: String) -> [UInt8] {
        let input = key.withUnsafeBytes { SymmetricKey(data: $0) }
        return HKDF<SHA256>.deriveKey(inputKeyMaterial: input, info: Array("pawl \(purpose)".utf8), outputByteCount: 32)
            .withUnsafeBytes { Array($0) }
    }

    /// Seals bytes for a place: the kind of the row and its identity.
    package func seal(_ bytes: [UInt8], label: String, random: inout some RandomSource) throws -> [UInt8] {
        var output = [UInt8](repeating: 0, count: Self.nonceLength)
        output.withUnsafeMutableBytes { random.fill($0) }
        let nonce = output
        output.reserveCapacity(Self.nonceLength + bytes.count + Self.tagLength)
        bytes.withUnsafeBytes {
            Primitives.seal($0, key: key, nonce: nonce, authenticating: Array(label.utf8), into: &output)
        }
        return output
    }

    /// Opens the result of ``seal(_:label:random:)`` for the same place. The caller wipes keys; there is no other copy.
    ///
    /// - Throws: ``SealedRowDamaged`` if the row was altered, moved, or sealed under another key.
    package func open(_ sealed: [UInt8], label: String) throws(SealedRowDamaged) -> [UInt8] {
        guard sealed.count >= Self.nonceLength + Self.tagLength else { throw SealedRowDamaged() }
        var output: [UInt8] = []
        do throws(RatchetError) {
            try sealed.span.withUnsafeBytes { (bytes) throws(RatchetError) in
                try Primitives.open(
                    UnsafeRawBufferPointer(rebasing: bytes[Self.nonceLength...]), key: key,
                    nonce: Array(bytes[..<Self.nonceLength]), authenticating: Array(label.utf8), into: &output)
            }
            return output
        } catch {
            throw SealedRowDamaged()
        }
    }
}
