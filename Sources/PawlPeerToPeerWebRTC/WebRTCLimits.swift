/// Sizes and times of the transport.
enum WebRTCLimits {
    /// Ours: candidates of one magic packet, and of one attempt after its description.
    static let candidates = 16
    /// Ours: bytes of one message of the data channel. Packets are cut to it; all implementations carry it.
    static let messageSize = 16_384
    /// Ours: bytes that wait to be sent before a sender waits.
    static let highWater: UInt64 = 262_144
    /// Ours: bytes that wait when a sender goes on.
    static let lowWater: UInt64 = 65_536
    /// Ours: time for candidates before the description is sent. Later ones follow it.
    static let gatheringTime: Duration = .seconds(2)
    /// Ours: time from the last packet to the end of the connection, if the other side does not end it.
    static let closingTime: Duration = .seconds(3)
    /// Ours: time in which the reply to an end is sent again if it is lost.
    static let lingeringTime: Duration = .seconds(2)
    /// Ours: packets that wait for a delegate. The handshake has three.
    static let unobservedInbox = 64
    /// Ours: packets that wait while the delegate works. Its own limits end the connection long before.
    static let inbox = 1024
}
