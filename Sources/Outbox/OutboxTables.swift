// The tables about requests that participants, connections and operators share.

/// The shared tables of requests. Each is safe from any thread; none holds texts of messages.
package final class OutboxTables: Sendable {
    package let gate = RequestGate()
    package let counters = RequestCounters()
    package let traces = RequestTraces()

    package init() {}
}
