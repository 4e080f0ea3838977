/// The clear part of every message. All of it is authenticated.
///
/// ```
/// 0                 1
/// | version | flags | [prekey part] | ratchet key | N        | PN       | ciphertext | tag |
/// | 4 bits  | 4     | 1640 or 1644  | 32          | varint   | varint   | as long as | 16  |
/// |         | bits  |               |             | 1 to 5   | 1 to 5   | plaintext  |     |
/// ```
/// Version 1. Flag 1 says that the prekey part (``PreKeyPart``) is there, flag 2 that it names a one-time prekey; flag 2
/// without flag 1, and flags 4 and 8, are refused. N is the message's number in its chain, PN the length of the
/// sender's previous chain, both in their shortest LEB128 form (Double Ratchet, section 3.4). An established session
/// adds 51 to 59 bytes to a plaintext.
struct MessageHeader {
    static let version: UInt8 = 1
    static let preKeyFlag: UInt8 = 1
    static let oneTimeFlag: UInt8 = 2

    let preKeyPart: PreKeyPart?
    let ratchetKey: Bytes32
    let number: UInt32
    let previousCount: UInt32

    init(preKeyPart: PreKeyPart?, ratchetKey: Bytes32, number: UInt32, previousCount: UInt32) {
        self.preKeyPart = preKeyPart
        self.ratchetKey = ratchetKey
        self.number = number
        self.previousCount = previousCount
    }

    /// Reads a header; what is left in `reader` is ciphertext and tag.
    init(from reader: inout ByteReader) throws(RatchetError) {
        let first = try reader.byte()
        guard first >> 4 == Self.version else { throw .unsupportedVersion }
        let flags = first & 0x0F
        switch flags {
        case 0: preKeyPart = nil
        case Self.preKeyFlag, Self.preKeyFlag | Self.oneTimeFlag:
            preKeyPart = try PreKeyPart(from: &reader, hasOneTimePreKey: flags & Self.oneTimeFlag != 0)
        default: throw .malformed
        }
        ratchetKey = try reader.bytes32()
        number = try reader.varint()
        previousCount = try reader.varint()
        guard reader.rest.count >= KeySize.tag else { throw .malformed }
    }

    func write(into output: inout [UInt8]) {
        var flags: UInt8 = 0
        if let preKeyPart { flags = Self.preKeyFlag | (preKeyPart.oneTimePreKeyID == nil ? 0 : Self.oneTimeFlag) }
        output.append(Self.version << 4 | flags)
        preKeyPart?.write(into: &output)
        ratchetKey.append(to: &output)
        output.append(varint: number)
        output.append(varint: previousCount)
    }
}
