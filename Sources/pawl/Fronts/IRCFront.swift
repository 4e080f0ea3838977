// An IRC gateway, in front of a backend or beside a client.

import CommitLoop
import DeviceDirectory
import DoubleRatchet
import IRCGateway
import NIOCore
import NIOPosix
import NIOSupport
import Outbox
import Protection
import Reports
import RequestQueue
import StorePort

/// The IRC side of a running gateway.
struct IRCFront: ChatFront {
    typealias Thread = CommitThread<IRCParticipants<SystemRandomSource>>

    let thread: Thread
    let environment: IRCEnvironment
    let store: any Store

    var waitingJobs: Int { thread.depth }

    func tick(_ records: [StoreChange]) { thread.submit([.tick, .record(records)]) }
    func record(_ changes: [StoreChange]) { thread.submit([.record(changes)]) }
    func reset(_ conversation: ConversationID) { thread.submit([.reset(conversation)]) }

    func change(_ job: DirectoryJob, _ records: [StoreChange]) { thread.submit([.directory(job), .record(records)]) }

    func notify(_ connections: [ConnectionID], _ text: String) { send(.remark(text), to: connections) }

    func revokeProofs(of connections: [ConnectionID], _ reason: String) {
        send(.directory(id: 0, .refused(reason)), to: connections)
    }

    func send(_ reply: IRCReply, to connections: [ConnectionID]) {
        thread.send(connections.map { AddressedReply(connection: $0, reply: reply) })
    }

    // MARK: Requests

    func carryOut(_ kind: RequestAct.Kind, on gateway: Gateway) async throws -> String? {
        var subject: Request?
        let detail: String
        switch kind {
        case .drop(let id), .retry(let id), .purge(let id):
            subject = try store.request(id)
            detail = "\(id)" + (subject.map { " of \($0.account)" } ?? "")
        case .hold(let scope), .release(let scope): detail = scope.name
        }
        let outcome = await withCheckedContinuation { continuation in
            let act = RequestAct(kind, audit: gateway.auditRow("queue.\(kind.name)", detail)) {
                continuation.resume(returning: $0)
            }
            thread.submit([.act(act)])
        }
        switch outcome {
        case .refused(let why): return why
        case .done(let isNotified):
            guard let subject else { return nil }
            let account = AccountID(text: subject.account)
            switch kind {
            case .drop where !isNotified: gateway.tell(account, Remarks.dropped(target: subject.target))
            case .retry: send(.recall, to: Array(environment.roster.connections(of: account).prefix(1)))
            default: break
            }
            return nil
        }
    }

    func deadRequests() throws -> [UInt64] {
        try store.requests(states: [.dead], limit: 1_000_000).map(\.id)
    }

    func retryDead(on gateway: Gateway) async throws -> (retried: Int, refused: Int) {
        let ids = try deadRequests()
        var retried = 0
        for id in ids where try await carryOut(.retry(id), on: gateway) == nil { retried += 1 }
        return (retried, ids.count - retried)
    }

    /// Connections pace themselves; the queue has no pauses.
    func endPauses() async throws -> Int { 0 }

    func purgeDead(on gateway: Gateway) async throws -> Int {
        var count = 0
        for id in try deadRequests() where try await carryOut(.purge(id), on: gateway) == nil { count += 1 }
        return count
    }

    // MARK: Ends

    func drain() async throws { try await thread.drained(on: MultiThreadedEventLoopGroup.singleton.next()).get() }
    func stop() async { await thread.stop() }
}
