/// SHA-2, HMAC (RFC 2104) and HKDF (RFC 5869).
///
/// Each variant of the library has its `sha256`, `sha512` and ``CodeKey``; all else is here.
extension Primitives {
    /// The output size of SHA-256, in bytes.
    package static let hashSize = 32
    /// The block size of SHA-256; HMAC keys have at most this many bytes here.
    static let blockSize = 64

    /// The first half of SHA-512: the input of the secret scalar in RFC 8032.
    static func sha512FirstHalf(_ secret: SecretBytes) -> SecretBytes {
        secret.withUnsafeBytes { secret in
            withUnsafeTemporaryAllocation(byteCount: 64, alignment: 8) { hash in
                defer { SecretBytes.wipe(hash) }
                sha512(secret, nothing, into: hash)
                return SecretBytes(copying: UnsafeRawBufferPointer(rebasing: hash[..<32]))
            }
        }
    }

    /// SHA-512 of the concatenation of two public parts; 64 bytes.
    static func sha512(_ first: [UInt8], _ second: [UInt8]) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: 64) { hash, count in
            first.withUnsafeBytes { first in
                second.withUnsafeBytes { sha512(first, $0, into: UnsafeMutableRawBufferPointer(hash)) }
            }
            count = 64
        }
    }

    // MARK: HMAC

    /// HMAC-SHA256 of the concatenation of up to three parts, into 32 bytes that overlap no part. The key has at most
    /// 64 bytes.
    package static func hmac(
        key: UnsafeRawBufferPointer, _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer = nothing,
        _ third: UnsafeRawBufferPointer = nothing, into code: UnsafeMutableRawBufferPointer
    ) {
        precondition(code.count == hashSize)
        CodeKey.with(key) { $0.code(first, second, third, into: code) }
    }

    package static func hmac(
        key: SecretBytes, _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer = nothing,
        _ third: UnsafeRawBufferPointer = nothing
    ) -> SecretBytes {
        SecretBytes(count: hashSize) { code in
            key.withUnsafeBytes { hmac(key: $0, first, second, third, into: code) }
        }
    }

    /// The first half of `KDF_CK` is the HMAC of 01, the second of 02 (Double Ratchet, section 7.2).
    static let messageByte: UInt8 = 0x01
    static let chainByte: UInt8 = 0x02

    /// Writes both halves to 64 bytes, which may contain the key.
    static func stepChain(_ key: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer) {
        CodeKey.with(key) { key in
            let (message, chain) = (messageByte, chainByte)
            Swift.withUnsafeBytes(of: message) {
                key.code($0, nothing, nothing, into: UnsafeMutableRawBufferPointer(rebasing: output[..<hashSize]))
            }
            Swift.withUnsafeBytes(of: chain) {
                key.code($0, nothing, nothing, into: UnsafeMutableRawBufferPointer(rebasing: output[hashSize...]))
            }
        }
    }

    /// HMAC-SHA256 of one byte: one half of a chain step.
    package static func hmac(key: SecretBytes, byte: UInt8, into code: UnsafeMutableRawBufferPointer) {
        key.withUnsafeBytes { key in
            Swift.withUnsafeBytes(of: byte) { hmac(key: key, $0, into: code) }
        }
    }

    package static var nothing: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: nil, count: 0) }

    // MARK: HKDF

    /// Fills `output` by HKDF-SHA256. The salt has at most 64 bytes.
    package static func hkdf(
        salt: UnsafeRawBufferPointer, secret: UnsafeRawBufferPointer, info: UnsafeRawBufferPointer,
        into output: UnsafeMutableRawBufferPointer
    ) {
        precondition(output.count <= 255 * hashSize)
        // The extracted key, followed by the last block.
        withUnsafeTemporaryAllocation(byteCount: 2 * hashSize, alignment: 16) { block in
            defer { SecretBytes.wipe(block) }
            let extracted = UnsafeMutableRawBufferPointer(rebasing: block[..<hashSize])
            let last = UnsafeMutableRawBufferPointer(rebasing: block[hashSize...])
            hmac(key: salt, secret, into: extracted)
            CodeKey.with(UnsafeRawBufferPointer(extracted)) { key in
                var number: UInt8 = 1
                var previous = nothing
                for start in stride(from: 0, to: output.count, by: hashSize) {
                    let part = UnsafeMutableRawBufferPointer(
                        rebasing: output[start..<min(start + hashSize, output.count)])
                    Swift.withUnsafeBytes(of: number) { key.code(previous, info, $0, into: last) }
                    part.copyMemory(from: UnsafeRawBufferPointer(rebasing: last[..<part.count]))
                    previous = UnsafeRawBufferPointer(part)
                    number &+= 1
                }
            }
        }
    }

    /// HKDF-SHA256 with one or more outputs of 32 bytes each. The salt has at most 64 bytes.
    package static func hkdf(salt: SecretBytes, secret: SecretBytes, info: [UInt8], blocks: Int) -> [SecretBytes] {
        withUnsafeTemporaryAllocation(byteCount: blocks * hashSize, alignment: 16) { output in
            defer { SecretBytes.wipe(output) }
            salt.withUnsafeBytes { salt in
                secret.withUnsafeBytes { secret in
                    info.withUnsafeBytes { hkdf(salt: salt, secret: secret, info: $0, into: output) }
                }
            }
            return stride(from: 0, to: output.count, by: hashSize).map {
                SecretBytes(copying: UnsafeRawBufferPointer(rebasing: output[$0..<$0 + hashSize]))
            }
        }
    }
}
