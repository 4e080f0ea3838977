/// The wire format of every message between two devices.
///
/// ```
/// 0                 1
/// | version | flags | [prekey part] | length | hint | sealed header   | ciphertext | tag |
/// | 4 bits  | 4     | 1640 or 1644  | u8     | u8   | length + tag 16 | as long as | 16  |
/// |         | bits  |               |        |      |                 | plaintext  |     |
/// ```
/// Version 2. Flag 1 means that the prekey part (``PreKeyPart``) is present, flag 2 that it names a one-time prekey;
/// flag 2 without flag 1, and flags 4 and 8, are rejected. ``MessageHeader`` draws the header; its length is 37 to 85
/// bytes. ``HeaderKey`` explains the hint. An established session adds 72 to 120 bytes to a plaintext, usually 105.
package struct Message {
    package static let version: UInt8 = 2
    /// The version without a post-quantum ratchet and with a clear header.
    private static let olderVersion: UInt8 = 1
    static let preKeyFlag: UInt8 = 1
    static let oneTimeFlag: UInt8 = 2

    package let first: UInt8
    let preKeyPart: PreKeyPart?
    let hint: UInt8
    let sealedHeader: UnsafeRawBufferPointer
    let sealedBody: UnsafeRawBufferPointer
    var plaintextCount: Int { sealedBody.count - KeySize.tag }
    /// Everything before the body; authenticated with the body.
    let head: UnsafeRawBufferPointer

    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/downgrade``, ``RatchetError/malformed``.
    init(_ bytes: UnsafeRawBufferPointer) throws(RatchetError) {
        var reader = ByteReader(bytes)
        first = try reader.byte()
        switch first >> 4 {
        case Self.version: break
        case Self.olderVersion: throw .downgrade
        default: throw .unsupportedVersion
        }
        switch first & 0x0F {
        case 0: preKeyPart = nil
        case Self.preKeyFlag, Self.preKeyFlag | Self.oneTimeFlag:
            preKeyPart = try PreKeyPart(from: &reader, hasOneTimePreKey: first & Self.oneTimeFlag != 0)
        default: throw .malformed
        }
        let length = Int(try reader.byte())
        guard length <= MessageHeader.maximumSize else { throw .malformed }
        hint = try reader.byte()
        sealedHeader = try reader.take(length + KeySize.tag)
        sealedBody = reader.rest
        guard sealedBody.count >= KeySize.tag else { throw .malformed }
        head = UnsafeRawBufferPointer(rebasing: bytes.dropLast(sealedBody.count))
    }

    /// Appends everything before the body.
    package static func writeHead(
        _ preKeyPart: PreKeyPart?, _ header: MessageHeader, key: HeaderKey, with context: CipherContext,
        into output: inout [UInt8]
    ) {
        var flags: UInt8 = 0
        if let preKeyPart { flags = preKeyFlag | (preKeyPart.oneTimePreKeyID == nil ? 0 : oneTimeFlag) }
        let first = version << 4 | flags
        output.append(first)
        preKeyPart?.write(into: &output)
        let place = output.count
        // Length and hint, known once the header is written and sealed.
        output.append(0)
        output.append(0)
        header.write(into: &output)
        output[place] = UInt8(output.count - place - 2)
        for _ in 0..<KeySize.tag { output.append(0) }
        output.withUnsafeMutableBytes {
            key.seal(UnsafeMutableRawBufferPointer(rebasing: $0[(place + 1)...]), first: first, with: context)
        }
    }
}
