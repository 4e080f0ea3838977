// The WebSocket over which a gateway sends what waits for a device. It is opened by another library, such as
// PawlMessengerWebSocket, so that this one links no network library but that of Foundation.

public import Foundation

/// What a WebSocket to a gateway has to keep to.
public struct GatewaySocketRequest: Sendable {
    /// The address, with `http` or `https`.
    public var url: URL
    /// The field that logs in.
    public var credential: GatewayCredential
    /// Maximum size of a message of the gateway, in bytes. A longer one ends the WebSocket.
    public var messageLimit: Int
    /// Messages that may wait to be received. One more ends the WebSocket.
    public var waitingLimit: Int
    /// Nothing has come for so long: the WebSocket ends. The gateway sends pings more often.
    public var silence: Duration

    /// A request, made by ``GatewayTransportClient``.
    public init(
        url: URL, credential: GatewayCredential, messageLimit: Int, waitingLimit: Int, silence: Duration
    ) {
        (self.url, self.credential) = (url, credential)
        (self.messageLimit, self.waitingLimit, self.silence) = (messageLimit, waitingLimit, silence)
    }
}

/// Opens WebSockets. RFC 6455.
public protocol GatewaySocketClient: Sendable {
    /// Opens a WebSocket.
    ///
    /// - Throws: an error if the server cannot be reached, or answers with anything but the upgrade. Tasks may be
    ///   cancelled.
    func open(_ request: GatewaySocketRequest) async throws -> any GatewaySocket
}

/// A WebSocket that is open. It answers pings by itself.
public protocol GatewaySocket: Sendable {
    /// The next text; nil when the WebSocket has ended. One task calls it.
    func receive() async -> [UInt8]?
    /// Sends a text.
    func send(_ text: [UInt8]) async throws
    /// Ends the WebSocket. May be called several times.
    func close()
}
