import Crypto
import CryptoExtras

extension Primitives {
    /// AES-256 of one block of 16 bytes (FIPS 197), in its place.
    static func encryptBlock(_ block: UnsafeMutableBufferPointer<UInt8>, key: SecretBytes) {
        var block = block
        do {
            try AES.permute(&block, key: key.withUnsafeBytes { SymmetricKey(data: $0) })
        } catch {
            preconditionFailure("AES-256 takes 16 bytes under a key of 32")
        }
    }
}
