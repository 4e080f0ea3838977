public import DoubleRatchet

/// A session at rest. The bytes are secrets: the caller seals them and wipes the array with ``SecretBytes/wipe(_:)``.
///
/// ```
/// 0    1   2         3       4         36       68          100         104        108    140       172
/// | 4F | 1 | profile | flags | own     | peer's | ephemeral | signed    | one-time | root | peer's  | PN  |
/// |    |   |         |       | identity| ident. | key of    | prekey    | prekey   | key  | ratchet | u32 |
/// |    |   |         |       | 32      | 32     | the exch. | id u32    | id u32   | 32   | key 32  |     |
///
/// [1] responder, [8] established
/// [2] sending chain:   private key 32 | public key 32 | chain key 32 | next number u32
/// [4] receiving chain: chain key 32 | next number u32
/// past chains:         count u8  | ratchet key 32, chain key 32, next number u32 each, oldest first
/// past ratchet keys:   count u8  | 8 bytes each, oldest first
/// skipped keys:        count u16 | 68 bytes each, oldest first (drawn in SkippedKeys)
/// ```
/// In that order; parts with a flag in brackets are present if it is set. All numbers are big-endian. Other flags,
/// combinations that no session reaches, counts over the limits and remaining bytes are rejected.
extension OMEMOSession {
    private static let stateType: UInt8 = 0x4F
    private static let stateVersion: UInt8 = 1

    private enum Flag {
        package static let responder: UInt8 = 1
        package static let sending: UInt8 = 2
        package static let receiving: UInt8 = 4
        static let established: UInt8 = 8
    }

    /// Appends the state: 180 to 1100 bytes, plus 68 for each skipped key.
    public borrowing func serialize(into output: inout [UInt8]) {
        var flags = role == .responder ? Flag.responder : 0
        if ratchet.sending != nil { flags |= Flag.sending }
        if ratchet.receiving != nil { flags |= Flag.receiving }
        if isEstablished { flags |= Flag.established }
        output += [Self.stateType, Self.stateVersion, profile.rawValue, flags]
        ownIdentity.rawBytes.append(to: &output)
        peerIdentity.rawBytes.append(to: &output)
        exchange.ephemeralKey.append(to: &output)
        output.append(networkOrder: exchange.signedPreKeyID)
        output.append(networkOrder: exchange.preKeyID)
        ratchet.root.append(to: &output)
        ratchet.peerKey.append(to: &output)
        output.append(networkOrder: ratchet.previousCount)
        if let chain = ratchet.sending {
            chain.pair.secret.append(to: &output)
            chain.pair.publicKey.bytes.append(to: &output)
            chain.key.secret.append(to: &output)
            output.append(networkOrder: chain.next)
        }
        if let chain = ratchet.receiving {
            chain.key.secret.append(to: &output)
            output.append(networkOrder: chain.next)
        }
        output.append(UInt8(ratchet.past.count))
        for chain in ratchet.past {
            chain.ratchetKey.append(to: &output)
            chain.key.secret.append(to: &output)
            output.append(networkOrder: chain.next)
        }
        output.append(UInt8(ratchet.pastKeys.count))
        for prefix in ratchet.pastKeys { output.append(networkOrder: prefix) }
        output.append(networkOrder: UInt16(ratchet.skipped.count))
        ratchet.skipped.append(to: &output)
    }

    /// Reads the output of ``serialize(into:)``. Keys were checked before they were stored, so the caller must protect
    /// the stored state against changes.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        let session = try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            let session = try OMEMOSession.read(from: &reader)
            guard reader.rest.isEmpty else { throw .malformed }
            return session
        }
        role = session.role
        ownIdentity = session.ownIdentity
        peerIdentity = session.peerIdentity
        exchange = session.exchange
        isEstablished = session.isEstablished
        ratchet = session.ratchet
    }

    private static func read(from reader: inout ByteReader) throws(RatchetError) -> OMEMOSession {
        guard try reader.byte() == stateType else { throw .malformed }
        guard try reader.byte() == stateVersion else { throw .unsupportedVersion }
        guard let profile = OMEMOProfile(rawValue: try reader.byte()) else { throw .malformed }
        let flags = try reader.byte()
        let isResponder = flags & Flag.responder != 0
        let hasReceiving = flags & Flag.receiving != 0
        let isEstablished = flags & Flag.established != 0
        // A responder begins by receiving; receiving establishes an initiator's session.
        guard flags < 16, hasReceiving == isEstablished, hasReceiving || !isResponder else { throw .malformed }
        let ownIdentity = OMEMOIdentityKey(checked: try reader.bytes32(), profile: profile)
        let peerIdentity = OMEMOIdentityKey(checked: try reader.bytes32(), profile: profile)
        let exchange = OMEMOKeyExchange(
            identity: isResponder ? peerIdentity : ownIdentity, ephemeralKey: try reader.bytes32(),
            signedPreKeyID: try reader.uint32(), preKeyID: try reader.uint32())
        let root = try reader.secret(32)
        let peerKey = try reader.bytes32()
        let previousCount = try reader.uint32()
        var sending: OMEMORatchet.SendingChain?
        if flags & Flag.sending != 0 {
            let secret = try reader.secret(KeySize.curve25519)
            sending = OMEMORatchet.SendingChain(
                pair: AgreementKeyPair(secret: secret, checkedPublicKey: try reader.bytes32()),
                key: ChainKey(secret: try reader.secret(32)), next: try reader.uint32())
        }
        let receiving = hasReceiving ? try chain(of: peerKey, from: &reader) : nil
        var ratchet = OMEMORatchet(
            profile: profile, root: root, peerKey: peerKey, sending: sending, receiving: receiving)
        ratchet.previousCount = previousCount
        let chainCount = try reader.byte()
        guard chainCount <= OMEMOLimits.maximumPastChains else { throw .malformed }
        for _ in 0..<chainCount { ratchet.past.append(try chain(of: try reader.bytes32(), from: &reader)) }
        let pastCount = try reader.byte()
        guard pastCount <= OMEMOLimits.maximumRememberedChains else { throw .malformed }
        for _ in 0..<pastCount { ratchet.pastKeys.append(try reader.uint64()) }
        let skippedCount = Int(try reader.uint16())
        guard skippedCount <= OMEMOLimits.maximumSkippedKeys else { throw .malformed }
        ratchet.skipped = SkippedKeys(
            count: skippedCount, records: try reader.take(skippedCount * SkippedKeys.recordSize))
        return OMEMOSession(
            role: isResponder ? .responder : .initiator, ownIdentity: ownIdentity, peerIdentity: peerIdentity,
            exchange: exchange, isEstablished: isEstablished, ratchet: ratchet)
    }

    private static func chain(
        of ratchetKey: Bytes32, from reader: inout ByteReader
    ) throws(RatchetError) -> OMEMORatchet.ReceivingChain {
        OMEMORatchet.ReceivingChain(
            ratchetKey: ratchetKey, key: ChainKey(secret: try reader.secret(32)), next: try reader.uint32())
    }
}
