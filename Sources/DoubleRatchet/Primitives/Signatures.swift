package import Crypto

/// Ed25519 (RFC 8032), signed by swift-crypto.
///
/// Verification (`isGenuine`) rejects more than the RFC requires: keys and R of low order, and all values not in
/// canonical form. Each variant of the library has its own.
extension Primitives {
    /// The library's key object: making one computes the public key, so it is worth keeping.
    package typealias SigningPrivateKey = Curve25519.Signing.PrivateKey

    package static func signingKey(seed: SecretBytes) -> SigningPrivateKey {
        seed.withUnsafeBytes { bytes in
            do {
                return try SigningPrivateKey(rawRepresentation: bytes)
            } catch {
                preconditionFailure("an Ed25519 seed has 32 bytes")
            }
        }
    }

    package static func publicKey(of key: SigningPrivateKey) -> Bytes32 {
        Bytes32(Array(key.publicKey.rawRepresentation))
    }

    /// Appends the signature, 64 bytes, to `output`.
    package static func sign(_ message: UnsafeRawBufferPointer, with key: SigningPrivateKey, into output: inout [UInt8])
    {
        do {
            output.append(contentsOf: try key.signature(for: message))
        } catch {
            preconditionFailure("Ed25519 signing cannot fail")
        }
    }

    package static func sign(_ message: [UInt8], with key: SigningPrivateKey) -> [UInt8] {
        var output: [UInt8] = []
        message.withUnsafeBytes { sign($0, with: key, into: &output) }
        return output
    }

    package static func verify(
        _ signature: UnsafeRawBufferPointer, of message: UnsafeRawBufferPointer, by key: Bytes32
    ) -> Bool {
        signature.count == KeySize.signature && isGenuine(signature, of: message, by: key)
    }

    package static func verify(_ signature: [UInt8], of message: [UInt8], by key: Bytes32) -> Bool {
        signature.withUnsafeBytes { signature in
            message.withUnsafeBytes { verify(signature, of: $0, by: key) }
        }
    }
}
