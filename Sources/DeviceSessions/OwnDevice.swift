// The person's own device: its list, prekeys, peers and room keys, and what connections see of them.
//
// It knows no sessions, which are in the vault, and no requests. A method that changes rows appends the changes; what
// connections see changes after the commit.

package import CommitLoop
package import Devices
package import DoubleRatchet
package import Envelope
package import Protection
package import StorePort
package import Vault

/// The state of a person's own device, apart from its sessions. One thread at a time uses it.
///
/// An object, so that a role that holds it is switched over without copies of this state.
package final class OwnDevice {
    package let device: HostedDevice
    private var state: OwnDeviceState
    /// What connections see of the state.
    private let cache: PeerCache
    private let latches: LatchTable
    /// The chain of a room that the current job has advanced. It stays advanced if the job fails.
    private var advanced: (sender: DeviceID, room: String)?
    private var renewals = SessionRenewals()

    /// Reads the state of a device from the store.
    package init(
        _ device: HostedDevice, sealer: StorageSealer, store: any Store, latches: LatchTable, cache: PeerCache,
        _ changes: inout [StoreChange]
    ) throws(StoreError) {
        state = try OwnDeviceState(device: device, sealer: sealer, store: store, &changes)
        (self.device, self.latches, self.cache) = (device, latches, cache)
        cache.hasHadFront = try store.record(.ownDevices, name: OwnDeviceState.frontRecord) != nil
        for row in try store.records(.ownDevices) where row.name.hasPrefix(OwnDeviceState.sealedRecord) {
            _ = cache.setSealed(true, room: String(row.name.dropFirst(OwnDeviceState.sealedRecord.count)))
        }
        cache.replace(state.peers)
        showOwn()
    }

    /// Makes memory agree with one record of the store after a change of it was not committed.
    package func restore(_ kind: RecordKind, name: String, from store: any Store) {
        state.restore(kind, name: name, from: store)
    }

    package var id: DeviceID { device.id }
    package var deviceList: DeviceList { state.deviceList }

    package func peer(_ name: AccountID) -> Peer? { state.peers[name] }
    package var peers: [AccountID: Peer] { state.peers }
    package func session(with peer: DeviceID) -> SessionID { SessionID(owner: id, peer: peer, in: .only) }

    // MARK: Sessions

    /// Devices whose session cannot be read; each counts as one without keys until it begins a new session.
    package private(set) var unreadable: Set<SessionID> = []
    /// Called once in the life of a process for each session that cannot be read.
    package var onUnreadable: @Sendable (SessionID) -> Void = { _ in }

    /// The sessions with a remote device; nil if there are none, or if their record cannot be read. In the second case
    /// the device counts as one without keys until it begins a new session, and other devices can still be reached.
    ///
    /// - Throws: ``StoreError`` if the store itself cannot be read, so that no device is mistaken for one without keys.
    package func sessions(with peer: DeviceID, in vault: Vault) throws -> SessionBox? {
        let id = session(with: peer)
        do {
            return try vault.session(id)
        } catch {
            guard case .corrupt = error else { throw error }
            if unreadable.insert(id).inserted { onUnreadable(id) }
            return nil
        }
    }

    /// Begins a session with a remote device. An earlier session can still receive.
    ///
    /// - Throws: an error if the bundle is not of the expected identity, or ``StoreError``.
    package func begin<State: VaultHolding>(
        with bundle: PreKeyBundle, of peer: DeviceID, expecting identity: IdentityKey?, in vault: Vault,
        _ unit: inout UnitOfWork<State>
    ) throws {
        let session = try Session.initiate(
            identity: device.identity, with: bundle, expecting: identity, random: &vault.random)
        let id = self.session(with: peer)
        unit.shared.append(id)
        try vault.adopt(session, as: id)
    }

    /// Begins a session with a device that has introduced itself.
    ///
    /// If there is one, a new one takes its place after a pause only; see ``SessionRenewals``. Until then a session that the
    /// device has not answered goes on.
    ///
    /// - Returns: whether the beginning of the session is to be sent to the device; false if the device is known to have it.
    /// - Throws: an error if the bundle is not of the listed identity, or ``StoreError``.
    package func meet<State: VaultHolding>(
        _ introduction: Introduction, _ now: Timestamp, in vault: Vault, _ unit: inout UnitOfWork<State>
    ) throws -> Bool {
        let (device, time) = (introduction.device, now.monotonic)
        let box = try sessions(with: device, in: vault)
        let isRenewal = box.map { $0.sessions.peerIdentity == introduction.bundle.identity } ?? false
        let isAnswered = isRenewal && box.map { $0.sessions.isEstablished } == true
        guard !isRenewal || renewals.isDue(device, isAnswered: isAnswered, now: time) else { return !isAnswered }
        let identity = introduction.deviceList.identity(of: device)
        try begin(with: introduction.bundle, of: device, expecting: identity, in: vault, &unit)
        let before = renewals[device]
        renewals.note(device, isRenewal: isRenewal, now: time)
        unit.onRollback { [self] _, _, _, _ in renewals[device] = before }
        return true
    }

    // MARK: Failed jobs

    /// The state before a job.
    package struct Checkpoint {
        fileprivate let state: OwnDeviceState
    }

    /// Begins a job that may fail.
    package func checkpoint() -> Checkpoint {
        advanced = nil
        return Checkpoint(state: state)
    }

    /// Goes back to the state before a failed job. Only the advanced chain of a room stays; see
    /// ``advancedChain(random:)``.
    package func goBack(to checkpoint: Checkpoint) { state = checkpoint.state }

    /// The row of the chain that a failed job has advanced; nil if there is none.
    ///
    /// It is written although the job failed. Else a copy of the message would open again after a crash.
    package func advancedChain(random: inout some RandomSource) throws -> StoreChange? {
        guard let advanced else { return nil }
        return try state.roomKeys.row(from: advanced.sender, in: advanced.room, random: &random)
    }

    // MARK: What connections see

    /// Publishes the state of a peer to connections after the commit.
    package func show(_ name: AccountID, _ unit: inout UnitOfWork<some Participants>) {
        unit.onCommit { [self] _, _, _ in cache[name] = state.peers[name] }
    }

    private func showOwn() { cache.own = OwnDevices(deviceList: state.deviceList, device: id) }

    /// Stores a peer and publishes it to connections after the commit.
    package func put(_ peer: Peer, _ unit: inout UnitOfWork<some Participants>) {
        show(peer.name, &unit)
        state.put(peer, &unit.changes)
    }

    /// Stores the device list of the person's own account and publishes it to connections after the commit.
    private func put(ownList deviceList: DeviceList, _ unit: inout UnitOfWork<some Participants>) {
        state.put(deviceList: deviceList, &unit.changes)
        unit.onCommit { [self] _, _, _ in showOwn() }
    }

    /// Stores another version of the own list, also for the peers that are the person's other devices.
    package func take(_ deviceList: DeviceList, _ unit: inout UnitOfWork<some Participants>) {
        let others = state.peers.values.filter { deviceList.continues($0.deviceList) }
        put(ownList: deviceList, &unit)
        for var peer in others {
            peer.deviceList = deviceList
            put(peer, &unit)
        }
    }

    // MARK: Own keys

    /// Makes the envelope of an introduction.
    package func introduction(
        _ message: MessageID, _ now: Timestamp, random: inout some RandomSource, _ changes: inout [StoreChange]
    ) throws -> Envelope {
        let bundle = try state.preKeys.bundle(
            forOne: true, identity: device.identity, now: now, random: &random, &changes)
        let introduction = Introduction(time: now.wall, deviceList: deviceList, bundle: bundle, device: id)
        return Envelope(
            kind: .introduction, sender: id, messageID: message,
            ratchetMessage: introduction.bytes(signedBy: device.identity))
    }

    /// Makes one-time prekeys for a directory that has `left` of them; none if it has enough.
    package func oneTimeKeys(
        left: Int = 0, _ now: Timestamp, random: inout some RandomSource, _ changes: inout [StoreChange]
    ) throws -> [OneTimePreKey.Public] {
        try state.preKeys.replenish(left: left, now: now, random: &random, &changes)
    }

    /// Makes a bundle for a directory, without a one-time prekey.
    package func bundle(
        _ now: Timestamp, random: inout some RandomSource, _ changes: inout [StoreChange]
    ) throws -> PreKeyBundle {
        try state.preKeys.bundle(forOne: false, identity: device.identity, now: now, random: &random, &changes)
    }

    /// Opens the first message of a session, and consumes no prekey yet.
    package func begin(
        _ message: [UInt8], _ associated: [UInt8], from sender: DeviceID, _ plaintext: inout [UInt8]
    ) throws -> PreKeyStore.Beginning {
        try state.preKeys.store.begin(
            identity: device.identity, message: message.span, associatedData: associated.span,
            expecting: state.identity(of: sender), plaintext: &plaintext)
    }

    /// Consumes the prekeys that a session was started with.
    package func commit(
        _ beginning: consuming PreKeyStore.Beginning, _ now: Timestamp, random: inout some RandomSource,
        _ changes: inout [StoreChange]
    ) throws -> Session {
        try state.preKeys.commit(beginning, now: now, random: &random, &changes)
    }

    // MARK: Lists and names of peers

    /// Judges a list that a device shows.
    package func assess(
        _ shown: DeviceList, with device: DeviceID, as names: [AccountID], _ now: Timestamp
    ) -> OwnDeviceState.ListAssessment {
        state.assess(shown, with: device, as: names, now: now)
    }

    /// The owner of a device: a peer, or the person for another device of their own; nil if unknown.
    package func owner(of device: DeviceID) -> AccountID? { state.owner(of: device) }

    /// The peer whose keys were last seen under the source's name; nil if it has none besides the accounts.
    private func alias(_ source: MessageSource) -> Peer? {
        guard !source.name.isEmpty else { return nil }
        return latches.peer(named: source.name, for: .own).flatMap { state.peers[$0] }
    }

    /// Checks that a known device writes under a name of its owner, or under a name that no known peer has.
    package func check(_ source: MessageSource, of device: DeviceID) throws(OpenError) {
        guard state.identity(of: device) != nil else { return }
        // Only the person's own devices write under the person's own nick.
        guard source.accounts != [.own] || deviceList.identity(of: device) != nil else {
            throw OpenError(reason: .wrongSource)
        }
        let named = source.accounts.compactMap { state.peers[$0] }
        let known = named.isEmpty ? [alias(source)].compactMap { $0 } : named
        // The name belongs to a peer whose list does not have the device, so the message has no owner.
        guard known.isEmpty || known.contains(where: { $0.deviceList.identity(of: device) != nil }) else {
            throw OpenError(reason: .wrongSource)
        }
    }

    /// The peer whose device has sealed an envelope. If several peers list the device, the one with the source's name.
    package func owner(of envelope: Envelope, from source: MessageSource) throws(OpenError) -> AccountID {
        let named = source.accounts.compactMap { state.peers[$0] } + [alias(source)].compactMap { $0 }
        if let peer = named.first(where: { $0.hasConfirmed(envelope.sender) }) { return peer.name }
        guard let owner = state.owner(of: envelope.sender) else { throw OpenError(reason: .unknownSender) }
        // The source has the name of a peer that only lists the device.
        guard named.isEmpty else { throw OpenError(reason: .wrongSource) }
        return owner
    }

    /// The event if a peer writes under a name that it did not use before, whatever account the backend names; else
    /// nil.
    package func otherName(_ sender: AccountID, _ source: MessageSource) -> PeerEvent? {
        let seen = latches.peer(named: source.name, for: .own) ?? state.peers[.nick(source.name)]?.name
        return (seen ?? (source.accounts.contains(sender) ? sender : nil)) == sender ? nil : .otherName(sender)
    }

    /// Notes that a message of a peer was opened.
    ///
    /// - Returns: whether the peer's conversation is protected from now on; false while other keys are offered.
    package func noteOpened(from name: AccountID, _ unit: inout UnitOfWork<some Participants>) -> Bool {
        guard var peer = state.peers[name], peer.offered == nil else { return false }
        if !peer.isEstablished {
            peer.isEstablished = true
            put(peer, &unit)
        }
        return true
    }

    /// Accepts a request about a room, which counts once.
    package func take(
        _ request: RoomRequest, of device: DeviceID, from name: AccountID,
        _ unit: inout UnitOfWork<some Participants>
    ) throws(OpenError) {
        guard let identity = state.identity(of: device), request.isSigned(by: identity, device) else {
            throw OpenError(reason: .notAuthentic)
        }
        guard var peer = state.peers[name] else { return }
        guard peer.takes(request: request.number, of: device) else { throw OpenError(reason: .copy) }
        put(peer, &unit)
    }

    /// Joins the list of a peer's account, as the person has decided and the peer has confirmed.
    package func join(
        _ list: DeviceList, of name: AccountID, _ unit: inout UnitOfWork<some Participants>
    ) throws(OpenError) {
        guard name == state.joining, var peer = state.peers[name], list.continues(peer.deviceList),
            list.identity(of: id) == device.identity.publicKey
        else { throw OpenError(reason: .unknownSender) }
        state.joining = nil
        put(ownList: list, &unit)
        peer.deviceList = list
        peer.isVerified = true
        put(peer, &unit)
    }

    // MARK: Sealing

    /// The devices that get a message.
    package struct Readers {
        /// Devices of the recipient, with the key that a session needs; nil if no list has the device.
        package var devices: [(id: DeviceID, identity: IdentityKey?)] = []
        /// The person's other devices, which get a copy.
        package var copies: [ListedDevice] = []
    }

    /// The devices that get a message to an account, or this one device only.
    package func readers(of recipient: AccountID, only device: DeviceID? = nil) -> Readers {
        if let device { return Readers(devices: [(device, state.identity(of: device))]) }
        guard let peer = state.peers[recipient], peer.offered == nil else { return Readers() }
        let listed = peer.deviceList.current.filter { $0.id != id }
        return Readers(
            devices: listed.map { ($0.id, $0.identity) },
            copies: deviceList.current.filter { own in own.id != id && !listed.contains { $0.id == own.id } })
    }

    /// The devices of a member of a room; none while other keys are offered.
    package func devices(of member: AccountID) -> [ListedDevice] {
        guard let peer = state.peers[member], peer.offered == nil else { return [] }
        return peer.deviceList.current
    }

    /// The control message with our list for a peer that has an older version; nil if there is none to send.
    package func news(for name: AccountID, _ changes: inout [StoreChange]) -> ControlMessage? {
        guard var peer = state.peers[name], peer.sentVersions != deviceList.versions.count,
            !peer.deviceList.continues(deviceList)
        else { return nil }
        let isFirst = peer.sentVersions == 0 && deviceList.versions.count == 1
        peer.sentVersions = deviceList.versions.count
        state.put(peer, &changes)
        return isFirst ? nil : .acknowledge(deviceList)
    }

    // MARK: Rooms

    /// Returns the key for a room and these readers, made if there is none for them.
    package func roomKey(for room: String, readers: Set<DeviceID>, random: inout some RandomSource) -> RoomKeys.Own {
        state.roomKeys.key(for: room, readers: readers, random: &random)
    }

    /// The control message with the key of a room for one member's devices; nil if all of them have it and none has asked.
    package func distribution(of key: RoomKeys.Own, room: String, to devices: [DeviceID]) -> ControlMessage? {
        guard state.roomKeys.isKeyDue(for: devices, in: room) else { return nil }
        return .senderKey(room: room, key.key.distribution, ended: state.roomKeys.ended(for: devices, in: room))
    }

    /// Records the devices that the key of a room is sent to.
    package func give(to readers: Set<DeviceID>, in room: String) { state.roomKeys.give(to: readers, in: room) }

    /// The row of the own key of a room.
    package func row(of key: RoomKeys.Own, room: String, random: inout some RandomSource) throws -> StoreChange {
        try state.roomKeys.row(own: key, room: room, random: &random)
    }

    /// Records that a device has asked for the key of a room.
    package func asked(by reader: DeviceID, in room: String) { state.roomKeys.asked(by: reader, in: room) }

    /// Takes the key of a sender in a room.
    ///
    /// - Returns: how many messages under the sender's earlier keys never came.
    package func take(
        _ distribution: SenderKeyDistribution, ended: [EndedKey], from sender: DeviceID, in room: String,
        random: inout some RandomSource, _ changes: inout [StoreChange]
    ) -> Int {
        let missing = state.roomKeys.missing(ended, from: sender, in: room)
        if state.roomKeys.take(distribution, from: sender, in: room),
            let row = try? state.roomKeys.row(from: sender, in: room, random: &random)
        {
            changes.append(row)
        }
        return missing
    }

    /// Opens a message to a room, which advances its sender's chain.
    package func open(
        _ envelope: Envelope, _ associated: [UInt8], in room: String, random: inout some RandomSource,
        _ changes: inout [StoreChange]
    ) throws -> (plaintext: [UInt8], skipped: Int) {
        let opened = try decrypt(envelope, associated, room)
        advanced = (envelope.sender, room)
        changes.append(try state.roomKeys.row(from: envelope.sender, in: room, random: &random))
        if opened.skipped > 0 {
            changes += try state.roomKeys.boundSkipped(of: envelope.sender, besides: room, random: &random)
        }
        return opened
    }

    private func decrypt(
        _ envelope: Envelope, _ associated: [UInt8], _ room: String
    ) throws(OpenError) -> (plaintext: [UInt8], skipped: Int) {
        var reason = OpenFailure.keyMissing
        for key in state.roomKeys.received(from: envelope.sender, in: room) {
            var plaintext: [UInt8] = []
            do throws(RatchetError) {
                let received = try key.receiver.decrypt(
                    envelope.ratchetMessage.span, associatedData: associated.span, into: &plaintext)
                return (plaintext, received.skipped)
            } catch {
                switch error {
                case .unknownSenderKey: continue
                case .duplicate: throw OpenError(reason: .copy)
                case .tooFarAhead: reason = .tooFarAhead
                case .beforeDistribution: reason = .beforeJoining
                case .malformed, .unsupportedVersion: reason = .malformed
                default: reason = .notAuthentic
                }
            }
        }
        throw OpenError(reason: reason)
    }

    /// Signs a request to the other members of a room.
    package func request(
        _ act: RoomRequest.Act, room: String, network: String, _ now: Timestamp, _ changes: inout [StoreChange]
    ) -> RoomRequest {
        RoomRequest(
            act: act, number: state.nextRequest(now, &changes), room: room, network: network, device: id,
            identity: device.identity)
    }

    // MARK: What a person decides

    /// Carries out a decision about a peer; none if the peer is unknown.
    ///
    /// - Returns: devices whose sessions end.
    package func decide(
        _ name: AccountID, _ decision: PeerDecision, _ unit: inout UnitOfWork<some Participants>
    ) -> [DeviceID] {
        guard var peer = state.peers[name] else { return [] }
        let devices = peer.deviceList.current.map(\.id)
        switch decision {
        case .verify:
            peer.isVerified = true
            put(peer, &unit)
        case .confirm(let root):
            guard peer.offered == nil, peer.deviceList.root == root else { return [] }
            peer.isVerified = true
            put(peer, &unit)
        case .accept:
            guard let offered = peer.offered, !state.contradicts(offered) else { return [] }
            peer.acceptOffered()
            put(peer, &unit)
            return devices
        case .keep:
            guard peer.offered != nil else { return [] }
            peer.keepPinned()
            put(peer, &unit)
        case .forget:
            show(name, &unit)
            state.forget(name, &unit.changes)
            return devices
        case .adopt: adopt(peer, &unit)
        case .join: state.joining = name
        }
        return []
    }

    /// Adds the device of a peer, who is the person too, to the own list.
    private func adopt(_ peer: Peer, _ unit: inout UnitOfWork<some Participants>) {
        guard let theirs = peer.deviceList.current.first, peer.offered == nil else { return }
        // The list has the device already if this repeats a decision whose control message was lost.
        if deviceList.identity(of: theirs.id) == nil {
            guard peer.deviceList.current.count == 1, let longer = deviceList.adding(theirs, by: id, device.identity)
            else {
                return
            }
            put(ownList: longer, &unit)
        }
        var peer = peer
        peer.deviceList = deviceList
        peer.note(theirs.id)
        peer.isVerified = true
        put(peer, &unit)
    }

    /// Adds another device of the person to the own list, signed by this one.
    ///
    /// - Returns: false if the list does not change: a limit is reached, or it has the device already.
    package func add(_ device: ListedDevice, _ unit: inout UnitOfWork<some Participants>) -> Bool {
        guard let longer = deviceList.adding(device, by: id, self.device.identity) else { return false }
        take(longer, &unit)
        return true
    }

    /// Replaces the own list by that of the person's account, which another device has added this one to.
    ///
    /// - Parameter root: of the account's list, as the person has chosen it.
    /// - Returns: false if it is another list, or does not have this device under its key.
    package func join(
        _ list: DeviceList, root: IdentityKey, _ unit: inout UnitOfWork<some Participants>
    ) -> Bool {
        guard list.root == root, list.identity(of: id) == device.identity.publicKey else { return false }
        put(ownList: list, &unit)
        return true
    }

    /// Removes a lost device from the own list.
    ///
    /// - Returns: false if the list does not change.
    package func revoke(_ lost: DeviceID, _ unit: inout UnitOfWork<some Participants>) -> Bool {
        guard let shorter = deviceList.removing(lost, by: id, device.identity) else { return false }
        take(shorter, &unit)
        return true
    }
}
