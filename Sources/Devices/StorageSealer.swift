// Sealing at rest. Each row is bound to its kind and identity, so that rows cannot be exchanged.

import Crypto
import CryptoExtras
package import DoubleRatchet

/// A sealed row could not be opened.
package struct SealedRowDamaged: Error, Equatable, Sendable {}

/// Seals rows under the storage key with AES-256-GCM-SIV (RFC 8452) and a random nonce.
///
/// The nonce, 12 bytes, precedes the ciphertext. The SIV mode is used because one key seals more rows than plain GCM
/// allows with random nonces.
package struct StorageSealer: Sendable {
    private let key: SymmetricKey

    /// - Parameter key: 32 bytes.
    package init(key: [UInt8]) { self.key = SymmetricKey(data: key) }

    /// Derives 32 bytes for another purpose from the storage key: HKDF-SHA-256, RFC 5869.
    package func secret(for purpose: String) -> [UInt8] {
        HKDF<SHA256>.deriveKey(inputKeyMaterial: key, info: Array("pawl \(purpose)".utf8), outputByteCount: 32)
            .withUnsafeBytes { Array($0) }
    }

    /// Seals bytes for a place: the kind of the row and its identity.
    package func seal(_ bytes: [UInt8], label: String, random: inout some RandomSource) throws -> [UInt8] {
        var nonce = [UInt8](repeating: 0, count: 12)
        nonce.withUnsafeMutableBytes { random.fill($0) }
        let box = try AES.GCM._SIV.seal(
            bytes, using: key, nonce: AES.GCM._SIV.Nonce(data: nonce), authenticating: Array(label.utf8))
        return Array(box.combined)
    }

    /// Opens the result of ``seal(_:label:random:)`` for the same place.
    ///
    /// - Throws: ``SealedRowDamaged`` if the row was altered, moved, or sealed under another key.
    package func open(_ sealed: [UInt8], label: String) throws(SealedRowDamaged) -> [UInt8] {
        do {
            let box = try AES.GCM._SIV.SealedBox(combined: sealed)
            return Array(try AES.GCM._SIV.open(box, using: key, authenticating: Array(label.utf8)))
        } catch {
            throw SealedRowDamaged()
        }
    }
}
