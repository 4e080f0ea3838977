// Every primitive of the library, behind one file. All of them are swift-crypto's public interface.

import Crypto
import CryptoExtras

/// X25519, Ed25519, ML-KEM-1024, HMAC, HKDF and the AEAD.
enum Primitives {
    // MARK: X25519 (RFC 7748)

    /// The shared secret of two keys.
    ///
    /// - Throws: ``RatchetError/invalidKey`` for keys that are not canonical, and where the result is all zero, which
    ///   only keys of low order give (RFC 7748 section 6.1).
    static func agree(_ secret: SecretBytes, _ publicKey: [UInt8]) throws(RatchetError) -> SecretBytes {
        try demandCanonical(publicKey)
        let shared: SecretBytes
        do {
            let own = try secret.withUnsafeBytes { try Curve25519.KeyAgreement.PrivateKey(rawRepresentation: $0) }
            let other = try Curve25519.KeyAgreement.PublicKey(rawRepresentation: publicKey)
            shared = try own.sharedSecretFromKeyAgreement(with: other).withUnsafeBytes { SecretBytes($0) }
        } catch {
            throw .invalidKey
        }
        guard !shared.isZero else { throw .invalidKey }
        return shared
    }

    static func publicKey(of secret: SecretBytes) throws(RatchetError) -> [UInt8] {
        do {
            return try secret.withUnsafeBytes {
                Array(try Curve25519.KeyAgreement.PrivateKey(rawRepresentation: $0).publicKey.rawRepresentation)
            }
        } catch {
            throw .invalidKey
        }
    }

    /// - Throws: ``RatchetError/invalidKey`` where the key is not 32 bytes, has its highest bit set, or is not below
    ///   2^255 - 19. Two encodings of one point would let one message bear two headers.
    static func demandCanonical(_ key: [UInt8]) throws(RatchetError) {
        guard key.count == RatchetLimits.publicKeyLength, key[31] & 0x80 == 0 else { throw .invalidKey }
        if key[31] == 0x7F, key[1..<31].allSatisfy({ $0 == 0xFF }), key[0] >= 0xED { throw .invalidKey }
    }

    // MARK: Ed25519 (RFC 8032)

    static func sign(_ message: [UInt8], seed: SecretBytes) throws(RatchetError) -> [UInt8] {
        do {
            return try seed.withUnsafeBytes {
                Array(try Curve25519.Signing.PrivateKey(rawRepresentation: $0).signature(for: message))
            }
        } catch {
            throw .invalidKey
        }
    }

    static func signingKey(seed: SecretBytes) throws(RatchetError) -> [UInt8] {
        do {
            return try seed.withUnsafeBytes {
                Array(try Curve25519.Signing.PrivateKey(rawRepresentation: $0).publicKey.rawRepresentation)
            }
        } catch {
            throw .invalidKey
        }
    }

    static func verify(_ signature: [UInt8], _ message: [UInt8], key: [UInt8]) -> Bool {
        guard let key = try? Curve25519.Signing.PublicKey(rawRepresentation: key) else { return false }
        return key.isValidSignature(signature, for: message)
    }

    // MARK: ML-KEM-1024 (FIPS 203)

    /// The encapsulation key of a 64-byte seed.
    static func kemPublicKey(seed: SecretBytes) throws(RatchetError) -> [UInt8] {
        do {
            return Array(try kemKey(seed).publicKey.rawRepresentation)
        } catch {
            throw .invalidKey
        }
    }

    /// Encapsulates to a key. The randomness is the library's own: no public interface takes it as an argument.
    static func encapsulate(_ key: [UInt8]) throws(RatchetError) -> (secret: SecretBytes, ciphertext: [UInt8]) {
        do {
            let result = try MLKEM1024.PublicKey(rawRepresentation: key).encapsulate()
            return (result.sharedSecret.withUnsafeBytes { SecretBytes($0) }, Array(result.encapsulated))
        } catch {
            throw .invalidKey
        }
    }

