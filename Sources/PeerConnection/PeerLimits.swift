/// Sizes of what two connected devices send each other, and times after which a connection ends.
package struct PeerLimits: Sendable, Hashable {
    /// Ours: bytes of one message. It is for small packets; files belong elsewhere.
    package static let messageLimit = 100_000
    /// Ours: bytes of the metadata of a status, which is sent with every change of it.
    package static let metadataLimit = 4096
    /// Ours: bytes of one packet: the longest message, its frame, tag and kind, rounded up.
    package static let packetLimit = messageLimit + 64
    /// Ours: messages that the other side's app has not taken yet. A sender waits, and a sender that does not is cut off.
    package static let window = 64
    /// Ours: records under one key. A connection ends long before, and no nonce is used twice.
    package static let recordLimit: UInt64 = 1 << 32

    /// Ours: time from the connected transport to the authenticated connection, in milliseconds. A peer that never
    /// finishes costs one socket for this time.
    package var handshake: Int64 = 10_000
    /// Ours: time without a message or a status, in milliseconds. Then the connection is closed: another one is cheap.
    package var idle: Int64 = 30_000
    /// Ours: time until the other side's app has taken a message, in milliseconds. Then the connection counts as dead.
    package var acknowledgement: Int64 = 30_000

    package init() {}
}
