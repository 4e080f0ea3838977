// The vault's devices and sessions: loaded when needed, sealed when changed, set up inside the vault.
//
// Both ends of a hosted conversation are in one vault. PQXDH runs inside the vault, with prekeys that are generated,
// used and wiped at once, and no part of the key agreement crosses the backend.

package import Devices
package import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

/// One side of the sessions between two devices, in memory.
package final class SessionBox {
    package var sessions: SessionRecord
    /// The fence of the row that was read or written last.
    package var fence: UInt64

    package init(_ sessions: consuming SessionRecord, fence: UInt64) {
        self.sessions = sessions
        self.fence = fence
    }
}

/// Loads, makes and seals devices and sessions.
///
/// An object: a member of ``Vault`` that is a value is copied to be read.
package final class SessionCache {
    /// Ours: sessions in memory, about 1 KB each. Further ones are loaded from the store when they are needed.
    package static var sessionLimit: Int { 50_000 }

    /// Ours: capacity for a serialized state, so that the array does not grow and leave copies in memory. A session has
    /// some 1 KB, and more if it has missed many messages.
    package static var stateCapacity: Int { 16 * 1024 }

    private let sealer: StorageSealer
    private let store: any Store
    package var random: VaultRandomSource
    private var devices: [AccountID: HostedDevice] = [:]
    private var owners: [DeviceID: AccountID] = [:]
    /// Ours: sessions in memory, besides those that are not written yet.
    private let sessionLimit: Int
    /// At most half of the limit. When it is full it replaces `older`, and sessions that were not used since are dropped. So
    /// a session that a job has asked for stays while the job asks for others.
    private var recent: [SessionID: SessionBox] = [:]
    private var older: [SessionID: SessionBox] = [:]
    /// Sessions that have changed since they were last written.
    private var dirty: Set<SessionID> = []
    /// The state that is being sealed; empty between batches. It keeps its memory.
    private var serialized: [UInt8] = []

    package init(
        sealer: StorageSealer, store: any Store, random: some RandomSource,
        sessionLimit: Int = SessionCache.sessionLimit
    ) {
        (self.sealer, self.store, self.random) = (sealer, store, VaultRandomSource(random))
        self.sessionLimit = sessionLimit
        serialized.reserveCapacity(Self.stateCapacity)
    }

    // MARK: Devices

    /// Loads the stored devices.
    package func adopt(_ rows: [DeviceRow]) throws(StoreError) {
        for row in rows {
            do {
                var bytes = try sealer.open(row.sealedIdentity, label: Self.label(row.id))
                defer { bytes.wipe() }
                let identity = try IdentityKeyPair(seed: bytes.span)
                devices[row.account] = HostedDevice(id: row.id, account: row.account, identity: identity)
                owners[row.id] = row.account
            } catch {
                throw .corrupt(
                    "A device in the store cannot be unsealed: the row is damaged. Bring back a backup: "
                        + "pawl restore FILE --data DIR.")
            }
        }
    }

    package func owner(of device: DeviceID) -> AccountID? { owners[device] }

    /// Whether an id belongs to a device in this vault, or to the second end of its conversation with itself.
    package func holds(_ device: DeviceID) -> Bool { owners[DeviceID(device.value & ~1)] != nil }

    package func device(of account: AccountID) -> HostedDevice? { devices[account] }

    /// The device of an account, made if there is none; then the change that stores it is appended.
    ///
    /// - Parameter isTaken: whether an id belongs to a remote device; a new device never gets such an id.
    package func device(
        for account: AccountID, now: Timestamp, avoiding isTaken: (DeviceID) -> Bool, _ changes: inout [StoreChange]
    ) throws -> HostedDevice {
        if let device = devices[account] { return device }
        var number: UInt64 = 0
        while number == 0 || owners[DeviceID(number)] != nil || isTaken(DeviceID(number))
            || isTaken(DeviceID(number | 1))
        {
            withUnsafeMutableBytes(of: &number) { random.fill($0) }
            // The lowest bit distinguishes the two ends of a device's conversation with itself.
            number &= ~1
        }
        let id = DeviceID(number)
        let identity = IdentityKeyPair(random: &random)
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.stateCapacity)
        identity.serialize(into: &bytes)
        let sealed = try sealer.seal(bytes, label: Self.label(id), random: &random)
        bytes.wipe()
        changes.append(.putDevice(DeviceRow(id: id, account: account, sealedIdentity: sealed, createdAt: now.wall)))
        let device = HostedDevice(id: id, account: account, identity: identity)
        devices[account] = device
        owners[id] = account
        return device
    }

    package func forget(_ account: AccountID) {
        guard let device = devices.removeValue(forKey: account) else { return }
        owners[device.id] = nil
        recent = recent.filter { $0.key.owner != device.id && $0.key.peer != device.id }
        older = older.filter { $0.key.owner != device.id && $0.key.peer != device.id }
        dirty = dirty.filter { $0.owner != device.id && $0.peer != device.id }
    }

    // MARK: Sessions

    /// The session ids of both ends of a conversation between devices, or of a device with itself.
    ///
    /// - Parameter shard: that of the conversation.
    package static func ends(
        sender: DeviceID, recipient: DeviceID, in shard: Shard
    ) -> (sending: SessionID, receiving: SessionID) {
        let twin = sender == recipient ? DeviceID(recipient.value | 1) : recipient
        return (
            SessionID(owner: sender, peer: twin, in: shard), SessionID(owner: twin, peer: sender, in: shard)
        )
    }

    /// The sessions with a device, from memory or from the store; nil if there are none.
    package func session(_ id: SessionID) throws(StoreError) -> SessionBox? {
        if let box = cached(id) { return box }
        guard let row = try store.session(id) else { return nil }
        do {
            var bytes = try sealer.open(row.sealedState, label: Self.label(id, fence: row.fence))
            defer { bytes.wipe() }
            let box = SessionBox(try SessionRecord(serialized: bytes.span), fence: row.fence)
            // Sessions inside the vault outlive versions of the program. Both ends come through here.
            if holds(id.owner), holds(id.peer) { box.sessions.padHeaders() }
            keep(box, id)
            return box
        } catch {
            throw .corrupt("A session in the store cannot be unsealed: the row is damaged.")
        }
    }

    private func cached(_ id: SessionID) -> SessionBox? {
        if let box = recent[id] { return box }
        guard let box = older[id] else { return nil }
        keep(box, id)
        return box
    }

    private func keep(_ box: SessionBox, _ id: SessionID) {
        if recent.count >= sessionLimit / 2, recent[id] == nil {
            let unwritten = older.filter { dirty.contains($0.key) }
            older = recent
            recent = unwritten
        }
        older[id] = nil
        recent[id] = box
    }

    private func remove(_ id: SessionID) { (recent[id], older[id]) = (nil, nil) }

    /// Sets up both ends of a session inside the vault. Nothing is sent: the prekeys are made for this use, used at
    /// once and wiped.
    ///
    /// A device cannot have a session with itself: its conversation with itself gets a second identity, for this
    /// session only.
    package func pair(_ sender: HostedDevice, _ recipient: HostedDevice, in shard: Shard) throws {
        guard sender === recipient else { return try pair(sender, recipient, in: shard, identity: recipient.identity) }
        let twin = IdentityKeyPair(random: &random)
        try pair(sender, recipient, in: shard, identity: twin)
    }

    private func pair(
        _ sender: HostedDevice, _ recipient: HostedDevice, in shard: Shard, identity: borrowing IdentityKeyPair
    ) throws {
        let signed = SignedPreKey(id: 1, identity: identity, random: &random)
        let kem = KEMPreKey(id: 1, isLastResort: false, identity: identity, random: &random)
        let once = OneTimePreKey(id: 1, random: &random)
        let bundle = PreKeyBundle(
            identity: identity.publicKey, signedPreKey: signed.publicKey, kemPreKey: kem.publicKey,
            oneTimePreKey: once.publicKey)
        let onceOrNone = Optional(consume once)
        let purpose = Array("pawl vault pairing".utf8)
        let nothing: [UInt8] = []
        var initiator = try Session.initiate(
            identity: sender.identity, with: bundle, expecting: identity.publicKey, random: &random)
        var message: [UInt8] = []
        var ignored: [UInt8] = []
        try initiator.encrypt(nothing.span, associatedData: purpose.span, random: &random, into: &message)
        var responder = try Session.respond(
            identity: identity, signedPreKey: signed, oneTimePreKey: onceOrNone, kemPreKey: kem,
            message: message.span, associatedData: purpose.span, expecting: sender.identity.publicKey,
            plaintext: &ignored)
        var answer: [UInt8] = []
        try responder.encrypt(nothing.span, associatedData: purpose.span, random: &random, into: &answer)
        _ = try initiator.decrypt(answer.span, associatedData: purpose.span, into: &ignored)
        let ends = Self.ends(sender: sender.id, recipient: recipient.id, in: shard)
        let fences = (
            sending: try store.session(ends.sending)?.fence ?? 0,
            receiving: try store.session(ends.receiving)?.fence ?? 0
        )
        keep(SessionBox(SessionRecord(initiator), fence: fences.sending), ends.sending)
        keep(SessionBox(SessionRecord(responder), fence: fences.receiving), ends.receiving)
        dirty.formUnion([ends.sending, ends.receiving])
    }

    /// Adds a session that was begun with a remote device. An earlier session can still receive.
    package func adopt(_ session: consuming Session, as id: SessionID) throws(StoreError) {
        // An unreadable row is replaced, like one of another identity.
        if let box = try? self.session(id), box.sessions.peerIdentity == session.peerIdentity {
            box.sessions.begin(session)
        } else {
            var fence = cached(id)?.fence
            if fence == nil { fence = try store.session(id)?.fence }
            keep(SessionBox(SessionRecord(session), fence: fence ?? 0), id)
        }
        dirty.insert(id)
    }

    /// Undoes ``adopt(_:as:)``.
    ///
    /// - Parameter box: the sessions before it.
    package func restore(_ box: SessionBox?, as id: SessionID) {
        if let box, cached(id) === box { return _ = box.sessions.abandon() }
        guard let box else {
            remove(id)
            dirty.remove(id)
            return
        }
        keep(box, id)
    }

    /// Adds a session that a remote device has begun while ours is kept: it only receives, unless ours stays unanswered.
    ///
    /// - Parameter box: the sessions with the device; ours is kept.
    package func add(crossed session: consuming Session, to box: SessionBox, as id: SessionID) {
        _ = box.sessions.accept(session)
        dirty.insert(id)
    }

    package func markDirty(_ id: SessionID) { dirty.insert(id) }

    /// 64 random bits.
    package func randomNumber() -> UInt64 {
        var number: UInt64 = 0
        withUnsafeMutableBytes(of: &number) { random.fill($0) }
        return number
    }

    /// The rows of all sessions that changed, each as a group of its own.
    package func takeChanges() throws -> [(row: SessionID, group: ChangeGroup)] {
        var rows: [(row: SessionID, group: ChangeGroup)] = []
        rows.reserveCapacity(dirty.count)
        guard !dirty.isEmpty else { return rows }
        defer { serialized.wipe() }
        for id in dirty {
            guard let box = recent[id] ?? older[id] else { continue }
            serialized.wipe()
            box.sessions.serialize(into: &serialized)
            box.fence += 1
            let sealed = try sealer.seal(serialized, label: Self.label(id, fence: box.fence), random: &random)
            let row = SessionRow(id: id, fence: box.fence, sealedState: sealed)
            rows.append((id, ChangeGroup([.putSession(row)], in: .shard(id.shard))))
        }
        dirty.removeAll(keepingCapacity: true)
        return rows
    }

    /// Drops sessions from memory, so that they are read from the store again.
    package func drop(_ ids: some Sequence<SessionID>) {
        for id in ids {
            remove(id)
            dirty.remove(id)
        }
    }

    /// Drops a device that was not committed.
    package func drop(device account: AccountID) {
        guard let device = devices.removeValue(forKey: account) else { return }
        owners[device.id] = nil
    }

    // MARK: Lines at rest

    package func seal(line: [UInt8], sequence: UInt64) throws -> [UInt8] {
        try sealer.seal(line, label: "delivery \(sequence)", random: &random)
    }

    package func open(line: [UInt8], sequence: UInt64) -> [UInt8]? {
        try? sealer.open(line, label: "delivery \(sequence)")
    }

    private static func label(_ device: DeviceID) -> String { "device \(device.value)" }

    private static func label(_ id: SessionID, fence: UInt64) -> String {
        "session \(id.owner.value) \(id.peer.value) \(fence)"
    }
}
