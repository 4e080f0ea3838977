/// A session at rest. The bytes are secrets: the caller seals them and wipes the array with ``SecretBytes/wipe(_:)``.
///
/// ```
/// 0   1       2              34              66           98       130        162
/// | 1 | flags | own identity | peer identity | session id | root   | peer's   | PN u32 |
/// |   |       | 32           | 32            | 32         | key 32 | key 32   |        |
///
/// [1] responder
/// [2] sending chain:   private key 32 | public key 32 | chain key 32 | next number u32
/// [4] receiving chain: chain key 32 | next number u32
/// [8] prekey part, 1640 bytes, or 1644 with [16]
/// past ratchet keys:   count u8  | 8 bytes each, oldest first
/// skipped keys:        count u16 | 68 bytes each, oldest first (drawn in SkippedKeys)
/// ```
/// In that order, where the flag in brackets is set. All numbers are big-endian. Other flags, combinations that no
/// session reaches, counts over the limits and bytes left over are refused.
extension Session {
    private static let stateVersion: UInt8 = 1

    private enum Flag {
        static let responder: UInt8 = 1
        static let sending: UInt8 = 2
        static let receiving: UInt8 = 4
        static let pending: UInt8 = 8
        static let oneTime: UInt8 = 16
    }

    /// Appends the state: 205 to 1913 bytes, and 68 for each skipped key.
    public borrowing func serialize(into output: inout [UInt8]) {
        var flags = role == .responder ? Flag.responder : 0
        if ratchet.sending != nil { flags |= Flag.sending }
        if ratchet.receiving != nil { flags |= Flag.receiving }
        if let pending { flags |= Flag.pending | (pending.oneTimePreKeyID == nil ? 0 : Flag.oneTime) }
        output.append(Self.stateVersion)
        output.append(flags)
        ownIdentity.rawBytes.append(to: &output)
        peerIdentity.rawBytes.append(to: &output)
        sessionID.append(to: &output)
        ratchet.root.secret.append(to: &output)
        ratchet.peerKey.append(to: &output)
        output.append(bigEndian: ratchet.previousCount)
        if let chain = ratchet.sending {
            chain.pair.secret.append(to: &output)
            chain.pair.publicKey.bytes.append(to: &output)
            chain.key.secret.append(to: &output)
            output.append(bigEndian: chain.next)
        }
        if let chain = ratchet.receiving {
            chain.key.secret.append(to: &output)
            output.append(bigEndian: chain.next)
        }
        pending?.write(into: &output)
        output.append(UInt8(ratchet.pastKeys.count))
        for prefix in ratchet.pastKeys { output.append(bigEndian: prefix) }
        output.append(bigEndian: UInt16(ratchet.skipped.count))
        ratchet.skipped.append(to: &output)
    }

    /// Reads what ``serialize(into:)`` wrote, in a few microseconds: keys were checked before they were stored, so the
    /// caller has to keep the state from being changed at rest.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        let session = try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            let session = try Session.read(from: &reader)
            guard reader.rest.isEmpty else { throw .malformed }
            return session
        }
        role = session.role
        ownIdentity = session.ownIdentity
        peerIdentity = session.peerIdentity
        sessionID = session.sessionID
        pending = session.pending
        ratchet = session.ratchet
    }

    private static func read(from reader: inout ByteReader) throws(RatchetError) -> Session {
        guard try reader.byte() == stateVersion else { throw .unsupportedVersion }
        let flags = try reader.byte()
        let isResponder = flags & Flag.responder != 0
        let hasReceiving = flags & Flag.receiving != 0
        let isPending = flags & Flag.pending != 0
        // A responder begins by receiving; an initiator waits for its first reply or has a receiving chain.
        guard flags < 32, isResponder ? hasReceiving && !isPending : hasReceiving != isPending,
            isPending || flags & Flag.oneTime == 0
        else { throw .malformed }
        let ownIdentity = IdentityKey(checked: try reader.bytes32())
        let peerIdentity = IdentityKey(checked: try reader.bytes32())
        let sessionID = try reader.bytes32()
        let root = RootKey(secret: try reader.secret(32))
        let peerKey = try reader.bytes32()
        let previousCount = try reader.uint32()
        var sending: DoubleRatchet.SendingChain?
        if flags & Flag.sending != 0 {
            let secret = try reader.secret(KeySize.curve25519)
            sending = DoubleRatchet.SendingChain(
                pair: AgreementKeyPair(secret: secret, checkedPublicKey: try reader.bytes32()),
                key: ChainKey(secret: try reader.secret(32)), next: try reader.uint32())
        }
        var receiving: DoubleRatchet.ReceivingChain?
        if hasReceiving {
            receiving = DoubleRatchet.ReceivingChain(
                key: ChainKey(secret: try reader.secret(32)), next: try reader.uint32())
        }
        let pending =
            isPending ? try PreKeyPart(from: &reader, hasOneTimePreKey: flags & Flag.oneTime != 0) : nil
        var ratchet = DoubleRatchet(root: root, peerKey: peerKey, sending: sending, receiving: receiving)
        ratchet.previousCount = previousCount
        let pastCount = try reader.byte()
        guard pastCount <= RatchetLimits.maximumRememberedChains else { throw .malformed }
        for _ in 0..<pastCount { ratchet.pastKeys.append(try reader.uint64()) }
        let skippedCount = Int(try reader.uint16())
        guard skippedCount <= RatchetLimits.maximumSkippedKeys else { throw .malformed }
        ratchet.skipped = SkippedKeys(
            count: skippedCount, records: try reader.take(skippedCount * SkippedKeys.recordSize))
        return Session(
            role: isResponder ? .responder : .initiator, ownIdentity: ownIdentity, peerIdentity: peerIdentity,
            sessionID: sessionID, pending: pending, ratchet: ratchet)
    }
}
