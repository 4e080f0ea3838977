/// The version of a message between two devices: the high four bits of its first byte.
///
/// The initiator chooses it with a session's first message, by the mark of the peer's signed prekey
/// (``SignedPreKey/Public/paddedHeaderMark``). Every message of the session has it.
package enum MessageVersion: UInt8, Sendable {
    /// A header is as long as its content: its length shows how large the counters are, and whether there is a chunk.
    case exactHeader = 2
    /// A header is padded to one of two lengths.
    case paddedHeader = 3
}

/// The wire format of every message between two devices.
///
/// ```
/// 0                 1
/// | version | flags | [prekey part] | length | hint | sealed header   | ciphertext | tag |
/// | 4 bits  | 4     | 1640 or 1644  | u8     | u8   | length + tag 16 | as long as | 16  |
/// |         | bits  |               |        |      |                 | plaintext  |     |
/// ```
/// Version 3 or 2, see ``MessageVersion``. Flag 1 means that the prekey part (``PreKeyPart``) is present, flag 2 that it
/// names a one-time prekey; flag 2 without flag 1, and flags 4 and 8, are rejected. ``MessageHeader`` draws the header;
/// its length is 75 or 85 bytes, in version 2 37 to 85. ``HeaderKey`` explains the hint. An established session adds 110
/// or 120 bytes to a plaintext, in version 2 72 to 120, usually 105.
package struct Message {
    /// The version without a post-quantum ratchet and with a clear header.
    private static let olderVersion: UInt8 = 1
    static let preKeyFlag: UInt8 = 1
    static let oneTimeFlag: UInt8 = 2

    package let version: MessageVersion
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
        guard let version = MessageVersion(rawValue: first >> 4) else {
            throw first >> 4 == Self.olderVersion ? .downgrade : .unsupportedVersion
        }
        self.version = version
        switch first & 0x0F {
        case 0: preKeyPart = nil
        case Self.preKeyFlag, Self.preKeyFlag | Self.oneTimeFlag:
            preKeyPart = try PreKeyPart(from: &reader, hasOneTimePreKey: first & Self.oneTimeFlag != 0)
        default: throw .malformed
        }
        let length = Int(try reader.byte())
        guard MessageHeader.isPossible(size: length, in: version) else { throw .malformed }
        hint = try reader.byte()
        sealedHeader = try reader.take(length + KeySize.tag)
        sealedBody = reader.rest
        guard sealedBody.count >= KeySize.tag else { throw .malformed }
        head = UnsafeRawBufferPointer(rebasing: bytes.dropLast(sealedBody.count))
    }

    /// Appends everything before the body.
    package static func writeHead(
        _ version: MessageVersion, _ preKeyPart: PreKeyPart?, _ header: MessageHeader, key: HeaderKey,
        with context: CipherContext, into output: inout [UInt8]
    ) {
        var flags: UInt8 = 0
        if let preKeyPart { flags = preKeyFlag | (preKeyPart.oneTimePreKeyID == nil ? 0 : oneTimeFlag) }
        let first = version.rawValue << 4 | flags
        output.append(first)
        preKeyPart?.write(into: &output)
        let place = output.count
        // Length and hint, known once the header is written and sealed.
        output.append(0)
        output.append(0)
        header.write(version, into: &output)
        output[place] = UInt8(output.count - place - 2)
        for _ in 0..<KeySize.tag { output.append(0) }
        output.withUnsafeMutableBytes {
            key.seal(UnsafeMutableRawBufferPointer(rebasing: $0[(place + 1)...]), first: first, with: context)
        }
    }
}
