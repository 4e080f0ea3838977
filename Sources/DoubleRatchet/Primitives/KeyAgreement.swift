package import Crypto

/// X25519 (RFC 7748), by swift-crypto.
extension Primitives {
    /// The library's key object: making one computes the public key, so it is worth keeping.
    package typealias AgreementPrivateKey = Curve25519.KeyAgreement.PrivateKey

    package static func agreementKey(_ secret: SecretBytes) -> AgreementPrivateKey {
        secret.withUnsafeBytes { bytes in
            do {
                return try AgreementPrivateKey(rawRepresentation: bytes)
            } catch {
                preconditionFailure("an X25519 private key has 32 bytes")
            }
        }
    }

    package static func publicKey(of key: AgreementPrivateKey) -> Bytes32 {
        Bytes32(Array(key.publicKey.rawRepresentation))
    }

    /// The shared secret.
    ///
    /// - Throws: ``RatchetError/invalidKey`` if it is all zero.
    package static func agree(_ key: AgreementPrivateKey, with peer: AgreementPublicKey) throws(RatchetError)
        -> SecretBytes
    {
        let shared: SecretBytes
        do {
            let peerKey = try peer.bytes.withUnsafeBytes {
                try Curve25519.KeyAgreement.PublicKey(rawRepresentation: $0)
            }
            shared = try key.sharedSecretFromKeyAgreement(with: peerKey).withUnsafeBytes { SecretBytes(copying: $0) }
        } catch {
            throw .invalidKey
        }
        guard !shared.isZero else { throw .invalidKey }
        return shared
    }
}
