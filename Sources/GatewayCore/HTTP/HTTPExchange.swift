// One request of a client and its answer: what the mapping says about it, who it belongs to, and what the policy wants.

package import NIOCore

/// The machine of one exchange. Events go in, actions come out.
package struct HTTPExchange: Sendable {
    let environment: JSONEnvironment

    package init(environment: JSONEnvironment) { self.environment = environment }

    /// Takes what has happened.
    ///
    /// - Parameter actions: gets what is to be done, in order.
    package mutating func take(_ event: ExchangeEvent, at now: Moment, _ actions: inout [ExchangeAction]) {
        if case .request(let head) = event { actions.append(.pass(head)) }
    }
}
