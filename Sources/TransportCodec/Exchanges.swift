// The requests of one connection that wait for their replies. A pure machine: it holds what waits and never touches it.
//
// A reply belongs to the request with its id, never to the receiver that happens to wait. Because of that a cancelled
// exchange takes its late reply with it, and no later receiver gets it.

/// Requests under way on the client's side of a connection.
///
/// A request is opened by `open(for:)` for a known receiver (one exchange), or without one by `send`, and then belongs to
/// the receivers in the order of the requests.
package struct Exchanges<Waiter, Reply> {
    private enum Slot {
        /// Sent, and nothing waits for the reply yet.
        case sent
        case waiting(Waiter)
        /// The reply came before its receiver.
        case arrived(Reply)
    }

    /// Why a request is not opened.
    package enum Refusal: Error, Equatable {
        /// As many requests as allowed wait for replies.
        case tooMany
        /// The connection takes no more requests.
        case ended
    }

    /// What a receiver gets.
    package enum Receiving {
        case reply(Reply)
        /// The receiver waits for the reply with this id.
        case waits(id: UInt64)
        /// No request is without a receiver.
        case nothingSent
    }

    /// What becomes of a reply.
    package enum Arrival {
        /// Give it to this receiver.
        case deliver(Waiter)
        /// Kept until its receiver comes.
        case kept
        /// Its exchange was cancelled, or it is a second one.
        case dropped
        /// No request had this id: the peer does not follow the protocol.
        case unknown
    }

    /// Upper bound of requests that wait, and of replies that are kept.
    package let limit: Int
    private var slots: [UInt64: Slot] = [:]
    /// Ids of sent requests without a receiver, oldest first. Cancelled ones stay until they are passed.
    private var unclaimed: [UInt64] = []
    private var firstUnclaimed = 0
    private var last: UInt64 = 0
    private var isEnded = false

    package init(limit: Int) { self.limit = limit }

    /// The number of requests that wait or whose replies are kept.
    package var count: Int { slots.count }

    /// Opens a request whose reply goes to this waiter.
    package mutating func open(for waiter: Waiter) throws(Refusal) -> UInt64 {
        let id = try open()
        slots[id] = .waiting(waiter)
        return id
    }

    /// Opens a request whose reply goes to the next receiver that has none.
    package mutating func openUnclaimed() throws(Refusal) -> UInt64 {
        let id = try open()
        slots[id] = .sent
        unclaimed.append(id)
        return id
    }

    private mutating func open() throws(Refusal) -> UInt64 {
        guard !isEnded else { throw .ended }
        guard slots.count < limit else { throw .tooMany }
        last += 1
        return last
    }

    /// Takes the oldest sent request without a receiver.
    package mutating func receive(_ waiter: Waiter) -> Receiving {
        while firstUnclaimed < unclaimed.count {
            let id = unclaimed[firstUnclaimed]
            firstUnclaimed += 1
            if firstUnclaimed > 32, firstUnclaimed * 2 > unclaimed.count {
                unclaimed.removeFirst(firstUnclaimed)
                firstUnclaimed = 0
            }
            switch slots[id] {
            case .sent:
                slots[id] = .waiting(waiter)
                return .waits(id: id)
            case .arrived(let reply):
                slots[id] = nil
                return .reply(reply)
            // Cancelled before it had a receiver.
            case .waiting, nil: continue
            }
        }
        return .nothingSent
    }

    /// Assigns a reply to its request.
    package mutating func arrived(_ id: UInt64, _ reply: Reply) -> Arrival {
        guard id != 0, id <= last else { return .unknown }
        switch slots[id] {
        case .waiting(let waiter):
            slots[id] = nil
            return .deliver(waiter)
        case .sent:
            slots[id] = .arrived(reply)
            return .kept
        case .arrived, nil: return .dropped
        }
    }

    /// Forgets a request; its reply is dropped when it comes.
    ///
    /// - Returns: whether the request was under way, so that the service has to be notified.
    package mutating func cancel(_ id: UInt64) -> Bool {
        switch slots.removeValue(forKey: id) {
        case .sent, .waiting: true
        case .arrived, nil: false
        }
    }

    /// Opens no more requests. Those under way go on.
    package mutating func drain() { isEnded = true }

    /// Ends the connection.
    ///
    /// - Parameter reply: what receivers get whose requests have no reply.
    /// - Returns: the waiters, in the order of their requests. Replies that came stay for their receivers.
    package mutating func end(_ reply: Reply) -> [Waiter] {
        isEnded = true
        var waiters: [Waiter] = []
        for id in slots.keys.sorted() {
            switch slots[id] {
            case .waiting(let waiter):
                slots[id] = nil
                waiters.append(waiter)
            case .sent: slots[id] = .arrived(reply)
            case .arrived, nil: break
            }
        }
        return waiters
    }
}
