// Opening messages of devices elsewhere with the sessions of the person's own device.

package import CommitLoop
package import Devices
import DoubleRatchet
package import Envelope
package import Protection
import StorePort
package import Vault

/// An authentic message arrived in a session that is not kept: both ends began one, and ours is kept.
///
/// A copy of the message opens again, because no state has changed: the caller must not show it. A caller that shows
/// such messages has the session added instead.
package struct CrossedSessions: Error {
    /// The padded body.
    package var body: [UInt8]

    /// Whether the message was a text.
    package var isText: Bool { (try? Body(body))?.kind != .control }
}

/// What happens to a session that the other end has begun at the same time as this one, while ours is kept.
package struct CrossingSession {
    /// Whether it is added as one that only receives, so that each of its messages opens once. If not,
    /// ``CrossedSessions`` is thrown and nothing changes.
    fileprivate var isAdded: Bool
    /// Whether a padded body of the kind `direct` begins a session in place of ours.
    fileprivate var isReplacement: ([UInt8]) -> Bool

    package static var refused: Self { Self(isAdded: false) { _ in false } }

    /// - Parameter isReplacement: whether a padded body of the kind `direct` begins a session in place of ours.
    package static func added(replacingBy isReplacement: @escaping ([UInt8]) -> Bool = { _ in false }) -> Self {
        Self(isAdded: true, isReplacement: isReplacement)
    }

    /// For messages whose body is a content key, which replaces no session.
    fileprivate var ofContentKeys: Self { Self(isAdded: isAdded) { _ in false } }

    private init(isAdded: Bool, isReplacement: @escaping ([UInt8]) -> Bool) {
        (self.isAdded, self.isReplacement) = (isAdded, isReplacement)
    }
}

/// The result of opening an envelope.
package struct OpenedBody {
    /// The padded body.
    package var body: [UInt8]
    /// How many messages before it have not come.
    package var skipped: Int
    /// Whether it began a session while ours is kept.
    package var isCrossed = false
}

extension OwnDevice {
    /// Opens an envelope of the kind `direct` or `several`. The session advances; its row is written with the batch.
    ///
    /// - Returns: the padded body, and how many messages before it have not come.
    /// - Throws: ``OpenError``, ``CrossedSessions``, ``StoreError``, or ``RatchetError``.
    package func open<State: VaultHolding>(
        _ envelope: Envelope, _ now: Timestamp, in vault: Vault, _ unit: inout UnitOfWork<State>
    ) throws -> (body: [UInt8], skipped: Int) {
        let opened = try open(envelope, crossing: .refused, now, in: vault, &unit)
        return (opened.body, opened.skipped)
    }

    /// Opens an envelope as ``open(_:_:in:_:)`` does.
    ///
    /// - Parameter crossing: what happens to a session that the sender has begun while ours is kept.
    package func open<State: VaultHolding>(
        _ envelope: Envelope, crossing: CrossingSession, _ now: Timestamp, in vault: Vault,
        _ unit: inout UnitOfWork<State>
    ) throws -> OpenedBody {
        let bound = Self.associatedData(from: envelope.sender, to: id, envelope.messageID, vault)
        guard envelope.kind == .several else {
            return try decrypt(
                envelope.ratchetMessage, bound, from: envelope.sender, crossing: crossing, now, in: vault, &unit)
        }
        let several = try Self.several(envelope)
        let associated = Self.associatedData(from: envelope.sender, to: DeviceID(0), envelope.messageID, vault)
        do {
            var opened = try decrypt(
                several.message(for: id.value) ?? [], several.authenticated(bound), from: envelope.sender,
                crossing: crossing.ofContentKeys, now, in: vault, &unit)
            var key = opened.body
            opened.body = []
            defer { key.wipe() }
            opened.body = try Self.body(of: several, key, associated)
            return opened
        } catch var crossed as CrossedSessions {
            defer { crossed.body.wipe() }
            throw CrossedSessions(body: try Self.body(of: several, crossed.body, associated))
        }
    }

    private static func several(_ envelope: Envelope) throws(OpenError) -> MultiRecipientMessage {
        do {
            return try MultiRecipientMessage(serialized: envelope.ratchetMessage.span)
        } catch {
            throw OpenError(reason: .malformed)
        }
    }

    private static func body(
        of several: MultiRecipientMessage, _ key: [UInt8], _ associated: [UInt8]
    ) throws(OpenError) -> [UInt8] {
        var plaintext: [UInt8] = []
        do {
            try several.openBody(contentKey: key.span, associatedData: associated, into: &plaintext)
            return plaintext
        } catch {
            throw OpenError(reason: error == .malformed ? .malformed : .notAuthentic)
        }
    }

