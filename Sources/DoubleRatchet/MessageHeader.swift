/// The content of an opened header (Double Ratchet, sections 3.4, 4 and 6).
///
/// ```
/// | ratchet key | N        | PN       | post-quantum part |
/// | 32          | varint   | varint   | 3 to 43           |
/// ```
/// N is the message's number in its chain, PN the length of the sender's previous chain, both in their shortest LEB128
/// form of 1 to 5 bytes. ``PostQuantumPart`` draws the last part. 37 to 85 bytes.
package struct MessageHeader: Hashable {
    static let maximumSize = Bytes32.count + 5 + 5 + PostQuantumPart.maximumSize

    package let ratchetKey: Bytes32
    package let number: UInt32
    package let previousCount: UInt32
    let postQuantum: PostQuantumPart

    init(ratchetKey: Bytes32, number: UInt32, previousCount: UInt32, postQuantum: PostQuantumPart) {
        (self.ratchetKey, self.number) = (ratchetKey, number)
        (self.previousCount, self.postQuantum) = (previousCount, postQuantum)
    }

    /// Throws as ``PostQuantumPart/init(from:minimumVersion:)`` does, and ``RatchetError/malformed``.
    init(_ bytes: UnsafeRawBufferPointer, minimumVersion: UInt8) throws(RatchetError) {
        var reader = ByteReader(bytes)
        ratchetKey = try reader.bytes32()
        number = try reader.varint()
        previousCount = try reader.varint()
        postQuantum = try PostQuantumPart(from: &reader, minimumVersion: minimumVersion)
    }

    package func write(into output: inout [UInt8]) {
        ratchetKey.append(to: &output)
        output.append(varint: number)
        output.append(varint: previousCount)
        postQuantum.write(into: &output)
    }
}
