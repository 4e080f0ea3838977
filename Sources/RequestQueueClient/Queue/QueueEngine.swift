// The thread that owns the machine: takes what has come in, commits one batch for all of it, and does what the batch allows.

import Dispatch
import Foundation
import RequestQueue
import Synchronization

/// Runs a ``QueueMachine`` on a thread of its own. Commits block that thread and nobody else.
final class QueueEngine: Sendable {
    /// Something that changes the machine. What it returns is called when the batch is committed, or with why it is not.
    typealias Event = @Sendable (inout QueueMachine, QueueTime) -> (@Sendable (QueueStoreError?) -> Void)?
    typealias Dispatches = @Sendable (QueueBatch) -> Void

    /// Milliseconds until the next try after a commit has failed.
    static let pause: Int64 = 1_000

    private struct Inbox {
        var events: [Event] = []
        var isStopping = false
        var hasEnded = false
    }

    private let inbox = Mutex(Inbox())
    private let signal = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let store: any QueueStore
    private let act: Dispatches

    /// - Parameter act: called on the engine's thread with each batch that is committed.
    init(_ machine: consuming QueueMachine, store: any QueueStore, act: @escaping Dispatches) {
        (self.store, self.act) = (store, act)
        let machine = machine
        let thread = Thread { [self] in run(machine) }
        thread.name = "pawl.queue"
        thread.start()
    }

    /// Hands something to the thread.
    ///
    /// - Returns: whether it will be done; not when the thread has ended.
    @discardableResult
    func post(_ event: @escaping Event) -> Bool {
        let place: Int? = inbox.withLock { inbox in
            guard !inbox.hasEnded else { return nil }
            inbox.events.append(event)
            return inbox.events.count
        }
        // One signal for all that comes in before the thread looks.
        if place == 1 { signal.signal() }
        return place != nil
    }

    /// Ends the thread when what has come in is committed.
    func stop() {
        inbox.withLock { $0.isStopping = true }
        signal.signal()
        ended.wait()
        ended.signal()
    }

    static func now() -> QueueTime {
        let wall = Date().timeIntervalSince1970
        return QueueTime(
            wall: Int64(wall * 1000), uptime: Int64(clamping: DispatchTime.now().uptimeNanoseconds / 1_000_000))
    }

    private func run(_ machine: QueueMachine) {
        var machine = machine
        var wake: Int64? = Self.now().uptime
        while true {
            let (events, isStopping) = wait(until: wake)
            let now = Self.now()
            var answers: [@Sendable (QueueStoreError?) -> Void] = []
            for event in events {
                if let answer = event(&machine, now) { answers.append(answer) }
            }
            let batch = machine.turn(now: now)
            let failure = commit(batch)
            if failure == nil {
                act(batch)
            } else {
                _ = machine.failed(batch)
            }
            for answer in answers { answer(failure) }
            if isStopping { break }
            wake = failure == nil ? machine.nextWake() : now.uptime + Self.pause
        }
        ended.signal()
    }

    private func commit(_ batch: QueueBatch) -> QueueStoreError? {
        guard !batch.changes.isEmpty else { return nil }
        do throws(QueueStoreError) {
            try store.commit(batch.changes)
            return nil
        } catch {
            return error
        }
    }

    private func wait(until wake: Int64?) -> (events: [Event], isStopping: Bool) {
        if let wake {
            let left = max(wake - Self.now().uptime, 0)
            if left > 0 { _ = signal.wait(timeout: .now() + .milliseconds(Int(min(left, 3_600_000)))) }
        } else {
            signal.wait()
        }
        return inbox.withLock { inbox in
            let events = inbox.events
            inbox.events = []
            inbox.hasEnded = inbox.isStopping
            return (events, inbox.isStopping)
        }
    }
}
