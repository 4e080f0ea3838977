// What a way of connecting two devices directly has to do. It moves packets; the messenger authenticates and encrypts
// them, and does not rely on the transport for either.

import Foundation

/// Whether a direct connection can carry packets.
public enum ConnectionState: Sendable, Hashable {
    /// Not yet: the other side has still to join.
    case connecting
    /// Packets can be sent.
    case connected
    /// This side is closing it.
    case disconnecting
    /// Nothing can be sent any more.
    case disconnected
}

/// Which connection of the messenger a transport client belongs to.
public struct P2PFrameworkState: Sendable, Hashable {
    /// The other person; the person's own name for another device of theirs.
    public let username: Username
    /// The other device.
    public let deviceId: DeviceId
    /// The transport.
    public let transportLayerIdentifier: String

    /// The other side of a connection.
    public init(username: Username, deviceId: DeviceId, transportLayerIdentifier: String) {
        (self.username, self.deviceId) = (username, deviceId)
        self.transportLayerIdentifier = transportLayerIdentifier
    }
}

/// Receives what a transport client receives. The calls for one client come one after the other and in their order.
///
/// All calls return at once.
public protocol P2PTransportClientDelegate: AnyObject, Sendable {
    /// The client has become ``ConnectionState/connected``.
    func p2pConnectionOpened(_ connection: any P2PTransportClient)
    /// A packet of the other side has come, whole.
    func p2pConnection(_ connection: any P2PTransportClient, receivedMessage message: [UInt8])
    /// The client has become ``ConnectionState/disconnected``, by either side or by a failure. The last call.
    func p2pConnectionClosed(_ connection: any P2PTransportClient)
}

/// A full-duplex connection to another device that carries packets.
///
/// It delivers packets whole, once and in their order, or it disconnects. Packets have 1 to
/// ``P2PSettings/packetLimit`` bytes; a client ends the connection when the other side sends a longer one. What comes
/// before the delegate is set waits for it.
public protocol P2PTransportClient: AnyObject, Sendable {
    /// Receives the packets. Captured weakly.
    var delegate: (any P2PTransportClientDelegate)? { get set }
    /// Whether packets can be sent.
    var connected: ConnectionState { get }
    /// From the handle that the client was made with.
    var state: P2PFrameworkState { get }
    /// Closes the connection after the packets before. Later calls do nothing.
    func disconnect() async throws
    /// Sends a packet. Returns when it may be followed by another.
    ///
    /// - Throws: any error if the connection cannot carry it; the messenger then ends the connection.
    func sendMessage(_ message: [UInt8]) async throws
    /// Takes a packet that can be sent without waiting, after the packets before. Optional: false by default.
    ///
    /// It must not call the delegate before it has returned.
    ///
    /// - Returns: false if the packet was not taken; ``sendMessage(_:)`` is called with it then.
    func sendAtOnce(_ message: [UInt8]) -> Bool
    /// Where the messenger calls the app's ``P2PEventHandler`` for this connection. Optional: nil by default, for Swift's own
    /// threads.
    ///
    /// With that of the thread on which the delegate is called, a message reaches the app without a change of thread.
    var executor: (any TaskExecutor)? { get }
}

extension P2PTransportClient {
    /// nil.
    public var executor: (any TaskExecutor)? { nil }
    /// False.
    public func sendAtOnce(_ message: [UInt8]) -> Bool { false }
}

/// Makes the clients of one transport.
///
/// There are three ways to finish a connection: `createConnection` returns when the connection is there; it returns a
/// client that is ``ConnectionState/connecting``; or it returns nil, and a later `receiveMessage` on either side returns
/// the client. An attempt ends after ``P2PSettings/connectTime``; then the task of the call is cancelled, and its clients
/// are disconnected.
public protocol P2PTransportClientFactory: Sendable {
    /// The name of the transport, the same on all devices: 1 to 32 letters, digits, hyphens and underscores of ASCII.
    var transportLayerIdentifier: String { get }
    /// Whether the other device learns a network address of this one. True unless the factory says otherwise.
    var disclosesAddress: Bool { get }
    /// Takes a magic packet: what the other device's factory has sent over its handle.
    ///
    /// - Returns: the client, or nil if the connection needs more packets.
    /// - Throws: any error; the attempt then ends on both sides.
    func receiveMessage(
        _ text: String, metadata: P2PMetadata, handle: P2PTransportFactoryHandle
    ) async throws -> (any P2PTransportClient)?
    /// Begins a connection. It has to send at least one magic packet, by which the other device learns of it.
    ///
    /// - Returns: the client, or nil if the connection needs magic packets of the other side.
    /// - Throws: any error; the messenger then tries the next factory.
    func createConnection(handle: P2PTransportFactoryHandle) async throws -> (any P2PTransportClient)?
}

extension P2PTransportClientFactory {
    /// True.
    public var disclosesAddress: Bool { true }
}

/// The way of a factory to the same factory on the other device, for one connection.
///
/// Magic packets are messages of the ratchet: the server can neither read nor change them. They are not kept, and
/// dropped if they do not arrive in half a minute.
public struct P2PTransportFactoryHandle: Sendable {
    /// The other side.
    public let state: P2PFrameworkState
    private let send: @Sendable (String, P2PMetadata) async throws -> Void

