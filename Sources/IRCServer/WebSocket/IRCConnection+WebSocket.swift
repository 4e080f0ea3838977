// The beginning of a connection whose client uses a WebSocket.

import NIOCore
import NIOHTTP1
import NIOSupport

extension IRCConnection {
    /// Waits for the client's handshake. The backend is connected after it.
    ///
    /// - Parameter early: bytes that have been read already.
    func awaitWebSocket(_ early: ByteBuffer) throws {
        isInHandshake = true
        let pipeline = downstream.pipeline.syncOperations
        pipeline.removeHandler(try pipeline.handler(type: DownstreamHandler.self), promise: nil)
        try WebSocketHandshake.begin(
            downstream, early: early, origins: services.downstream().webOrigins, patience: services.patience,
            opened: { try self.webSocketOpened($0) }, closed: { self.downstreamClosed() })
    }

    private func webSocketOpened(_ request: HTTPRequestHead) throws {
        isInHandshake = false
        if proxied == nil, let announced = announcedAddresses(request) {
            proxied = announced
            // The connection is that of the proxy.
            let scheme = request.headers[canonicalForm: "x-forwarded-proto"].last?.lowercased()
            security = scheme == "https" || scheme == "wss" ? ClientSecurity() : nil
        }
        try downstream.pipeline.syncOperations.addHandler(DownstreamHandler(self))
        try downstream.syncOptions?.setOption(.autoRead, value: false)
        connectUpstream()
    }

    /// The client's address as a trusted proxy has appended it to `X-Forwarded-For`.
    private func announcedAddresses(_ request: HTTPRequestHead) -> ProxiedAddresses? {
        guard let peer = downstream.remoteAddress, services.downstream().trusts(peer),
            let named = request.headers[canonicalForm: "x-forwarded-for"].last,
            let source = try? SocketAddress(ipAddress: String(named), port: 0)
        else { return nil }
        return ProxiedAddresses(source: source, destination: downstream.localAddress ?? source)
    }
}
