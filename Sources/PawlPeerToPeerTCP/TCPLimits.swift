import NIOCore

/// Sizes and times of the transport.
enum TCPLimits {
    /// Ours: bytes of the token by which a listening side knows the other one. Drawn for each connection.
    static let tokenSize = 32
    /// Ours: sockets of one attempt that have not shown the token. More are closed at once: the other device needs one for
    /// each address.
    static let waitingSockets = 8
    /// Ours: bytes of the name of a session over a gateway. Drawn for each connection.
    static let relaySessionSize = 32
    /// Ours: time for the token. It is in the first segment.
    static let tokenTime: TimeAmount = .seconds(5)
    /// Ours: addresses that are offered, and that are tried.
    static let addresses = 8
    /// Ours: time for one address.
    static let connectTime: TimeAmount = .seconds(10)
    /// Ours: time from the last packet to the end of the socket, if the other side does not close it.
    static let closingTime: TimeAmount = .seconds(3)
    /// Ours: bytes that are handed to the socket's thread before it has written them.
    static let unwritten = 262_144
    /// Ours: packets that wait for a delegate. The handshake has three.
    static let unobservedInbox = 64
    /// Ours: packets that wait while the delegate works. Its own limits end the connection long before.
    static let inbox = 1024
}
