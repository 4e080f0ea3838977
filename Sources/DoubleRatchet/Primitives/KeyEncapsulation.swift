import Crypto

/// ML-KEM-1024 (FIPS 203), by swift-crypto.
extension Primitives {
    /// A shared secret and the ciphertext that transports it.
    package struct Encapsulation {
        package let ciphertext: [UInt8]
        package let secret: SecretBytes
    }

    static func kemPublicKey(seed: SecretBytes) -> [UInt8] {
        do {
            return Array(try kemPrivateKey(seed).publicKey.rawRepresentation)
        } catch {
            preconditionFailure("an ML-KEM seed has 64 bytes")
        }
    }

    /// Takes its randomness from the operating system.
    ///
    /// - Throws: ``RatchetError/invalidKey`` for keys of another length or over the modulus.
    static func encapsulate(to publicKey: [UInt8]) throws(RatchetError) -> Encapsulation {
        do {
            let result = try MLKEM1024.PublicKey(rawRepresentation: publicKey).encapsulate()
            let secret = result.sharedSecret.withUnsafeBytes { SecretBytes(copying: $0) }
            return Encapsulation(ciphertext: Array(result.encapsulated), secret: secret)
        } catch {
            throw .invalidKey
        }
    }

    /// Decapsulates. A changed ciphertext yields another secret, not an error (implicit rejection).
    static func decapsulate(_ ciphertext: [UInt8], seed: SecretBytes) throws(RatchetError) -> SecretBytes {
        do {
            return try kemPrivateKey(seed).decapsulate(ciphertext).withUnsafeBytes { SecretBytes(copying: $0) }
        } catch {
            throw .malformed
        }
    }

    private static func kemPrivateKey(_ seed: SecretBytes) throws -> MLKEM1024.PrivateKey {
        try seed.withUnsafeBytes { try MLKEM1024.PrivateKey(seedRepresentation: $0, publicKey: nil) }
    }
}
