// What a transport client of a direct connection has for its delegate.

/// The deliveries of one transport client, in order.
///
/// The client keeps it under a lock, together with its own state, and hands items over without the lock.
package struct P2PInbox {
    /// One call of the delegate.
    package enum Item: Sendable {
        case opened
        case packet([UInt8])
        case closed

        package func deliver(to delegate: any P2PTransportClientDelegate, by client: any P2PTransportClient) {
            switch self {
            case .opened: delegate.p2pConnectionOpened(client)
            case .packet(let packet): delegate.p2pConnection(client, receivedMessage: packet)
            case .closed: delegate.p2pConnectionClosed(client)
            }
        }
    }

    package weak var delegate: (any P2PTransportClientDelegate)?
    private var items: [Item] = []
    private var isDelivering = false

    package init() {}

    /// Items that wait.
    package var count: Int { items.count }

    package mutating func append(_ item: Item) { items.append(item) }

    /// Whether the caller has to deliver what waits, with ``next()``: nothing else does it, and there is a delegate.
    package mutating func begins() -> Bool {
        guard !isDelivering, !items.isEmpty, delegate != nil else { return false }
        isDelivering = true
        return true
    }

    /// Removes the first item; nil if the delivery ends, because nothing waits or there is no delegate any more.
    package mutating func next() -> (item: Item, delegate: any P2PTransportClientDelegate)? {
        guard !items.isEmpty, let delegate else {
            isDelivering = false
            return nil
        }
        return (items.removeFirst(), delegate)
    }
}
