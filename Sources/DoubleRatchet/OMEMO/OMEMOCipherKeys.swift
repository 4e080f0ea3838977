/// Cipher key, MAC key and IV, derived from one secret for one use (XEP-0384, sections 4.3 and 4.4).
///
/// ```
/// 0               32            64       80
/// | AES-256-CBC   | HMAC-SHA256 | IV 16  |  = HKDF-SHA256(salt 00 * 32, secret, info, 80)
/// ```
struct OMEMOCipherKeys: ~Copyable {
    private let bytes: SecretBytes

    init(secret: SecretBytes, info: [UInt8]) {
        self.init(MessageKey(secret: secret), info: info)
    }

    init(_ messageKey: consuming MessageKey, info: [UInt8]) {
        bytes = messageKey.withUnsafeBytes { secret in
            info.withUnsafeBytes { info in
                // No salt is a salt of zeros (RFC 5869, section 2.2).
                SecretBytes(count: 80) {
                    Primitives.hkdf(salt: Primitives.nothing, secret: secret, info: info, into: $0)
                }
            }
        }
    }

    borrowing func seal(_ plaintext: UnsafeRawBufferPointer) -> [UInt8] {
        bytes.withUnsafeBytes {
            Primitives.sealCBC(
                plaintext, key: UnsafeRawBufferPointer(rebasing: $0[..<32]),
                iv: UnsafeRawBufferPointer(rebasing: $0[64...]))
        }
    }

    /// Only after ``verify(_:of:_:)``.
    borrowing func open(_ ciphertext: UnsafeRawBufferPointer, into output: inout [UInt8]) throws(RatchetError) {
        try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
            try Primitives.openCBC(
                ciphertext, key: UnsafeRawBufferPointer(rebasing: bytes[..<32]),
                iv: UnsafeRawBufferPointer(rebasing: bytes[64...]), into: &output)
        }
    }

    private borrowing func withMAC<Result>(
        of first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer,
        _ body: (UnsafeRawBufferPointer) -> Result
    ) -> Result {
        withUnsafeTemporaryAllocation(byteCount: Primitives.hashSize, alignment: 8) { code in
            bytes.withUnsafeBytes {
                Primitives.hmac(key: UnsafeRawBufferPointer(rebasing: $0[32..<64]), first, second, into: code)
            }
            return body(UnsafeRawBufferPointer(code))
        }
    }

    /// The first `length` bytes of the HMAC over two parts, one after the other.
    borrowing func mac(of first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, length: Int) -> [UInt8] {
        withMAC(of: first, second) { Array($0.prefix(length)) }
    }

    /// Compares a truncated HMAC in time that depends on its length only.
    borrowing func verify(
        _ received: UnsafeRawBufferPointer, of first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer
    ) throws(RatchetError) {
        let isGenuine = withMAC(of: first, second) {
            SecretBytes.areEqual(UnsafeRawBufferPointer(rebasing: $0.prefix(received.count)), received)
        }
        guard isGenuine else { throw .authenticationFailed }
    }
}
