import DoubleRatchet

/// Cipher key, MAC key and IV, derived from one secret for one use (XEP-0384, sections 4.3 and 4.4).
///
/// ```
/// 0               32            64       80
/// | AES-256-CBC   | HMAC-SHA256 | IV 16  |  = HKDF-SHA256(salt 00 * 32, secret, info, 80)
/// ```
struct OMEMOCipherKeys: ~Copyable {
    private static let size = 80

    private let bytes: UnsafeRawBufferPointer

    private init(_ bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
    }

    /// Calls `body` with the keys of `secret`. They are on the stack and wiped afterwards.
    package static func with<Result, Failure: Error>(
        _ secret: UnsafeRawBufferPointer, info: [UInt8],
        _ body: (borrowing OMEMOCipherKeys) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try withUnsafeTemporaryAllocation(byteCount: size, alignment: 16) { (memory) throws(Failure) in
            defer { SecretBytes.wipe(memory) }
            // An absent salt is a salt of zeros (RFC 5869, section 2.2).
            info.withUnsafeBytes { Primitives.hkdf(salt: Primitives.nothing, secret: secret, info: $0, into: memory) }
            return try body(OMEMOCipherKeys(UnsafeRawBufferPointer(memory)))
        }
    }

    private var key: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: bytes[..<32]) }
    private var macKey: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: bytes[32..<64]) }
    private var iv: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: bytes[64...]) }

    /// Appends the ciphertext.
    package borrowing func seal(_ plaintext: UnsafeRawBufferPointer, into output: inout [UInt8]) {
        Primitives.sealCBC(plaintext, key: key, iv: iv, into: &output)
    }

    /// Appends the plaintext. Call only after ``verify(_:of:_:)``.
    package borrowing func open(_ ciphertext: UnsafeRawBufferPointer, into output: inout [UInt8]) throws(RatchetError) {
        try Primitives.openCBC(ciphertext, key: key, iv: iv, into: &output)
    }

    /// Calls `body` with the HMAC over the concatenation of both parts.
    borrowing func withMAC<Result>(
        of first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer = Primitives.nothing,
        _ body: (UnsafeRawBufferPointer) -> Result
    ) -> Result {
        withUnsafeTemporaryAllocation(byteCount: Primitives.hashSize, alignment: 8) { code in
            Primitives.hmac(key: macKey, first, second, into: code)
            return body(UnsafeRawBufferPointer(code))
        }
    }

    /// Compares a truncated HMAC in time that depends on its length only.
    package borrowing func verify(
        _ received: UnsafeRawBufferPointer, of first: UnsafeRawBufferPointer,
        _ second: UnsafeRawBufferPointer = Primitives.nothing
    ) throws(RatchetError) {
        let isGenuine = withMAC(of: first, second) {
            SecretBytes.areEqual(UnsafeRawBufferPointer(rebasing: $0.prefix(received.count)), received)
        }
        guard isGenuine else { throw .authenticationFailed }
    }
}
