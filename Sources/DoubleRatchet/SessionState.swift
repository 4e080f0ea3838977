// The state of a session as bytes, version 1. It holds secrets: whoever stores it seals it.
//
//     version (1) | flags (1) | own identity (64) | peer identity (64) | root key (32) | own ratchet secret (32) |
//     [peer ratchet key (32)] | [sending chain key (32), number (4)] | [receiving chain key (32), number (4)] |
//     previous count (4) | [prekey part (1673 or 1677)] | skipped count (4) | skipped keys ...
//
// A skipped key is ratchet key (32), number (4), key (32), the oldest first. Flags: 1 initiator, 2 peer key, 4 sending
// chain, 8 receiving chain, 16 prekey part.

extension Session {
    /// The version that this library writes.
    public static let stateVersion: UInt8 = 1

    /// Appends the state. The bytes are secret.
    public borrowing func serialize(into output: inout [UInt8]) {
        var flags: UInt8 = isInitiator ? 1 : 0
        if ratchet.peerKey != nil { flags |= 2 }
        if ratchet.sending != nil { flags |= 4 }
        if ratchet.receiving != nil { flags |= 8 }
        if preKeys != nil { flags |= 16 }
        output += [Self.stateVersion, flags]
        output += ownIdentity.bytes + peerIdentity.bytes
        output.append(ratchet.root.secret)
        output.append(ratchet.ownSecret)
        if let key = ratchet.peerKey { output += key }
        for case let chain? in [ratchet.sending, ratchet.receiving] {
            output.append(chain.secret)
            output.append(number: chain.index)
        }
        output.append(number: ratchet.previousCount)
        preKeys?.write(into: &output)
        let skipped = ratchet.skipped.inOrder
        output.append(number: UInt32(skipped.count))
        for (place, key) in skipped {
            output += place.ratchetKey
            output.append(number: place.index)
            output.append(key)
        }
    }

    /// Reads what ``serialize(into:)`` wrote.
    ///
    /// - Throws: ``RatchetError/malformed``, ``RatchetError/unsupportedVersion(_:)`` or ``RatchetError/invalidKey``.
    public init(serialized: Span<UInt8>) throws(RatchetError) {
        var reader = ByteReader(serialized)
        let version = try reader.byte()
        guard version == Self.stateVersion else { throw .unsupportedVersion(version) }
        let flags = try reader.byte()
        guard flags < 32 else { throw .malformed }
        let own = try IdentityKey(try reader.take(64))
        let peer = try IdentityKey(try reader.take(64))
        let root = RootKey(secret: try reader.secret(32))
        let ownSecret = try reader.secret(32)
        let peerKey = flags & 2 == 0 ? nil : try reader.take(32)
        let sending = flags & 4 == 0 ? nil : ChainKey(secret: try reader.secret(32), index: try reader.number())
        let receiving = flags & 8 == 0 ? nil : ChainKey(secret: try reader.secret(32), index: try reader.number())
        var ratchet = try DoubleRatchet(
            root: root, ownSecret: ownSecret, peerKey: peerKey, sending: sending, receiving: receiving,
            previousCount: try reader.number())
        let preKeys = flags & 16 == 0 ? nil : try PreKeyHeader(&reader)
        let count = try reader.number()
        guard count <= RatchetLimits.maximumSkippedKeys else { throw .malformed }
        for _ in 0..<count {
            let place = SkippedKeys.Place(ratchetKey: try reader.take(32), index: try reader.number())
            ratchet.skipped.insert(place, try reader.secret(32))
        }
        try reader.finish()
        self.init(
            peerIdentity: peer, ownIdentity: own, isInitiator: flags & 1 == 1, ratchet: ratchet, preKeys: preKeys)
    }
}