    static func decapsulate(_ ciphertext: [UInt8], seed: SecretBytes) throws(RatchetError) -> SecretBytes {
        do {
            return try kemKey(seed).decapsulate(ciphertext).withUnsafeBytes { SecretBytes($0) }
        } catch {
            throw .malformed
        }
    }

    private static func kemKey(_ seed: SecretBytes) throws -> MLKEM1024.PrivateKey {
        var copy = seed.withUnsafeBytes { Array($0) }
        defer { copy.wipe() }
        return try MLKEM1024.PrivateKey(seedRepresentation: copy, publicKey: nil)
    }

    // MARK: Hashes

    static func sha256(_ bytes: [UInt8]) -> [UInt8] { Array(SHA256.hash(data: bytes)) }

    /// The first 32 bytes of SHA-512, as RFC 8032 section 5.1.5 makes a scalar of a seed.
    static func scalar(ofSeed seed: SecretBytes) -> SecretBytes {
        let digest = seed.withUnsafeBytes { SHA512.hash(data: $0) }
        return digest.withUnsafeBytes { bytes in
            SecretBytes(count: 32) { scalar in
                scalar.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[0..<32]))
                scalar[0] &= 248
                scalar[31] &= 127
                scalar[31] |= 64
            }
        }
    }

    static func hmac(_ key: SecretBytes, _ message: [UInt8]) -> SecretBytes {
        let key = key.withUnsafeBytes { SymmetricKey(data: $0) }
        return HMAC<SHA256>.authenticationCode(for: message, using: key).withUnsafeBytes { SecretBytes($0) }
    }

    /// HKDF-SHA256 (RFC 5869).
    static func hkdf(_ input: SecretBytes, salt: SecretBytes?, info: [UInt8], count: Int) -> SecretBytes {
        let key = input.withUnsafeBytes { SymmetricKey(data: $0) }
        let derived: SymmetricKey
        if let salt {
            derived = salt.withUnsafeBytes {
                HKDF<SHA256>.deriveKey(inputKeyMaterial: key, salt: Array($0), info: info, outputByteCount: count)
            }
        } else {
            derived = HKDF<SHA256>.deriveKey(inputKeyMaterial: key, info: info, outputByteCount: count)
        }
        return derived.withUnsafeBytes { SecretBytes($0) }
    }

    // MARK: AES-256-GCM-SIV (RFC 8452)

    /// Seals and appends ciphertext and tag. The SIV mode because a copied state may use a key twice: then it shows
    /// whether two texts are equal, and nothing else.
    static func seal(
        _ plaintext: UnsafeRawBufferPointer, key: SecretBytes, nonce: [UInt8], authenticating data: [UInt8],
        into output: inout [UInt8]
    ) throws(RatchetError) {
        do {
            let symmetric = key.withUnsafeBytes { SymmetricKey(data: $0) }
            let box = try AES.GCM._SIV.seal(
                plaintext, using: symmetric, nonce: AES.GCM._SIV.Nonce(data: nonce), authenticating: data)
            output.append(contentsOf: box.ciphertext)
            output.append(contentsOf: box.tag)
        } catch {
            throw .malformed
        }
    }

    /// Opens ciphertext and tag, or refuses.
    static func open(
        _ sealed: ArraySlice<UInt8>, key: SecretBytes, nonce: [UInt8], authenticating data: [UInt8]
    ) throws(RatchetError) -> [UInt8] {
        guard sealed.count >= RatchetLimits.tagLength else { throw .malformed }
        do {
            let symmetric = key.withUnsafeBytes { SymmetricKey(data: $0) }
            let box = try AES.GCM._SIV.SealedBox(
                nonce: AES.GCM._SIV.Nonce(data: nonce), ciphertext: sealed.dropLast(RatchetLimits.tagLength),
                tag: sealed.suffix(RatchetLimits.tagLength))
            return Array(try AES.GCM._SIV.open(box, using: symmetric, authenticating: data))
        } catch {
            throw .authenticationFailed
        }
    }
}
