// The memory for all bodies that the gateway collects, over all connections.
//
// A limit for each body does not bound the memory of many. What is streamed needs no place here: the window of each
// connection bounds it. A body has its place from its first byte until it is written to the client, or dropped.

import NIOCore
import Synchronization

/// Bytes that may be collected at one time. Every reservation is taken from it, and given back to it.
package final class ByteBudget: Sendable {
    /// What is collected.
    package enum Use: Int, CaseIterable, Sendable {
        case request, answer, lookup, webSocket

        /// The label in metrics.
        package var name: String {
            switch self {
            case .request: "request"
            case .answer: "answer"
            case .lookup: "lookup"
            case .webSocket: "websocket"
            }
        }
    }

    private let limitBytes: Atomic<Int>
    private let usedBytes = Atomic<Int>(0)
    private let refusalCounts = Mutex([Int](repeating: 0, count: Use.allCases.count))

    package init(limit: Int) { limitBytes = Atomic(limit) }

    package var limit: Int { limitBytes.load(ordering: .relaxed) }
    /// Bytes of all reservations.
    package var used: Int { usedBytes.load(ordering: .relaxed) }
    /// Refused reservations since the start.
    package var refusals: [(use: Use, count: Int)] {
        let counts = refusalCounts.withLock { $0 }
        return Use.allCases.map { ($0, counts[$0.rawValue]) }
    }

    /// Changes the limit, for a reload. Present reservations stay.
    package func setLimit(_ limit: Int) { limitBytes.store(limit, ordering: .relaxed) }

    /// Returns an empty reservation.
    package func reservation() -> ByteReservation { ByteReservation(self) }

    /// Takes bytes, if the limit allows it.
    fileprivate func reserve(_ count: Int, for use: Use) -> Bool {
        var used = usedBytes.load(ordering: .relaxed)
        while count <= limit - used {
            let result = usedBytes.weakCompareExchange(expected: used, desired: used + count, ordering: .relaxed)
            if result.exchanged { return true }
            used = result.original
        }
        refusalCounts.withLock { $0[use.rawValue] += 1 }
        return false
    }

    fileprivate func change(by difference: Int) { usedBytes.add(difference, ordering: .relaxed) }
}

/// A place in a ``ByteBudget``. Its owner releases it where it ends; what is forgotten is released with the object.
package final class ByteReservation: Sendable {
    private let budget: ByteBudget
    private let held = Atomic<Int>(0)

    fileprivate init(_ budget: ByteBudget) { self.budget = budget }

    deinit { release() }

    /// Reserved bytes.
    package var count: Int { held.load(ordering: .relaxed) }

    /// Changes the reservation to a number of bytes. One owner calls this at a time.
    ///
    /// - Returns: false if there is no room for them; the reservation is then unchanged.
    package func resize(to count: Int, for use: ByteBudget.Use) -> Bool {
        let more = count - self.count
        guard more > 0 else {
            set(count)
            return true
        }
        guard budget.reserve(more, for: use) else { return false }
        held.store(count, ordering: .relaxed)
        return true
    }

    /// Changes the reservation without regard to the limit, for bytes that are there already.
    package func set(_ count: Int) {
        let difference = count - held.exchange(count, ordering: .relaxed)
        if difference != 0 { budget.change(by: difference) }
    }

    /// Gives all bytes back. Can be called several times.
    package func release() { set(0) }

    /// Returns a promise of a write after which the bytes are given back, whether it succeeds or not.
    ///
    /// - Parameter eventLoop: that of the channel; nil if there is no channel to write to.
    func released(on eventLoop: (any EventLoop)?) -> EventLoopPromise<Void>? {
        guard let eventLoop else {
            release()
            return nil
        }
        let written = eventLoop.makePromise(of: Void.self)
        written.futureResult.whenComplete { _ in self.release() }
        return written
    }
}
