// The interface of the adapter to an exchange's logic.

package import Protection

/// The machine of one exchange, or a stand-in for it.
package protocol ExchangeMachine: Sendable {
    /// Handles an event.
    ///
    /// - Parameter actions: receives the actions, in order.
    mutating func take(_ event: ExchangeEvent, at now: Timestamp, _ actions: inout [ExchangeAction])
}

extension HTTPExchange: ExchangeMachine {}
