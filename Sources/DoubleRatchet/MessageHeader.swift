/// The content of an opened header (Double Ratchet, sections 3.4, 4 and 6).
///
/// ```
/// | ratchet key | N        | PN       | post-quantum part | zeros     |
/// | 32          | varint   | varint   | 3 to 43           | version 3 |
/// ```
/// N is the message's number in its chain, PN the length of the sender's previous chain, both in their shortest LEB128
/// form of 1 to 5 bytes. ``PostQuantumPart`` draws the part before the zeros.
///
/// In version 2 there are no zeros: 37 to 85 bytes. In version 3 there are 75 bytes, or 85 if one of the four counters
/// (N, PN, epoch and number) is 2^14 or more. With smaller ones, 75 bytes hold every header with a chunk. A chunk does
/// not change the length, so the two lengths show only that some counter has passed 2^14.
package struct MessageHeader: Hashable {
    static let maximumSize = Bytes32.count + 5 + 5 + PostQuantumPart.maximumSize
    /// The length in version 3 while every counter fits a varint of two bytes.
    static let usualSize = Bytes32.count + 2 + 2 + 1 + 2 + 2 + 2 + ErasureCode.chunkSize
    /// The lowest counter that needs a varint of three bytes.
    static let counterBound: UInt32 = 1 << 14

    package let ratchetKey: Bytes32
    package let number: UInt32
    package let previousCount: UInt32
    let postQuantum: PostQuantumPart

    init(ratchetKey: Bytes32, number: UInt32, previousCount: UInt32, postQuantum: PostQuantumPart) {
        (self.ratchetKey, self.number) = (ratchetKey, number)
        (self.previousCount, self.postQuantum) = (previousCount, postQuantum)
    }

    /// Reads a header of one version to the last byte.
    ///
    /// Throws as ``PostQuantumPart/init(from:minimumVersion:)`` does, and ``RatchetError/malformed``, also for a length
    /// that does not belong to the counters.
    init(
        _ bytes: UnsafeRawBufferPointer, _ version: MessageVersion, minimumVersion: UInt8
    ) throws(RatchetError) {
        var reader = ByteReader(bytes)
        ratchetKey = try reader.bytes32()
        number = try reader.varint()
        previousCount = try reader.varint()
        postQuantum = try PostQuantumPart(from: &reader, minimumVersion: minimumVersion)
        switch version {
        case .exactHeader: guard reader.rest.isEmpty else { throw .malformed }
        case .paddedHeader:
            guard bytes.count == paddedSize, reader.rest.allSatisfy({ $0 == 0 }) else { throw .malformed }
        }
    }

    /// Whether headers of a version can have a length.
    static func isPossible(size: Int, in version: MessageVersion) -> Bool {
        switch version {
        case .exactHeader: size <= maximumSize
        case .paddedHeader: size == usualSize || size == maximumSize
        }
    }

    /// The length in version 3. It must not depend on whether there is a chunk.
    private var paddedSize: Int {
        let bound = Self.counterBound
        let isUsual =
            number < bound && previousCount < bound && postQuantum.epoch < bound && postQuantum.number < bound
        return isUsual ? Self.usualSize : Self.maximumSize
    }

    package func write(_ version: MessageVersion, into output: inout [UInt8]) {
        let end = output.count + paddedSize
        ratchetKey.append(to: &output)
        output.append(varint: number)
        output.append(varint: previousCount)
        postQuantum.write(into: &output)
        guard version == .paddedHeader else { return }
        while output.count < end { output.append(0) }
    }
}
