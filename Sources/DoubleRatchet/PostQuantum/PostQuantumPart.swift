/// The part of every header for the Sparse Post-Quantum Ratchet.
///
/// ```
/// | version | kind   | epoch   | number  | [chunk index | chunk] |
/// | 4 bits  | 4 bits | varint  | varint  | varint       | 32     |
/// ```
/// 3 to 9 bytes, plus 33 or 34 for a chunk, which all kinds except 0 have. Version 1. The part is mandatory.
struct PostQuantumPart: Hashable, Sendable {
    static let maximumSize = 1 + 3 + 5 + 2 + ErasureCode.chunkSize

    /// The epoch of the sender's braid; the message belongs to the chain of the epoch before.
    let epoch: UInt32
    /// The message's number in that chain.
    package let number: UInt32
    package let message: Braid.Message

    init(epoch: UInt32, number: UInt32, message: Braid.Message) {
        (self.epoch, self.number, self.message) = (epoch, number, message)
    }

    /// Reads the part; padding may remain in `reader`.
    ///
    /// - Throws: ``RatchetError/downgrade`` if there are no bytes or the version is older than `minimumVersion`,
    ///   ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``.
    init(from reader: inout ByteReader, minimumVersion: UInt8) throws(RatchetError) {
        guard !reader.rest.isEmpty else { throw .downgrade }
        let first = try reader.byte()
        guard first >> 4 >= minimumVersion else { throw .downgrade }
        guard first >> 4 == SparsePostQuantumRatchet.version else { throw .unsupportedVersion }
        guard let kind = Braid.Message.Kind(rawValue: first & 0x0F) else { throw .malformed }
        epoch = try reader.varint()
        guard epoch > 0, epoch < Braid.maximumEpoch else { throw .malformed }
        number = try reader.varint()
        var chunk: ErasureCode.Chunk?
        if kind != .none {
            let index = try reader.varint()
            guard index < ErasureCode.maximumIndex else { throw .malformed }
            chunk = ErasureCode.Chunk(index: UInt16(index), bytes: try reader.bytes32())
        }
        message = Braid.Message(kind: kind, chunk: chunk)
    }

    package func write(into output: inout [UInt8]) {
        output.append(SparsePostQuantumRatchet.version << 4 | message.kind.rawValue)
        output.append(varint: epoch)
        output.append(varint: number)
        if let chunk = message.chunk {
            output.append(varint: UInt32(chunk.index))
            chunk.bytes.append(to: &output)
        }
    }
}
