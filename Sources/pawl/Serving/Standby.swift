// A gateway on a database that other gateways have joined too. While another one serves, this process holds its control
// socket and its metrics, and listens for no clients. When the shards are its own, it assembles a gateway and serves.

import Foundation
import Logging
import NIOCore
import NIOPosix
import NIOSupport
import PawlConfiguration
import PostgresStore
import Protection
import ServiceLifecycle
import StorePort

/// A process among the gateways of a database.
final class Standby: Sendable {
    let configuration: PawlConfiguration
    let membership: Membership
    let group: MultiThreadedEventLoopGroup
    let stateChanges = StateChanges()
    /// Holds what connections read and write while the database gives no answer.
    let gate: ActGate
    let logger: Logger
    private let requestStop: @Sendable () -> Void
    private let state = Shared(State())

    private struct State {
        var gateway: Gateway?
        /// When clients were accepted, by the clock of the membership.
        var readyAt: Int64?
        var isAsked = false
        var failure: StoreError?
        var wake: (@Sendable () -> Void)?
    }

    init(
        _ membership: Membership, _ configuration: PawlConfiguration, logger: Logger,
        requestStop: @escaping @Sendable () -> Void
    ) {
        (self.membership, self.configuration) = (membership, configuration)
        (self.logger, self.requestStop) = (logger, requestStop)
        group = MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount)
        gate = ActGate { membership.isFresh }
    }

    // MARK: Taking part

    /// Begins to follow what becomes of this gateway.
    func begin() {
        var watch = Membership.Watch()
        watch.changed = { [self] in wake() }
        watch.fresh = { [gate] in gate.open() }
        watch.asked = { [self] in asked() }
        watch.ended = { [self] in ended($0) }
        membership.follow(watch)
    }

    /// Waits until the shards are this gateway's.
    ///
    /// - Parameter announce: called once, with the name of the gateway that serves.
    /// - Returns: false if the process is to stop.
    /// - Throws: ``StoreError`` if this gateway cannot take part.
    func waitForShards(_ announce: (String) -> Void) async throws -> Bool {
        let (events, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        state.withLock { $0.wake = { continuation.yield() } }
        continuation.yield()
        var isAnnounced = false
        for await _ in events.cancelOnGracefulShutdown() {
            let (isAsked, failure) = state.withLock { ($0.isAsked, $0.failure) }
            if let failure { throw failure }
            if isAsked { return false }
            if membership.isOwner { return true }
            if !isAnnounced, let name = membership.runningOwner {
                isAnnounced = true
                announce(name)
            }
        }
        return false
    }

    private func wake() { state.withLock { $0.wake }?() }

    /// This gateway serves from now on. If it was to end while it was assembled, its end is requested now.
    func serve(_ gateway: Gateway) {
        let (isAsked, failure) = state.withLock { state in
            state.gateway = gateway
            return (state.isAsked, state.failure)
        }
        membership.count { gateway.server.connectionCount }
        if isAsked { handOver(gateway) }
        if failure != nil { requestStop() }
    }

    /// The line of the audit log that says which gateway the following ones are of.
    var auditRow: AuditRow {
        let from = membership.takenHow?.from.map { ", taken over from \($0)" } ?? ""
        return AuditRow(
            at: SystemClock.now().wall, actor: "pawl", action: "gateways.serve",
            detail: "\(membership.name) (\(Gateways.hex(membership.id)))" + from)
    }

    /// Clients are accepted.
    func isReady() { state.withLock { $0.readyAt = Membership.now() } }

    /// Before the connections end: others see that this gateway drains. The server ends the gate after what it still sends.
    func endServing() { membership.drain() }

    private func asked() {
        logger.notice("an operator has asked this gateway to drain: it hands over and ends")
        end()
    }

    /// Ends this process as an operator has asked: at once while it stands by, after it is assembled, or while it serves.
    private func end() {
        let (isFirst, gateway) = state.withLock { state in
            defer { state.isAsked = true }
            return (!state.isAsked, state.gateway)
        }
        guard let gateway else { return wake() }
        if isFirst { handOver(gateway) }
    }

    /// Ends a gateway that serves. On a thread of its own: the caller's is that of the beat, and a commit may wait for another
    /// one, or for the database.
    private func handOver(_ gateway: Gateway) {
        Thread.detachNewThread { [self] in
            try? gateway.commit([gateway.audit("gateways.drain", membership.name)])
            requestStop()
        }
    }

    private func ended(_ ending: Membership.Ending) {
        switch ending {
        case .takenOver: Self.endTaken(logger)
        case .failed(let error):
            logger.critical("\(error.message) This gateway ends.")
            let isServing = state.withLock { state in
                state.failure = error
                return state.gateway != nil
            }
            if isServing { requestStop() } else { wake() }
        }
    }

    /// Ends a process whose shards another gateway has: at once, so that nothing more is shown on what it knew.
    static func endTaken(_ logger: Logger) {
        logger.critical(
            "Another gateway has taken over the database of the store. This process ends, and may be started again.")
        ProcessEnd.end(ExitStatus.takenOver)
    }

    // MARK: Answers

    var gateway: Gateway? { state.withLock { $0.gateway } }

    /// Why this gateway cannot take part any more; nil if it can.
    var failure: StoreError? { state.withLock { $0.failure } }

    /// Why this gateway is not ready, as far as the database is concerned; nil if it is.
    var unreadiness: String? {
        let (isAssembled, isListening) = state.withLock { ($0.gateway != nil, $0.readyAt != nil) }
        guard isAssembled else { return situation }
        guard isListening else { return "taking over: the store is loaded, and no clients are accepted yet" }
        guard !membership.isFresh else { return nil }
        return "not fresh: the database has not answered for \((membership.beatAge ?? 0) / 1000) s"
    }

    /// What this gateway does while it does not serve.
    private var situation: String { "standing by: \(membership.serving ?? "nobody") serves" }

    private struct Report: Codable {
        var gateway: String
        var standsBy = true
        /// The name of the gateway that serves, if one does.
        var serving: String?
    }

    /// Performs a command, by the gateway if this process serves.
    func perform(_ words: [String]) async -> AdminAnswer {
        if let gateway { return await AdminGrammar.perform(words, on: gateway) }
        return await AdminGrammar.perform(words) { command in
            switch command {
            case let command as any ClusterCommand: return try await command.answer(self.membership)
            case let command as Version: return try command.answer()
            case is Drain:
                self.end()
                return try .done("This gateway stands by, and ends.", json: command.common.json)
            case is Status:
                let serving = self.membership.serving
                if command.common.json {
                    return try .json(Report(gateway: self.membership.name, serving: serving))
                }
                return .text("This gateway stands by: \(serving ?? "nobody") serves. All of them: pawl gateways")
            default:
                throw AdminFailure(
                    .standingBy,
                    "This gateway stands by: \(self.membership.serving ?? "nobody") serves. Use the control socket of that "
                        + "one. What each gateway does: pawl gateways.")
            }
        }
    }

    /// The page of metrics.
    func metrics() async -> String {
        if let gateway { return await MetricsPage.text(gateway) }
        var page = MetricsPage()
        page.addGateways(self)
        return page.text
    }

    /// How long a takeover lasted, from the last beat of the gateway before until clients were accepted, in seconds; nil if
    /// there was none.
    var takeoverSeconds: Int? {
        guard let how = membership.takenHow, how.from != nil, let ready = state.withLock({ $0.readyAt }) else {
            return nil
        }
        return Int(max(ready - how.since, 0) / 1000)
    }
}
