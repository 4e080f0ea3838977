// Counters of HTTP connections, for the metrics page.

import Synchronization

/// Counters of all HTTP connections of a gateway.
package final class HTTPMeters: Sendable {
    private let requestCount = Atomic<Int>(0)
    private let upstreamCount = Atomic<Int>(0)
    /// Responses by status class, 1xx to 5xx. RFC 9110 section 15.
    private let answerCounts = Mutex([Int](repeating: 0, count: 5))

    package init() {}

    /// Requests of clients since the start.
    package var requests: Int { requestCount.load(ordering: .relaxed) }
    /// Connections to the backend, including those being established.
    package var upstreamConnections: Int { upstreamCount.load(ordering: .relaxed) }
    /// Responses since the start, by status class, for instance `2xx`.
    package var answers: [(name: String, count: Int)] {
        answerCounts.withLock { $0 }.enumerated().map { ("\($0.offset + 1)xx", $0.element) }
    }

    package func requested() { requestCount.add(1, ordering: .relaxed) }

    package func answered(_ status: Int) {
        guard (100..<600).contains(status) else { return }
        answerCounts.withLock { $0[status / 100 - 1] += 1 }
    }

    func upstreamChanged(by difference: Int) { upstreamCount.add(difference, ordering: .relaxed) }
}
