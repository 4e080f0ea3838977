/// The Sparse Post-Quantum Ratchet at rest.
///
/// ```
/// 0              1            33                  69                    105               109
/// | minimum      | root 32    | sending: chain    | receiving: chain      | receiving         | braid
/// | version u8   |            | key 32 | next u32 | key 32 | next u32     | epoch u32         |
///
/// next sending chain key 32     while the braid has encapsulated
/// next receiving chain key 32   then, too, and while the peer has not come to the braid's epoch
/// ```
/// 178 to 1531 bytes. All numbers are big-endian.
extension SparsePostQuantumRatchet {
    package func serialize(into output: inout [UInt8]) {
        output.append(minimumVersion)
        root.append(to: &output)
        for chain in [sending, receiving] {
            chain.key.secret.append(to: &output)
            output.append(networkOrder: chain.next)
        }
        output.append(networkOrder: receivingEpoch)
        braid.serialize(into: &output)
        nextSending?.secret.append(to: &output)
        nextReceiving?.secret.append(to: &output)
    }

    init(isInitiator: Bool, from reader: inout ByteReader) throws(RatchetError) {
        let minimumVersion = try reader.byte()
        guard minimumVersion == Self.version else { throw .malformed }
        let root = try reader.secret(32)
        let sending = Chain(key: ChainKey(secret: try reader.secret(32)), next: try reader.uint32())
        let receiving = Chain(key: ChainKey(secret: try reader.secret(32)), next: try reader.uint32())
        let receivingEpoch = try reader.uint32()
        let braid = try Braid(from: &reader)
        self.init(
            isInitiator: isInitiator, minimumVersion: minimumVersion, braid: braid, root: root, sending: sending,
            receiving: receiving, receivingEpoch: receivingEpoch)
        // A peer that has not reached our epoch has just been sent the end of the previous one, and no header has come.
        let isAhead: Bool
        switch braid.state {
        case .noHeaderReceived: isAhead = receivingEpoch &+ 2 == braid.epoch
        default: isAhead = false
        }
        guard isAhead || receivingEpoch &+ 1 == braid.epoch else {
            throw .malformed
        }
        if braid.hasEncapsulated { nextSending = ChainKey(secret: try reader.secret(32)) }
        if braid.hasEncapsulated || isAhead { nextReceiving = ChainKey(secret: try reader.secret(32)) }
    }
}
