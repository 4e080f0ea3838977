// The interface of the adapter to an exchange's logic.

package import Protection

/// The machine of one exchange, or a stand-in for it.
package protocol ExchangeMachine: Sendable {
    /// Handles an event.
    ///
    /// - Parameter actions: receives the actions, in order.
    mutating func take(_ event: ExchangeEvent, at now: Timestamp, _ actions: inout [ExchangeAction])

    /// The account for which the adapter collects a body; nil if it is unknown, or no body is collected.
    var payer: AccountID? { get }

    /// Whether it waits for nothing but its time, so that ``ExchangeEvent/woken`` ends it before, as when the gateway stops.
    var endsWhenWoken: Bool { get }
}

extension ExchangeMachine {
    package var payer: AccountID? { nil }
    package var endsWhenWoken: Bool { false }
}

extension HTTPExchange: ExchangeMachine {
    package var endsWhenWoken: Bool { stage == .waitingForMail || stage == .waitingForRelay }
}
