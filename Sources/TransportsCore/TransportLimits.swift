/// The bounds of transports. Every value is ours: the document that names the interface sets none.
public struct TransportLimits: Sendable, Hashable {
    /// Largest request or reply in bytes, 16 MiB. Larger ones are refused on the side that sends them.
    public var message = 16 << 20
    /// Requests of one connection that wait for replies, 1024. A client that needs more opens a second connection.
    public var inFlight = 1024
    /// Connections of one bound transport, 256. Each holds a descriptor and, at worst, one message.
    public var connections = 256
    /// Time to connect and to agree on version and protocol, 15 seconds: enough for a phone whose first packets are lost.
    public var handshake: Duration = .seconds(15)
    /// Time in which a transport has to return its status, 3 seconds: a person waits for the list.
    public var status: Duration = .seconds(3)
    /// Time for requests under way when a bound transport is closed, 10 seconds.
    public var drain: Duration = .seconds(10)

    /// The default bounds.
    public init() {}
}
