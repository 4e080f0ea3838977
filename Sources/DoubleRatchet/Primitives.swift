import Crypto
import CryptoExtras

/// Every cryptographic primitive of this library, and the only file that knows the cryptographic library.
///
/// What that library's public interface does not allow, honestly: ML-KEM encapsulation takes its 32 random bytes from the
/// operating system and not from a ``RandomSource``; expanded ML-KEM private keys and opened plaintexts pass through
/// heap memory that it frees without wiping. X25519 accepts low-order points there, so both the keys and every result are
/// checked here. HMAC is built over its SHA-256 because its own leaves padded copies of the key in freed arrays.
enum Primitives {
    // MARK: SHA-2, HMAC (RFC 2104) and HKDF (RFC 5869)

    static func sha256(_ message: UnsafeRawBufferPointer) -> Bytes32 {
        var hash = SHA256()
        hash.update(bufferPointer: message)
        return hash.finalize().withUnsafeBytes { Bytes32($0) }
    }

    /// The first half of SHA-512: what RFC 8032 makes the secret scalar from.
    static func sha512FirstHalf(_ secret: SecretBytes) -> SecretBytes {
        var hash = SHA512()
        secret.withUnsafeBytes { hash.update(bufferPointer: $0) }
        return hash.finalize().withUnsafeBytes { SecretBytes(copying: UnsafeRawBufferPointer(rebasing: $0[..<32])) }
    }

    /// SHA-512 of two public parts, one after the other; 64 bytes.
    static func sha512(_ first: [UInt8], _ second: [UInt8]) -> [UInt8] {
        var hash = SHA512()
        hash.update(data: first)
        hash.update(data: second)
        return Array(hash.finalize())
    }

    /// HMAC-SHA256 of three parts, one after the other. The key has at most 64 bytes, the hash's block.
    static func hmac(
        key: SecretBytes, _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer = empty,
        _ third: UnsafeRawBufferPointer = empty
    ) -> SecretBytes {
        precondition(key.count <= 64)
        return withUnsafeTemporaryAllocation(byteCount: 64, alignment: 16) { pad in
            defer { SecretBytes.wipe(pad) }
            pad.initializeMemory(as: UInt8.self, repeating: 0x36)
            key.withUnsafeBytes { for index in $0.indices { pad[index] ^= $0[index] } }
            var inner = SHA256()
            inner.update(bufferPointer: UnsafeRawBufferPointer(pad))
            inner.update(bufferPointer: first)
            if !second.isEmpty { inner.update(bufferPointer: second) }
            if !third.isEmpty { inner.update(bufferPointer: third) }
            for index in pad.indices { pad[index] ^= 0x36 ^ 0x5C }
            var outer = SHA256()
            outer.update(bufferPointer: UnsafeRawBufferPointer(pad))
            inner.finalize().withUnsafeBytes { outer.update(bufferPointer: $0) }
            return outer.finalize().withUnsafeBytes { SecretBytes(copying: $0) }
        }
    }

