// Devices, sessions and latches in a unit of work, the same for every chat protocol.

package import CommitLoop
package import Devices
import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

/// Participants that contain a vault.
package protocol VaultHolding: Participants where SharedRow == SessionID {
    var vault: Vault { get }
    /// Whether a remote device is published under an id; hosted devices get other ids.
    var isPublished: (DeviceID) -> Bool { get }
}

extension VaultHolding {
    package var store: OrderedStore { vault.store }

    package mutating func sharedChanges() throws -> [(row: SessionID, group: ChangeGroup)] {
        try vault.sessionCache.takeChanges()
    }

    package mutating func drop(_ rows: some Sequence<SessionID>) { vault.sessionCache.drop(rows) }

    // MARK: Devices and sessions

    /// Whether a device is hosted in the vault, or is the second end of its conversation with itself.
    package func isHosted(_ device: DeviceID) -> Bool { vault.sessionCache.holds(device) }

    /// The device of an account, made and stored with the unit if there is none.
    package mutating func device(
        _ account: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws -> HostedDevice {
        if let device = vault.sessionCache.device(of: account) { return device }
        unit.onRollback { state, cause, _, _ in
            switch cause {
            // Later jobs of the batch must not find sessions of a device that was not stored.
            case .cancelled, .ahead: state.vault.sessionCache.forget(account)
            case .batch, .unit: state.vault.sessionCache.drop(device: account)
            }
        }
        return try vault.sessionCache.device(for: account, now: now, avoiding: isPublished, &unit.changes)
    }

    /// The session with a device, set up inside the vault if there is none.
    package mutating func session(
        _ id: SessionID, or sender: HostedDevice, _ recipient: HostedDevice
    ) throws -> SessionBox {
        if let box = try vault.sessionCache.session(id) { return box }
        try vault.sessionCache.pair(sender, recipient, in: id.shard)
        guard let box = try vault.sessionCache.session(id) else {
            throw StoreError.corrupt("A new session is missing.")
        }
        return box
    }

    // MARK: Latches

    /// Stores a raised latch, and publishes it to connections after the commit.
    ///
    /// - Parameter wasDown: whether the conversation was not latched at all: then a failed commit leaves it so.
    package func latch(
        _ latched: RaisedLatch, _ now: Timestamp, _ unit: inout Unit, wasDown: Bool = true
    ) {
        let accountIsFirst = latched.conversation.first == latched.account
        unit.changes.append(
            .putConversation(
                ConversationRow(
                    id: latched.conversation, latch: latched.protection, since: now.wall,
                    peerNameForFirst: accountIsFirst ? latched.peerName : latched.accountName,
                    peerNameForSecond: accountIsFirst ? latched.accountName : latched.peerName)))
        unit.onCommit { state, _, _ in
            state.vault.latches.raise(latched.conversation, to: latched.protection)
            state.vault.latches.remember(name: latched.peerName, of: latched.peer, for: latched.account)
            state.vault.latches.remember(name: latched.accountName, of: latched.account, for: latched.peer)
        }
        guard wasDown else { return }
        unit.onRollback { state, _, _, _ in
            state.vault.conversations.remove(latched.conversation)
            state.vault.firstMessages[latched.conversation] = nil
        }
    }

    /// Raises the latch of a room.
    ///
    /// - Returns: whether it was down.
    package mutating func latch(
        _ room: AccountID, _ protection: Protection, _ now: Timestamp, _ unit: inout Unit
    ) -> Bool {
        let latched = RaisedLatch(room: room, protection: protection)
        guard vault.conversations.insert(latched.conversation).inserted else { return false }
        latch(latched, now, &unit)
        return true
    }

    /// Protects a conversation for good, because a message was sent or received in it end to end.
    package mutating func protect(
        _ conversation: ConversationID, _ names: (first: String, second: String), _ now: Timestamp,
        _ unit: inout Unit
    ) {
        guard vault.latches.latch(of: conversation) < .device else { return }
        let wasDown = vault.noteLatched(conversation)
        latch(
            .init(
                conversation: conversation, account: conversation.first, peer: conversation.second,
                peerName: names.second, accountName: names.first, protection: .device), now, &unit, wasDown: wasDown)
    }

    /// Forgets the latch of a conversation, because an operator has lowered it.
    package mutating func reset(_ conversation: ConversationID, _ unit: inout Unit) {
        vault.conversations.remove(conversation)
        unit.changes.append(.removeConversation(conversation))
    }

    /// Ours: conversations whose first message is remembered. Further ones stay latched if their first message is
    /// rejected.
    private static var firstMessageLimit: Int { 10_000 }

    /// Remembers the message that has raised the latch of a conversation; nil if another was sealed there.
    mutating func noteFirst(_ message: MessageID?, in conversation: ConversationID) {
        if message != nil, vault.firstMessages.count >= Self.firstMessageLimit { return }
        vault.firstMessages[conversation] = message
    }

    /// Lowers the latch that a rejected message has raised, such as one to a conversation that does not exist.
    ///
    /// The latch stays raised if another message was sealed there.
    package mutating func refused(
        _ conversation: ConversationID, _ message: MessageID, _ unit: inout Unit
    ) {
        guard vault.firstMessages[conversation] == message else { return }
        vault.firstMessages[conversation] = nil
        guard vault.latches.latch(of: conversation) == .gateway, vault.conversations.remove(conversation) != nil else {
            return
        }
        unit.changes.append(.removeConversation(conversation))
        lowered(conversation, &unit)
    }

    /// Lowers the latch in the connections' table after the commit. The caller has removed the conversation.
    package func lowered(_ conversation: ConversationID, _ unit: inout Unit) {
        unit.onCommit { state, _, _ in state.vault.latches.reset(conversation) }
        unit.onRollback { state, _, _, _ in state.vault.conversations.insert(conversation) }
    }
}
