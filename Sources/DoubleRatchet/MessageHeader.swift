// The wire format, version 1:
//
//      0        1                        33          34..38     35..43
//     +--------+------------------------+-----------+----------+------------------------------+
//     | V | F  | [prekey part]  ratchet key (32)    | N varint | PN varint | ciphertext | tag  |
//     +--------+------------------------+-----------+----------+------------------------------+
//
// V (high four bits) is the version; F is 1 where the prekey part of ``PreKeyHeader`` follows, 0 otherwise. N is the
// number of the message in its chain, PN the length of the chain before. Everything before the ciphertext is
// authenticated.

/// The header of a message.
struct MessageHeader {
    static let version: UInt8 = 1

    let preKeys: PreKeyHeader?
    let ratchetKey: [UInt8]
    let index: UInt32
    let previousCount: UInt32

    init(preKeys: PreKeyHeader?, ratchetKey: [UInt8], index: UInt32, previousCount: UInt32) {
        self.preKeys = preKeys
        self.ratchetKey = ratchetKey
        self.index = index
        self.previousCount = previousCount
    }

    init(_ reader: inout ByteReader) throws(RatchetError) {
        let first = try reader.byte()
        guard first >> 4 == Self.version else { throw .unsupportedVersion(first >> 4) }
        switch first & 0x0F {
        case 0: preKeys = nil
        case 1: preKeys = try PreKeyHeader(&reader)
        default: throw .malformed
        }
        ratchetKey = try reader.take(RatchetLimits.publicKeyLength)
        try Primitives.demandCanonical(ratchetKey)
        index = try reader.varint()
        previousCount = try reader.varint()
        guard reader.rest.count >= RatchetLimits.tagLength else { throw .malformed }
    }

    func write(into output: inout [UInt8]) {
        output.append(Self.version << 4 | (preKeys == nil ? 0 : 1))
        preKeys?.write(into: &output)
        output += ratchetKey
        output.append(varint: index)
        output.append(varint: previousCount)
    }
}
