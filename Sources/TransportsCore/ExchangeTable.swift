package import Foundation
import Synchronization
package import TransportCodec

/// The result of a request.
package typealias Reply = Result<Data, TesseractError>

/// Requests of one connection that wait for replies, for several threads.
package final class ExchangeTable: Sendable {
    private let exchanges: Mutex<Exchanges<Once<Reply>, Reply>>
    private let end = Mutex<TesseractError?>(nil)

    package init(limits: TransportLimits) { exchanges = Mutex(Exchanges(limit: limits.inFlight)) }

    /// Requests that wait and replies that are kept.
    package var count: Int { exchanges.withLock { $0.count } }

    /// Opens a request; its reply goes to the waiter, or to the next receiver if there is none.
    package func open(for waiter: Once<Reply>?) -> Result<UInt64, TesseractError> {
        do {
            return .success(
                try exchanges.withLock { (exchanges) throws(Exchanges<Once<Reply>, Reply>.Refusal) in
                    if let waiter { try exchanges.open(for: waiter) } else { try exchanges.openUnclaimed() }
                })
        } catch {
            switch error {
            case .tooMany: return .failure(.busy)
            case .ended: return .failure(end.withLock { $0 } ?? .closed(reason: "the service is closing"))
            }
        }
    }

    /// Takes the oldest request without a receiver for this waiter.
    package func receive(_ waiter: Once<Reply>) -> Exchanges<Once<Reply>, Reply>.Receiving {
        exchanges.withLock { $0.receive(waiter) }
    }

    /// Assigns a reply.
    ///
    /// - Returns: false if no request ever had this id.
    package func arrived(_ id: UInt64, _ reply: Reply) -> Bool {
        switch exchanges.withLock({ $0.arrived(id, reply) }) {
        case .deliver(let waiter): waiter.fulfil(reply)
        case .kept, .dropped: break
        case .unknown: return false
        }
        return true
    }

    /// Forgets a request.
    ///
    /// - Returns: whether it was under way.
    package func cancel(_ id: UInt64) -> Bool { exchanges.withLock { $0.cancel(id) } }

    /// Opens no more requests.
    package func drain() { exchanges.withLock { $0.drain() } }

    /// Ends all requests that have no reply with this error.
    package func end(_ error: TesseractError) {
        end.withLock { $0 = $0 ?? error }
        for waiter in exchanges.withLock({ $0.end(.failure(error)) }) { waiter.fulfil(.failure(error)) }
    }
}