    /// A handle that sends by a function, for tests of factories.
    public init(state: P2PFrameworkState, send: @escaping @Sendable (String, P2PMetadata) async throws -> Void) {
        (self.state, self.send) = (state, send)
    }

    /// Sends a magic packet.
    ///
    /// - Parameters:
    ///   - text: at most ``P2PSettings/magicPacketLimit`` bytes.
    ///   - metadata: the same.
    /// - Throws: ``P2PError/tooLong``, ``P2PError/keysMissing``, or ``P2PError/timedOut`` if the attempt has ended.
    public func sendMessage(_ text: String, metadata: P2PMetadata = P2PMetadata()) async throws {
        guard text.utf8.count <= P2PSettings.magicPacketLimit, metadata.json.utf8.count <= P2PSettings.magicPacketLimit
        else { throw P2PError.tooLong }
        try await send(text, metadata)
    }
}

/// A value of the app's or the factory's own, coded as JSON.
public struct P2PMetadata: Sendable, Hashable {
    /// The coded value. It may come from the other side and is checked when it is decoded.
    let json: String

    package init(json: String) { self.json = json }

    /// An empty object.
    public init() { json = "{}" }

    /// Codes a value.
    ///
    /// - Throws: an `EncodingError`
    public init(_ value: some Encodable) throws {
        json = String(decoding: try JSONEncoder().encode(value), as: UTF8.self)
    }

    /// Decodes the value.
    ///
    /// - Throws: a `DecodingError` if it has another form.
    public func decode<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
        try JSONDecoder().decode(type, from: Data(json.utf8))
    }
}

/// How the messenger uses direct connections.
public struct P2PSettings: Sendable, Hashable {
    /// Which transports may be used.
    public enum Mode: Sendable, Hashable {
        /// All. The other device may learn network addresses of this one.
        case direct
        /// Only factories that do not disclose addresses; see ``P2PTransportClientFactory/disclosesAddress``.
        case relayOnly
    }

    /// Bytes of one packet of a transport client.
    public static let packetLimit = 100_064
    /// Bytes of one message of a ``P2PClient``.
    public static let messageLimit = 100_000
    /// Ours: bytes of the text of a magic packet, and of its metadata. The description of a WebRTC session has some
    /// thousand, and both fit in one signal if they have no control characters apart from line ends.
    public static let magicPacketLimit = 12_000
    /// Ours: magic packets of one attempt that wait. ICE has a few dozen.
    static let packetsPerAttempt = 64
    /// Ours: requests of one device in ``requestTime``; more are dropped without asking the app.
    package static let requestLimit = 20
    /// Ours: how long a magic packet is useful, in seconds.
    static let magicPacketLifetime: Int64 = 30
    /// Ours: packets that wait for a transport. With more, the other side does not read.
    static let outboundLimit = 256
    /// Ours: calls of ``P2PClient/sendMessage(_:)`` that wait for acknowledgements of the messages before.
    static let waitingLimit = 256
    /// Ours: how long a closed connection may take to send its last packets.
    static let closingTime: Duration = .seconds(5)

    /// Which transports may be used.
    public var mode = Mode.direct
    /// How long one factory may try.
    public var connectTime: Duration = .seconds(20)
    /// A connection without messages and statuses is closed after this time.
    public var idleTime: Duration = .seconds(30)
    /// A connection is closed if the other side's app has not taken a message after this time.
    public var acknowledgementTime: Duration = .seconds(30)
    /// Ours: own attempts at the same time, and as many of others. Each may hold sockets.
    package var attemptLimit = 32
    /// Ours: open connections at the same time.
    package var openLimit = 64
    /// Ours: the time for which requests are counted.
    package var requestTime: Duration = .seconds(60)
    /// Ours: how often times are looked at.
    package var tick: Duration = .seconds(1)

    /// Direct connections, and the usual times.
    public init() {}
}

/// Why there is no connection, or why a message was not taken.
public enum P2PError: Error, Sendable, Hashable {
    /// No registered factory may be used.
    case noTransport
    /// Keys were not exchanged with the person, or their changed keys were not accepted.
    case keysMissing
    /// The other device does not know the transport, or its factory has failed.
    case refused
    /// It took too long. Also if the other side does not consent: it does not answer then.
    case timedOut
    /// Too many connections or attempts.
    case tooMany
    /// The factory of this device has failed.
    case transport(String)
    /// The message or magic packet is too long.
    case tooLong
    /// Too many messages wait.
    case overloaded
    /// The connection is closed. The other side's app may have taken the message or not.
    case closed(P2PCloseReason)
}

/// Why a connection was closed.
public enum P2PCloseReason: Sendable, Hashable {
    /// By this side.
    case closed
    /// By the other side.
    case closedByPeer
    /// The transport has failed.
    case lost
    /// What came was not sent by the other device for this connection.
    case notAuthentic
    /// The other side does not keep to the protocol, or has another version of it.
    case protocolError
    /// The handshake was not finished in time.
    case handshakeTimedOut
    /// Nothing was sent for a while.
    case idle
    /// The other side's app has not taken a message in time.
    case notAcknowledged
    /// The other side does not read, or sends too much.
    case overloaded
    /// The other device was removed from its account, or the person shows other keys.
    case keysChanged
    /// A later connection with the same device has taken its place.
    case replaced
}