    private static var empty: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: nil, count: 0) }

    /// HMAC-SHA256 of one byte: the step of a chain.
    static func hmac(key: SecretBytes, byte: UInt8) -> SecretBytes {
        Swift.withUnsafeBytes(of: byte) { hmac(key: key, $0) }
    }

    /// HKDF-SHA256 with one or more outputs of 32 bytes each. The salt has at most 64 bytes.
    static func hkdf(salt: SecretBytes, secret: SecretBytes, info: [UInt8], blocks: Int) -> [SecretBytes] {
        let extracted = secret.withUnsafeBytes { hmac(key: salt, $0) }
        var outputs: [SecretBytes] = []
        info.withUnsafeBytes { info in
            for number in 1...UInt8(blocks) {
                Swift.withUnsafeBytes(of: number) { number in
                    let next =
                        outputs.last?.withUnsafeBytes { hmac(key: extracted, $0, info, number) }
                        ?? hmac(key: extracted, info, number)
                    outputs.append(next)
                }
            }
        }
        return outputs
    }

    // MARK: X25519 (RFC 7748)

    /// The library's key object: making one computes the public key, so it is worth keeping.
    typealias AgreementPrivateKey = Curve25519.KeyAgreement.PrivateKey

    static func agreementKey(_ secret: SecretBytes) -> AgreementPrivateKey {
        secret.withUnsafeBytes { bytes in
            do {
                return try AgreementPrivateKey(rawRepresentation: bytes)
            } catch {
                preconditionFailure("an X25519 private key has 32 bytes")
            }
        }
    }

    static func publicKey(of key: AgreementPrivateKey) -> Bytes32 {
        Bytes32(Array(key.publicKey.rawRepresentation))
    }

    /// The shared secret. Throws ``RatchetError/invalidKey`` where it is all zero.
    static func agree(_ key: AgreementPrivateKey, with peer: AgreementPublicKey) throws(RatchetError) -> SecretBytes {
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

    // MARK: Ed25519 (RFC 8032)

    typealias SigningPrivateKey = Curve25519.Signing.PrivateKey

    static func signingKey(seed: SecretBytes) -> SigningPrivateKey {
        seed.withUnsafeBytes { bytes in
            do {
                return try SigningPrivateKey(rawRepresentation: bytes)
            } catch {
                preconditionFailure("an Ed25519 seed has 32 bytes")
            }
        }
    }

    static func publicKey(of key: SigningPrivateKey) -> Bytes32 {
        Bytes32(Array(key.publicKey.rawRepresentation))
    }

    static func sign(_ message: [UInt8], with key: SigningPrivateKey) -> [UInt8] {
        do {
            return Array(try key.signature(for: message))
        } catch {
            preconditionFailure("Ed25519 signing cannot fail")
        }
    }

    static func verify(_ signature: [UInt8], of message: [UInt8], by key: Bytes32) -> Bool {
        guard let key = try? key.withUnsafeBytes({ try Curve25519.Signing.PublicKey(rawRepresentation: $0) }) else {
            return false
        }
        return key.isValidSignature(signature, for: message)
    }

    // MARK: ML-KEM-1024 (FIPS 203)

    /// A shared secret and the ciphertext that carries it.
    struct Encapsulation {
        let ciphertext: [UInt8]
        let secret: SecretBytes
    }

    static func kemPublicKey(seed: SecretBytes) -> [UInt8] {
        do {
            return Array(try kemPrivateKey(seed).publicKey.rawRepresentation)
        } catch {
            preconditionFailure("an ML-KEM seed has 64 bytes")
        }
    }

    /// Draws its randomness from the operating system. Refuses keys of another length or over the modulus.
    static func encapsulate(to publicKey: [UInt8]) throws(RatchetError) -> Encapsulation {
        do {
            let result = try MLKEM1024.PublicKey(rawRepresentation: publicKey).encapsulate()
            let secret = result.sharedSecret.withUnsafeBytes { SecretBytes(copying: $0) }
            return Encapsulation(ciphertext: Array(result.encapsulated), secret: secret)
        } catch {
            throw .invalidKey
        }
    }

    /// A changed ciphertext yields another secret, not an error (implicit rejection).
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

    // MARK: AES-256-GCM-SIV (RFC 8452)

    /// Appends ciphertext and tag to `output`.
    static func seal(
        _ plaintext: UnsafeRawBufferPointer, key: SecretBytes, nonce: [UInt8] = zeroNonce,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) {
        do {
            let box = try AES.GCM._SIV.seal(
                plaintext, using: symmetric(key), nonce: AES.GCM._SIV.Nonce(data: nonce), authenticating: data)
            output.append(contentsOf: box.combined.dropFirst(KeySize.nonce))
        } catch {
            // Only beyond 2^36 bytes (RFC 8452, section 6), far above any array that a caller could pass.
            preconditionFailure("AES-GCM-SIV cannot seal this much")
        }
    }

    /// Appends the plaintext to `output`, or throws and leaves `output` alone.
    static func open(
        _ sealed: UnsafeRawBufferPointer, key: SecretBytes, nonce: [UInt8] = zeroNonce,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        var combined = nonce
        combined.reserveCapacity(nonce.count + sealed.count)
        combined.append(contentsOf: sealed)
        do {
            let box = try AES.GCM._SIV.SealedBox(combined: combined)
            output.append(contentsOf: try AES.GCM._SIV.open(box, using: symmetric(key), authenticating: data))
        } catch {
            throw .authenticationFailed
        }
    }

    /// A session's keys seal one message each, so its nonce carries nothing; it is the constant zero.
    static let zeroNonce = [UInt8](repeating: 0, count: KeySize.nonce)

    private static func symmetric(_ key: SecretBytes) -> SymmetricKey {
        key.withUnsafeBytes { SymmetricKey(data: $0) }
    }
}
