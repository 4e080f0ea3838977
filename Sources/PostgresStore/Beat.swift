// The sign of life of a gateway: a number in its row that rises. Others compare it with what they have read before; no clock
// is compared. It has a connection and a thread of its own, so that neither a report nor a slow commit stops it.

import Foundation
import StorePort
import Synchronization

/// Raises the beat of a gateway until it ends.
final class Beat: Sendable {
    private struct State {
        var gateway: Int64
        /// The id that replaces it, from before that is tried until it is known to have succeeded.
        var next: Int64?
        var isTaken = false
        var whenTaken: (@Sendable () -> Void)?
    }

    private let control: Link
    private let state: Mutex<State>
    private let stop = Stop()

    init(_ control: Link, gateway: Int64) {
        self.control = control
        state = Mutex(State(gateway: gateway))
        Thread.detachNewThread { [self] in run() }
    }

    /// Sets what is called once if another gateway removes the row of this one.
    func whenTaken(_ body: @escaping @Sendable () -> Void) {
        let isTaken = state.withLock { state in
            state.whenTaken = body
            return state.isTaken
        }
        if isTaken { body() }
    }

    /// Removes the gateway's row, so that another one may start at once, and waits for that. The shards keep their epochs.
    func end() { stop.request() }

    /// Replaces the gateway's id.
    ///
    /// - Parameter body: stores the new id in the database; it gets the connection, the old id and the new one.
    func replace(
        _ body: @Sendable (Link, Int64, Int64) throws(StoreError) -> Raised
    ) throws(StoreError) -> Raised {
        try state.withLock { (state) throws(StoreError) in
            let next = state.next ?? Int64.random(in: 1...Int64.max)
            state.next = next
            let raised = try body(control, state.gateway, next)
            (state.gateway, state.next) = (next, nil)
            return raised
        }
    }

    private func run() {
        while !stop.wait(milliseconds: Joining.beatInterval) { raise() }
        let gateway = state.withLock { $0.gateway }
        _ = try? control.read("DELETE FROM pawl.gateway WHERE id = $1::int8", [.number(gateway)]) { _ in }
        control.close()
        stop.confirm()
    }

    private func raise() {
        let taken = state.withLock { (state) -> (@Sendable () -> Void)? in
            guard !state.isTaken else { return nil }
            let rows = try? control.read(
                "UPDATE pawl.gateway SET beat = beat + 1 WHERE id = ANY($1::int8[]) RETURNING id",
                [.numbers([state.gateway, state.next ?? state.gateway])]
            ) { $0.count }
            // A database that does not answer takes nothing from this gateway: another one could not take over either.
            guard rows == 0 else { return nil }
            state.isTaken = true
            return state.whenTaken
        }
        taken?()
    }
}

/// A request to stop, and its confirmation.
final class Stop: @unchecked Sendable {
    // `@unchecked`: the condition guards both values.

    /// Ours: how long a stop waits for its confirmation, in seconds. The database may be away.
    private static let limit = 5.0

    private let condition = NSCondition()
    private var isRequested = false
    private var isConfirmed = false

    /// Waits for a request.
    ///
    /// - Returns: whether there was one.
    func wait(milliseconds: Int) -> Bool {
        condition.withLock {
            let end = Date(timeIntervalSinceNow: Double(milliseconds) / 1000)
            while !isRequested { guard condition.wait(until: end) else { break } }
            return isRequested
        }
    }

    func request() {
        condition.withLock {
            isRequested = true
            condition.broadcast()
            let end = Date(timeIntervalSinceNow: Self.limit)
            while !isConfirmed { guard condition.wait(until: end) else { return } }
        }
    }

    func confirm() {
        condition.withLock {
            isConfirmed = true
            condition.broadcast()
        }
    }
}
