// The storage key, which seals private keys, ratchets and lines at rest.

import Crypto
import Foundation

/// Thirty-two secret bytes on the heap, wiped when the last reference is released. The description hides them.
package final class StorageKey: Sendable, CustomStringConvertible, CustomReflectable {
    /// In bytes.
    package static let length = 32
    private let secret: SecretBytes

    /// Copies the bytes; the caller wipes its own.
    ///
    /// - Parameter bytes: ``length`` of them; another number is a bug of the caller.
    package init(_ bytes: some Collection<UInt8>) {
        precondition(bytes.count == Self.length, "a storage key has 32 bytes")
        secret = SecretBytes(bytes)
    }

    /// A new key from the system's random source.
    package static func random() -> StorageKey {
        var generator = SystemRandomNumberGenerator()
        var bytes = (0..<length).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
        defer { SecretBytes.wipe(&bytes) }
        return StorageKey(bytes)
    }

    /// Passes a copy of the bytes, which is wiped afterwards. Do not let it escape: an array that leaves the closure is
    /// never wiped.
    package func withBytes<Result>(_ body: ([UInt8]) throws -> Result) rethrows -> Result {
        var bytes = secret.copy()
        defer { SecretBytes.wipe(&bytes) }
        return try body(bytes)
    }

    package func isEqual(to other: StorageKey) -> Bool {
        withBytes { own in other.withBytes { zip(own, $0).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0 } }
    }

    /// The key-check value of a store: HMAC-SHA-256 of a constant of its kind under the key. 32 bytes.
    ///
    /// A store keeps it to distinguish a wrong key from damage.
    package func check(_ text: [UInt8]) -> [UInt8] {
        withBytes { Array(HMAC<SHA256>.authenticationCode(for: text, using: SymmetricKey(data: $0))) }
    }

    package func matches(check: [UInt8], _ text: [UInt8]) -> Bool {
        withBytes {
            HMAC<SHA256>.isValidAuthenticationCode(check, authenticating: text, using: SymmetricKey(data: $0))
        }
    }

    package var description: String { "StorageKey" }
    package var customMirror: Mirror { Mirror(self, children: []) }
}

extension StorageKey: Equatable {
    package static func == (left: StorageKey, right: StorageKey) -> Bool { left.isEqual(to: right) }
}

/// Bytes of a key on the heap, which never move.
package final class SecretBytes: @unchecked Sendable {
    private let buffer: UnsafeMutableRawBufferPointer

    package init(_ bytes: some Collection<UInt8>) {
        buffer = .allocate(byteCount: bytes.count, alignment: 16)
        buffer.copyBytes(from: bytes)
    }

    deinit {
        Self.wipe(buffer)
        buffer.deallocate()
    }

    package func copy() -> [UInt8] { Array(buffer) }

    package static func wipe(_ bytes: inout [UInt8]) { bytes.withUnsafeMutableBytes(wipe) }

    /// Writes zeros that the optimizer does not remove.
    static func wipe(_ buffer: UnsafeMutableRawBufferPointer) {
        guard let address = buffer.baseAddress else { return }
        #if canImport(Darwin)
            memset_s(address, buffer.count, 0, buffer.count)
        #else
            explicit_bzero(address, buffer.count)
        #endif
    }
}
