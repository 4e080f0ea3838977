// A gateway in front of a JSON backend.

import CommitLoop
import DeviceDirectory
import DoubleRatchet
import JSONGateway
import NIOCore
import NIOPosix
import NIOSupport
import Outbox
import Protection
import RequestQueue
import RequestQueueClient
import StorePort

/// The JSON side of a running gateway.
struct JSONFront: ChatFront {
    typealias Thread = CommitThread<JSONParticipants<SystemRandomSource>>

    let thread: Thread
    let backend: JSONBackend
    let gate: RequestGate

    private var writes: WriteQueue { backend.writes }

    var waitingJobs: Int { thread.depth }

    func tick(_ records: [StoreChange]) { thread.submit([.tick, .record(records)]) }
    func record(_ changes: [StoreChange]) { thread.submit([.record(changes)]) }
    func reset(_ conversation: ConversationID) { thread.submit([.reset(conversation)]) }

    func change(_ job: DirectoryJob, _ records: [StoreChange]) { thread.submit([.directory(job), .record(records)]) }

    /// Nothing: a request over HTTP ends with its answer, and a WebSocket carries the backend's frames only.
    func notify(_: [ConnectionID], _: String) {}

    /// Nothing: calls check the directory each time.
    func revokeProofs(of _: [ConnectionID], _: String) {}

    // MARK: Writes

    func carryOut(_ kind: RequestAct.Kind, on gateway: Gateway) async throws -> String? {
        switch kind {
        case .hold(.account(let account)):
            if let refusal = hold(.account(account), true, on: gateway) { return refusal }
            return try await writes.carryOut(kind)
        case .release(.account(let account)):
            if let refusal = hold(.account(account), false, on: gateway) { return refusal }
            return try await writes.carryOut(kind)
        case .drop(let id), .retry(let id), .purge(let id), .hold(.request(let id)), .release(.request(let id)):
            let request = try writes.request(id)
            if let refusal = try await writes.carryOut(kind) { return refusal }
            try gateway.commit([gateway.audit("queue.\(kind.name)", "\(id) of \(request.tenant)")])
            return nil
        }
    }

    /// Holds or releases all writes of an account. The hold is stored; its writes obey at once.
    ///
    /// - Returns: why it was not done; nil if it was.
    private func hold(_ scope: RequestScope, _ isHeld: Bool, on gateway: Gateway) -> String? {
        let wasHeld = gate.holds.contains(scope)
        guard isHeld || wasHeld else { return "Nothing of this account is held." }
        let name = scope.name
        let change: StoreChange =
            isHeld
            ? .putRecord(RecordRow(kind: .hold, name: name, value: Array("\(SystemClock.now().wall)".utf8)))
            : .removeRecord(.hold, name: name)
        do {
            try gateway.commit([change, gateway.audit("queue.\(isHeld ? "hold" : "release")", name)])
        } catch {
            return "The store did not take it, so nothing has changed. Look at the disk."
        }
        if isHeld { _ = gate.hold(scope) } else { gate.release(scope) }
        return nil
    }

    func deadRequests() throws -> [UInt64] { try writes.deadLetters() }

    func retryDead(on gateway: Gateway) async throws -> (retried: Int, refused: Int) {
        let ids = try deadRequests()
        var retried = 0
        for id in ids where try await writes.carryOut(.retry(id)) == nil { retried += 1 }
        try gateway.commit([gateway.audit("queue.retry", "all dead: \(retried) of \(ids.count)")])
        return (retried, ids.count - retried)
    }

    func endPauses() async throws -> Int { try await writes.queue.hurryAll() }

    func purgeDead(on gateway: Gateway) async throws -> Int {
        let count = try await writes.queue.purgeDead()
        try gateway.commit([gateway.audit("queue.purge", "all dead: \(count)")])
        return count
    }

    // MARK: Ends

    func drain() async throws { try await thread.drained(on: MultiThreadedEventLoopGroup.singleton.next()).get() }
    func stop() async { await thread.stop() }
}
