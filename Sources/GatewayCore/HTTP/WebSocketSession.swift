// One WebSocket connection whose messages are looked at.

package import NIOCore

/// What is to be done with messages of a WebSocket, in order.
package enum WebSocketAction: Sendable {
    case toBackend(ByteBuffer, isText: Bool)
    case toClient(ByteBuffer, isText: Bool)
    case look(Lookup)
    case submit(VaultJob)
    case wake(at: Int64)
    /// Both sides are closed, with a code of RFC 6455 section 7.4 and words.
    case close(code: UInt16, reason: String)
}

/// What happens to a WebSocket connection. Messages are whole: fragments are put together, control frames pass by themselves.
package enum WebSocketEvent: Sendable {
    case fromClient(ByteBuffer, isText: Bool)
    case fromBackend(ByteBuffer, isText: Bool)
    case found(Lookup.ID, ResponseHead, ByteBuffer)
    case notFound(Lookup.ID)
    case vault(VaultReply)
    case woken
}

/// The machine of one WebSocket connection.
package struct WebSocketSession: Sendable {
    /// Ours: a longer message closes the connection, code 1009. In bytes.
    package static let messageLimit = 16 << 20

    package init() {}

    /// Takes what has happened.
    package mutating func take(_ event: WebSocketEvent, at now: Moment, _ actions: inout [WebSocketAction]) {
        switch event {
        case .fromClient(let bytes, let isText): actions.append(.toBackend(bytes, isText: isText))
        case .fromBackend(let bytes, let isText): actions.append(.toClient(bytes, isText: isText))
        default: break
        }
    }
}
