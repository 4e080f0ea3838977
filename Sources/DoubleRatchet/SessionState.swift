/// A session at rest. The bytes are secrets: the caller seals them and wipes the array with ``SecretBytes/wipe(_:)``.
///
/// ```
/// 0   1       2              34              66           98       130        162      166         198
/// | 2 | flags | own identity | peer identity | session id | root   | peer's   | PN u32 | next      | next       |
/// |   |       | 32           | 32            | 32         | key 32 | key 32   |        | sending   | receiving  |
/// |   |       |              |               |            |        |          |        | header 32 | header 32  |
///
/// [1] responder
/// [32] version 3       [64] begun in version 2; only with [32]
/// [2] sending chain:   private key 32 | public key 32 | header key 32 | chain key 32 | next number u32
/// [4] receiving chain: header key 32 | chain's number u32 | chain key 32 | next number u32
/// [8] prekey part, 1640 bytes, or 1644 with [16]
/// post-quantum ratchet: 178 to 1531 bytes (drawn in SparsePostQuantumRatchet and Braid)
/// finished chains:      count u8  | 36 bytes each, oldest first (drawn in FinishedChains)
/// skipped keys:         count u16 | 40 bytes each, oldest first (drawn in FinishedChains)
/// ```
/// In that order; parts with a flag in brackets are present if it is set. All numbers are big-endian. Other flags,
/// combinations that no session reaches, counts over the limits and remaining bytes are rejected. Version 1 is rejected
/// as well: it had no post-quantum ratchet, and one side alone cannot add one.
extension Session {
    private static let stateVersion: UInt8 = 2

    private enum Flag {
        package static let responder: UInt8 = 1
        package static let sending: UInt8 = 2
        package static let receiving: UInt8 = 4
        static let pending: UInt8 = 8
        static let oneTime: UInt8 = 16
        static let padded: UInt8 = 32
        static let opensExact: UInt8 = 64
        static let all: UInt8 = 127
    }

    /// Upper bound of the bytes that ``serialize(into:)`` appends. Memory for them is reserved, because a growing array
    /// would leave a part of the keys in the memory that it frees.
    var maximumSize: Int { 2472 + 1644 + ratchet.finished.serializedSize }

    /// Appends the state: at most 2472 bytes with every remembered chain, plus 40 for each skipped key and 36 for each
    /// chain kept for them. It is shorter until the session is established, including the prekey part.
    public borrowing func serialize(into output: inout [UInt8]) {
        output.reserveCapacity(output.count + maximumSize)
        var flags = role == .responder ? Flag.responder : 0
        if ratchet.sending != nil { flags |= Flag.sending }
        if ratchet.receiving != nil { flags |= Flag.receiving }
        if let pending { flags |= Flag.pending | (pending.oneTimePreKeyID == nil ? 0 : Flag.oneTime) }
        if version == .paddedHeader { flags |= Flag.padded }
        if opensExactHeaders { flags |= Flag.opensExact }
        output.append(Self.stateVersion)
        output.append(flags)
        ownIdentity.rawBytes.append(to: &output)
        peerIdentity.rawBytes.append(to: &output)
        sessionID.append(to: &output)
        ratchet.root.secret.append(to: &output)
        ratchet.peerKey.append(to: &output)
        output.append(networkOrder: ratchet.previousCount)
        ratchet.nextSendingHeader.secret.append(to: &output)
        ratchet.nextReceivingHeader.secret.append(to: &output)
        if let chain = ratchet.sending {
            chain.pair.secret.append(to: &output)
            chain.pair.publicKey.bytes.append(to: &output)
            chain.headerKey.secret.append(to: &output)
            chain.key.secret.append(to: &output)
            output.append(networkOrder: chain.next)
        }
        if let chain = ratchet.receiving {
            chain.headerKey.secret.append(to: &output)
            output.append(networkOrder: chain.number)
            chain.key.secret.append(to: &output)
            output.append(networkOrder: chain.next)
        }
        pending?.write(into: &output)
        ratchet.postQuantum.serialize(into: &output)
        ratchet.finished.serialize(into: &output)
    }

    /// Reads the output of ``serialize(into:)``, in a few microseconds. Keys were checked before they were stored, so
    /// the caller must protect the stored state against changes.
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
        version = session.version
        opensExactHeaders = session.opensExactHeaders
        pending = session.pending
        ratchet = session.ratchet
        mark = session.mark
    }

    private static func read(from reader: inout ByteReader) throws(RatchetError) -> Session {
        guard try reader.byte() == stateVersion else { throw .unsupportedVersion }
        let flags = try reader.byte()
        let isResponder = flags & Flag.responder != 0
        let hasReceiving = flags & Flag.receiving != 0
        let isPending = flags & Flag.pending != 0
        let isPadded = flags & Flag.padded != 0
        let opensExact = flags & Flag.opensExact != 0
        // A responder begins by receiving; an initiator waits for its first reply or has a receiving chain.
        guard flags & ~Flag.all == 0, isPadded || !opensExact,
            isResponder ? hasReceiving && !isPending : hasReceiving != isPending,
            isPending || flags & Flag.oneTime == 0
        else { throw .malformed }
        let ownIdentity = IdentityKey(checked: try reader.bytes32())
        let peerIdentity = IdentityKey(checked: try reader.bytes32())
        let sessionID = try reader.bytes32()
        let root = RootKey(secret: try reader.secret(32))
        let peerKey = try reader.bytes32()
        let previousCount = try reader.uint32()
        let nextSendingHeader = HeaderKey(secret: try reader.secret(32))
        let nextReceivingHeader = HeaderKey(secret: try reader.secret(32))
        var sending: TripleRatchet.SendingChain?
        if flags & Flag.sending != 0 {
            let secret = try reader.secret(KeySize.curve25519)
            sending = TripleRatchet.SendingChain(
                pair: AgreementKeyPair(secret: secret, checkedPublicKey: try reader.bytes32()),
                headerKey: HeaderKey(secret: try reader.secret(32)), key: ChainKey(secret: try reader.secret(32)),
                next: try reader.uint32())
        }
        var receiving: TripleRatchet.ReceivingChain?
        if hasReceiving {
            receiving = TripleRatchet.ReceivingChain(
                headerKey: HeaderKey(secret: try reader.secret(32)), number: try reader.uint32(),
                key: ChainKey(secret: try reader.secret(32)), next: try reader.uint32())
            guard receiving?.number != UInt32.max else { throw .malformed }
        }
        let pending =
            isPending ? try PreKeyPart(from: &reader, hasOneTimePreKey: flags & Flag.oneTime != 0) : nil
        let postQuantum = try SparsePostQuantumRatchet(isInitiator: !isResponder, from: &reader)
        var ratchet = TripleRatchet(
            root: root, peerKey: peerKey, sending: sending, receiving: receiving,
            nextSendingHeader: nextSendingHeader, nextReceivingHeader: nextReceivingHeader, postQuantum: postQuantum)
        ratchet.previousCount = previousCount
        ratchet.finished = try FinishedChains(from: &reader, current: receiving?.number)
        return Session(
            role: isResponder ? .responder : .initiator, ownIdentity: ownIdentity, peerIdentity: peerIdentity,
            sessionID: sessionID, version: isPadded ? .paddedHeader : .exactHeader, opensExactHeaders: opensExact,
            pending: pending, ratchet: ratchet)
    }
}
