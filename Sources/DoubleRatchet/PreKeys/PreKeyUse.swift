/// Starting a session as its responder, from a ``PreKeyStore``.
extension PreKeyStore {
    /// A session started by a first message, with the prekeys that it uses.
    ///
    /// No prekey is consumed, and the session is inaccessible, until ``commit(to:at:_:)``. Dropping the value changes
    /// nothing.
    public struct Beginning: ~Copyable {
        fileprivate let session: Session
        fileprivate let use: Use

        /// The device at the other end.
        public var peerIdentity: IdentityKey { session.peerIdentity }

        /// Consumes the one-time prekeys in `store` and returns the session, to be stored in one transaction with
        /// `changes`.
        ///
        /// - Parameters:
        ///   - store: the store that started it.
        ///   - now: the caller's time, in milliseconds.
        ///   - changes: the changes to store are appended.
        /// - Throws: ``RatchetError/unknownPreKey`` if the prekeys have been consumed since, or are one-time keys of
        ///   another store, or if a prekey is older than ``PreKeyLimits/lifetime``; then nothing has changed.
        public consuming func commit(
            to store: inout PreKeyStore, at now: Int64, _ changes: inout [PreKeyChange]
        ) throws(RatchetError) -> Session {
            guard store.allows(use), !store.hasExpired(use, at: now) else { throw .unknownPreKey }
            if let id = use.oneTime { store.remove(.init(.oneTime, id), &changes) }
            if let id = use.kem { store.remove(.init(.kem, id), &changes) }
            if !use.isOnce { store.remember(session: use.session, at: now, &changes) }
            return session
        }
    }

    /// The prekeys that a first message consumes.
    fileprivate struct Use {
        let signed: UInt32
        let anyKEM: UInt32
        let oneTime: UInt32?
        /// Nil for a last-resort key, which is not consumed.
        let kem: UInt32?
        package let session: Bytes32

        /// Whether a second use is impossible because the commit removes a key.
        var isOnce: Bool { oneTime != nil || kem != nil }
    }

    /// Whether the prekeys are still available. Without a one-time key, only the stored marks identify a copy of a
    /// first message.
    private func allows(_ use: Use) -> Bool {
        if let id = use.oneTime, oneTime[id] == nil { return false }
        if let id = use.kem, kem[id] == nil { return false }
        guard !use.isOnce else { return true }
        return begun.count < limits.begun && !begun.values.contains { $0.session == use.session }
    }

    /// Whether a key has exceeded its lifetime. Its deletion waits for the next rotation, and its use must not.
    private func hasExpired(_ use: Use, at now: Int64) -> Bool {
        [signed[use.signed]?.madeAt, kem[use.anyKEM]?.madeAt].contains { madeAt in
            madeAt.map { now - $0 >= limits.lifetime } ?? true
        }
    }

    /// Opens a first message with the prekeys that it names (PQXDH, section 3.4), without consuming them yet.
    ///
    /// - Parameters:
    ///   - identity: our own identity.
    ///   - message: the first message, or any later one before our first reply.
    ///   - associatedData: the data that the sender bound.
    ///   - expected: the identity that the caller has pinned for this peer, if any.
    ///   - plaintext: the opened message is appended. Deliver it when the commit is stored.
    /// - Throws: ``RatchetError/unknownPreKey`` if a key was consumed, has expired or never existed, if the message is
    ///   a copy, or if it uses no one-time prekey and ``PreKeyLimits`` require one; else the errors that
    ///   ``Session/respond(identity:signedPreKey:oneTimePreKey:kemPreKey:message:associatedData:expecting:plaintext:)`` throws.
    public func begin(
        identity: borrowing IdentityKeyPair, message: Span<UInt8>, associatedData: Span<UInt8>,
        expecting expected: IdentityKey?, plaintext: inout [UInt8]
    ) throws(RatchetError) -> Beginning {
        let header = try PreKeyMessage.header(of: message)
        guard let signed = signed[header.signedPreKeyID], let kem = kem[header.kemPreKeyID] else {
            throw .unknownPreKey
        }
        let use = Use(
            signed: header.signedPreKeyID, anyKEM: header.kemPreKeyID, oneTime: header.oneTimePreKeyID,
            kem: kem.key.publicKey.isLastResort ? nil : header.kemPreKeyID,
            session: Bytes32(header.sessionID))
        guard allows(use), use.oneTime != nil || !limits.needsOneTimePreKey else { throw .unknownPreKey }
        guard let id = use.oneTime, let once = oneTime[id] else {
            let session = try Session.respond(
                identity: identity, signedPreKey: signed.key, oneTimePreKey: nil, kemPreKey: kem.key, message: message,
                associatedData: associatedData, expecting: expected, plaintext: &plaintext)
            return Beginning(session: session, use: use)
        }
        let session = try Session.respond(
            identity: identity, signedPreKey: signed.key, oneTimePreKey: once.key, kemPreKey: kem.key, message: message,
            associatedData: associatedData, expecting: expected, plaintext: &plaintext)
        return Beginning(session: session, use: use)
    }
}