    private func decrypt<State: VaultHolding>(
        _ message: [UInt8], _ associated: [UInt8], from sender: DeviceID, crossing: CrossingSession,
        _ now: Timestamp, in vault: Vault, _ unit: inout UnitOfWork<State>
    ) throws -> OpenedBody {
        let id = session(with: sender)
        var plaintext: [UInt8] = []
        let box = try sessions(with: sender, in: vault)
        if let box {
            do throws(RatchetError) {
                let received = try box.sessions.decrypt(
                    message.span, associatedData: associated.span, into: &plaintext)
                unit.shared.append(id)
                vault.markDirty(id)
                return OpenedBody(body: plaintext, skipped: received.skipped)
            } catch {
                switch error {
                case .differentSession: break
                case .duplicate: throw OpenError(reason: .copy)
                // Authentic, of a state that was set back or copied: nothing more can be read in this session.
                case .diverged: throw error
                case .tooFarAhead: throw OpenError(reason: .tooFarAhead)
                default: throw OpenError(reason: OpenFailure(versionOf: message) ?? .notAuthentic)
                }
            }
        }
        guard PreKeyMessage.isPreKeyMessage(message.span) else {
            throw OpenError(reason: OpenFailure(versionOf: message) ?? .unknownSender)
        }
        let beginning = try begin(message, associated, from: sender, &plaintext)
        // Both ends began a session at the same time. Both keep the session of the end with the lower key.
        if let box, box.sessions.keepsCurrent(against: beginning.peerIdentity), !crossing.isReplacement(plaintext) {
            guard crossing.isAdded else { throw CrossedSessions(body: plaintext) }
            let session = try commit(beginning, now, random: &vault.random, &unit.changes)
            unit.shared.append(id)
            unit.onRollback { _, cause, _, _ in if cause == .cancelled { box.sessions.withdrawEarlier() } }
            vault.add(crossed: session, to: box, as: id)
            return OpenedBody(body: plaintext, skipped: 0, isCrossed: true)
        }
        let session = try commit(beginning, now, random: &vault.random, &unit.changes)
        unit.shared.append(id)
        unit.onRollback { state, cause, _, _ in if cause == .cancelled { state.vault.restore(box, as: id) } }
        try vault.adopt(session, as: id)
        return OpenedBody(body: plaintext, skipped: 0)
    }

    // MARK: Device lists

    /// Judges a device list that a device shows.
    ///
    /// - Returns: the peer to store, nil if the device is the person's own; and the event, nil if nothing has changed.
    package func judge(
        _ shown: DeviceList, by device: DeviceID, from source: MessageSource, _ now: Timestamp
    ) throws(OpenError) -> (peer: Peer?, event: PeerEvent?) {
        switch assess(shown, with: device, as: source.accounts, now) {
        case .new(let peer): return (peer, .keysExchanged(peer.name))
        case .known(let peer, let isRenewed):
            guard isRenewed else { return (peer, nil) }
            let before = self.peer(peer.name)?.deviceList.current ?? []
            let hasRemoved = before.contains { peer.deviceList.identity(of: $0.id) == nil }
            return (peer, hasRemoved ? .removedDevices(peer.name) : .renewed(peer.name))
        case .changed(let peer): return (peer, .changed(peer.name))
        case .forked(let peer, let isNew): return (peer, .forked(peer.name, isNew: isNew))
        case .own(let list):
            // The list of another of the person's own devices may be a later version.
            guard list.continues(deviceList), list != deviceList else { return (nil, nil) }
            return (nil, list.identity(of: id) == nil ? .revoked : .adopted(.own))
        case .refused(let reason): throw OpenError(reason: reason)
        }
    }

    /// Takes the device list that a device shows inside its session.
    ///
    /// - Returns: the peer, nil if the device is the person's own; and the event, nil if nothing has changed.
    package func take<State: VaultHolding>(
        shown list: DeviceList, by device: DeviceID, from source: MessageSource, _ now: Timestamp,
        in vault: Vault, _ unit: inout UnitOfWork<State>
    ) throws -> (peer: AccountID?, event: PeerEvent?) {
        // A list proves nothing about a session whose key it does not hold.
        guard let box = try sessions(with: device, in: vault),
            list.identity(of: device) == box.sessions.peerIdentity
        else { throw OpenError(reason: .notAuthentic) }
        var (peer, event) = try judge(list, by: device, from: source, now)
        if peer?.deviceList.continues(list) == true { peer?.note(device) }
        if let peer {
            put(peer, &unit)
        } else if event != nil {
            take(list, &unit)
        }
        return (peer?.name, event)
    }
}
