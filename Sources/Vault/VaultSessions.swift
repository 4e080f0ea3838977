// What the chat protocols may do with the vault's devices and sessions. The sessions themselves are private to this
// target.

package import Devices
package import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

extension Vault {
    // MARK: Hosted devices

    /// The hosted account of a device; nil for devices elsewhere.
    package func owner(of device: DeviceID) -> AccountID? { sessionCache.owner(of: device) }

    /// The hosted device of an account; nil if it has none yet.
    package func device(of account: AccountID) -> HostedDevice? { sessionCache.device(of: account) }

    /// Whether a device is hosted in the vault, or is the second end of its conversation with itself.
    package func holds(_ device: DeviceID) -> Bool { sessionCache.holds(device) }

    /// Forgets the device, the sessions and the latches of an account. The rows are the caller's.
    package func forget(_ account: AccountID) {
        sessionCache.forget(account)
        latches.forget(account)
        conversations = conversations.filter { $0.first != account && $0.second != account }
    }

    // MARK: The person's own device

    /// Loads the device of a sidecar's person, or makes it and appends the change that stores it.
    package func ownDevice(_ now: Timestamp, _ changes: inout [StoreChange]) throws -> HostedDevice {
        try sessionCache.device(for: .own, now: now, avoiding: { _ in false }, &changes)
    }

    /// The sessions with a device, from memory or from the store; nil if there are none.
    package func session(_ id: SessionID) throws(StoreError) -> SessionBox? { try sessionCache.session(id) }

    /// Adds a session that was begun with a device elsewhere. An earlier session can still receive.
    package func adopt(_ session: consuming Session, as id: SessionID) throws(StoreError) {
        try sessionCache.adopt(session, as: id)
    }

    /// Undoes ``adopt(_:as:)``.
    ///
    /// - Parameter box: the sessions before it.
    package func restore(_ box: SessionBox?, as id: SessionID) { sessionCache.restore(box, as: id) }

    /// Adds a session that a device elsewhere has begun while ours is kept: it only receives, unless ours stays
    /// unanswered. ``DoubleRatchet/SessionRecord/withdrawEarlier()`` undoes it.
    ///
    /// - Parameter box: the sessions with the device.
    package func add(crossed session: consuming Session, to box: SessionBox, as id: SessionID) {
        sessionCache.add(crossed: session, to: box, as: id)
    }

    /// Has the state of a session written with the batch. Called before a ratchet steps.
    package func markDirty(_ id: SessionID) { sessionCache.markDirty(id) }

    /// Drops sessions from memory, so that they are read from the store again.
    package func drop(_ ids: some Sequence<SessionID>) { sessionCache.drop(ids) }

    // MARK: Latches

    /// Notes that a conversation is latched.
    ///
    /// - Returns: whether it was not.
    package func noteLatched(_ conversation: ConversationID) -> Bool {
        conversations.insert(conversation).inserted
    }

    /// Notes that a conversation is not latched any more.
    ///
    /// - Returns: whether it was.
    package func noteUnlatched(_ conversation: ConversationID) -> Bool {
        conversations.remove(conversation) != nil
    }

    // MARK: Lines at rest

    /// Seals an opened line until it is written to the client.
    package func seal(line: [UInt8], sequence: UInt64) throws -> [UInt8] {
        try sessionCache.seal(line: line, sequence: sequence)
    }

    /// Opens the result of ``seal(line:sequence:)``; nil if the row was altered or moved.
    package func open(line: [UInt8], sequence: UInt64) -> [UInt8]? { sessionCache.open(line: line, sequence: sequence) }

    // MARK: Randomness

    /// The vault's source of randomness, for keys that are made beside its own.
    package var random: VaultRandomSource {
        get { sessionCache.random }
        _modify { yield &sessionCache.random }
    }

    /// 64 random bits.
    package func randomNumber() -> UInt64 { sessionCache.randomNumber() }

    /// 32 random bytes for a client to sign.
    package func makeNonce() -> [UInt8] { randomBytes(32) }

    package func randomBytes(_ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        bytes.withUnsafeMutableBytes { sessionCache.random.fill($0) }
        return bytes
    }
}
