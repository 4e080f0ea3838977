// What the participants, the connections and operators share about requests in flight.

/// The shared tables of requests. Each is safe from any thread; none holds what somebody wrote.
package final class RequestDesk: Sendable {
    package let gate = RequestGate()
    package let ledger = RequestLedger()
    package let traces = RequestTraces()

    package init() {}
}
