import Crypto

/// ML-KEM-768 (FIPS 203): the part in swift-crypto's public interface; ``IncrementalKEM`` has the rest.
extension Primitives {
    /// `ML-KEM.KeyGen_internal(d, z)` for `seed = d || z` (algorithm 16): the encapsulation key, 1184 bytes.
    static func kem768PublicKey(seed: SecretBytes) -> [UInt8] {
        do {
            return Array(try kem768PrivateKey(seed).publicKey.rawRepresentation)
        } catch {
            preconditionFailure("an ML-KEM seed has 64 bytes")
        }
    }

    /// Decapsulates. A changed ciphertext yields another secret, not an error (implicit rejection, algorithm 18).
    static func kem768Decapsulate(_ ciphertext: [UInt8], seed: SecretBytes) -> SecretBytes {
        do {
            return try kem768PrivateKey(seed).decapsulate(ciphertext).withUnsafeBytes { SecretBytes(copying: $0) }
        } catch {
            preconditionFailure("an ML-KEM-768 ciphertext has 1088 bytes")
        }
    }

    private static func kem768PrivateKey(_ seed: SecretBytes) throws -> MLKEM768.PrivateKey {
        try seed.withUnsafeBytes { try MLKEM768.PrivateKey(seedRepresentation: $0, publicKey: nil) }
    }
}
