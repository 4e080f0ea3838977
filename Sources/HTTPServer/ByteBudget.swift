// The memory for all bodies that the gateway collects, over all connections.
//
// A limit for each body does not bound the memory of many. What is streamed needs no place here: the window of each
// connection bounds it. A body has its place from its first byte until it is written to the client, or dropped.
//
// An account may hold as much as it leaves free for others. So one alone gets half of the memory, two that want all of it
// get a third each, and one that comes later has room in any case. Choudhury and Hahne, "Dynamic Queue Length Thresholds
// for Shared-Memory Packet Switches", 1998: no share has to be configured, and none is set aside for those who are not here.

import NIOCore
package import Protection
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

    private struct State {
        var limit: Int
        var used = 0
        /// What each account holds, if it holds anything.
        var held: [AccountID: Int] = [:]
        var refusals = [Int](repeating: 0, count: Use.allCases.count)

        func has(room count: Int, for account: AccountID?) -> Bool {
            let free = limit - used - count
            return free >= 0 && account.map { held[$0, default: 0] + count <= free } ?? true
        }

        mutating func change(by difference: Int, for account: AccountID?) {
            used += difference
            guard let account else { return }
            let count = held[account, default: 0] + difference
            held[account] = count == 0 ? nil : count
        }
    }

    private let state: Mutex<State>

    package init(limit: Int) { state = Mutex(State(limit: limit)) }

    package var limit: Int { state.withLock { $0.limit } }
    /// Bytes of all reservations.
    package var used: Int { state.withLock { $0.used } }
    /// Refused reservations since the start.
    package var refusals: [(use: Use, count: Int)] {
        let counts = state.withLock { $0.refusals }
        return Use.allCases.map { ($0, counts[$0.rawValue]) }
    }

    /// Changes the limit, for a reload. Present reservations stay.
    package func setLimit(_ limit: Int) { state.withLock { $0.limit = limit } }

    /// Returns an empty reservation.
    ///
    /// - Parameter account: for whom; nil for what no account causes, which has the rest of the memory.
    package func reservation(of account: AccountID? = nil) -> ByteReservation { ByteReservation(self, account) }

    /// Takes bytes, if the limit allows it.
    fileprivate func reserve(_ count: Int, for use: Use, of account: AccountID?) -> Bool {
        state.withLock { state in
            guard state.has(room: count, for: account) else {
                state.refusals[use.rawValue] += 1
                return false
            }
            state.change(by: count, for: account)
            return true
        }
    }

    fileprivate func change(by difference: Int, for account: AccountID?) {
        state.withLock { $0.change(by: difference, for: account) }
    }
}

/// A place in a ``ByteBudget``. Its owner releases it where it ends; what is forgotten is released with the object.
package final class ByteReservation: Sendable {
    private let budget: ByteBudget
    private let account: AccountID?
    private let held = Atomic<Int>(0)

    fileprivate init(_ budget: ByteBudget, _ account: AccountID?) { (self.budget, self.account) = (budget, account) }

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
        guard budget.reserve(more, for: use, of: account) else { return false }
        held.store(count, ordering: .relaxed)
        return true
    }

    /// Changes the reservation without regard to the limit, for bytes that are there already.
    package func set(_ count: Int) {
        let difference = count - held.exchange(count, ordering: .relaxed)
        if difference != 0 { budget.change(by: difference, for: account) }
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
