/// Cipher key, MAC key and IV, derived from one secret for one use (XEP-0384, sections 4.3 and 4.4).
///
/// ```
/// 0               32            64       80
/// | AES-256-CBC   | HMAC-SHA256 | IV 16  |  = HKDF-SHA256(salt 00 * 32, secret, info, 80)
/// ```
struct OMEMOCipherKeys: ~Copyable {
    private let cipher: SecretBytes
    private let mac: SecretBytes
    private let iv: SecretBytes

    init(secret: SecretBytes, info: [UInt8]) {
        let salt = SecretBytes(count: 32) { _ in }
        let outputs = Primitives.hkdf(salt: salt, secret: secret, info: info, blocks: 3)
        cipher = outputs[0]
        mac = outputs[1]
        iv = outputs[2].withUnsafeBytes { SecretBytes(copying: UnsafeRawBufferPointer(rebasing: $0.prefix(16))) }
    }

    borrowing func seal(_ plaintext: UnsafeRawBufferPointer) -> [UInt8] {
        Primitives.sealCBC(plaintext, key: cipher, iv: iv)
    }

    /// Only after ``verify(_:of:_:)``.
    borrowing func open(_ ciphertext: UnsafeRawBufferPointer, into output: inout [UInt8]) throws(RatchetError) {
        try Primitives.openCBC(ciphertext, key: cipher, iv: iv, into: &output)
    }

    /// The first `length` bytes of the HMAC over two parts, one after the other.
    borrowing func mac(of first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, length: Int) -> [UInt8] {
        Primitives.hmac(key: mac, first, second).withUnsafeBytes { Array($0.prefix(length)) }
    }

    /// Compares a truncated HMAC in time that depends on its length only.
    borrowing func verify(
        _ received: UnsafeRawBufferPointer, of first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer
    ) throws(RatchetError) {
        var difference: UInt8 = 0
        for (left, right) in zip(mac(of: first, second, length: received.count), received) {
            difference |= left ^ right
        }
        guard difference == 0 else { throw .authenticationFailed }
    }
}
