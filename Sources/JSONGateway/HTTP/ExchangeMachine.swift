// What the adapter knows of the logic that it runs.

package import Protection

/// The machine of one exchange, or a stand-in for it.
package protocol ExchangeMachine: Sendable {
    /// Takes what has happened.
    ///
    /// - Parameter actions: gets what is to be done, in order.
    mutating func take(_ event: ExchangeEvent, at now: Moment, _ actions: inout [ExchangeAction])
}

extension HTTPExchange: ExchangeMachine {}
