// A running gateway as the admin commands see it.

import DoubleRatchet
import Foundation
import IRCGateway
import JSONGateway
import Logging
import NIOCore
import NIOSupport
import PawlConfiguration
import Protection
import Reports
import RequestQueue
import SQLiteKit
import StorePort
import Synchronization
import Vault

/// Everything that a command may ask of, or do to, a running gateway.
final class Gateway: Sendable {
    let role: Assembly.Role
    let environment: IRCEnvironment
    let store: any Store
    let vault: VaultRunner<SystemRandomSource>
    let server: any ChatServer
    /// In front of a backend that speaks HTTP: what its connections share, and its writes.
    let json: JSONBackend?
    /// Of the store, and of the queue where it has one of its own.
    let health: [StoreHealth]
    private let probeStores: @Sendable () -> Void
    let reporter: Reporter
    let logger: Logger
    let startedAt: Int64
    let dataDirectory: String
    let confirmations = Confirmations()
    /// Writes store and key into one file.
    let writeBackup: @Sendable (String) throws -> Void
    private let configuration: Mutex<PawlConfiguration>
    /// The configuration of this process's start: keys that wait for the next start are compared with it.
    private let started: PawlConfiguration
    /// What the files that the configuration names held when they were last read.
    private let files: Mutex<ConfiguredFiles>
    private let reloadConfiguration: @Sendable () throws -> PawlConfiguration
    private let requestStop: @Sendable () -> Void
    static let fromConfiguration = "from the configuration"
    /// Where the policy in force comes from, for people who wonder why the file does not count.
    private let policySource: Mutex<String>

    init(
        role: Assembly.Role, environment: IRCEnvironment, store: any Store, vault: VaultRunner<SystemRandomSource>,
        server: any ChatServer, json: JSONBackend? = nil, health: [StoreHealth],
        probeStores: @escaping @Sendable () -> Void, logger: Logger, configuration: PawlConfiguration,
        policySource: String,
        writeBackup: @escaping @Sendable (String) throws -> Void,
        reload: @escaping @Sendable () throws -> PawlConfiguration, requestStop: @escaping @Sendable () -> Void
    ) {
        self.role = role
        self.environment = environment
        self.store = store
        self.vault = vault
        self.server = server
        self.json = json
        self.health = health
        self.probeStores = probeStores
        self.logger = logger
        self.configuration = Mutex(configuration)
        started = configuration
        files = Mutex(ConfiguredFiles(configuration))
        self.policySource = Mutex(policySource)
        self.writeBackup = writeBackup
        reloadConfiguration = reload
        self.requestStop = requestStop
        reporter = Reporter(environment: environment, store: store)
        startedAt = SystemClock.now().wall
        dataDirectory = configuration.data
    }

    // MARK: Reports

    func status() async throws -> StatusReport {
        let current = configuration.withLock { $0 }
        // What cannot be written is reported from memory.
        try? writeDown()
        var report: StatusReport
        do {
            report = try reporter.status(
                upstream: "\(current.upstream.url)", policySource: policySource.withLock { $0 },
                connections: server.connectionCount, startedAt: startedAt, now: SystemClock.now())
        } catch {
            throw AdminFailure(storeProblem ?? error.message)
        }
        try await addWrites(to: &report)
        if json == nil, let dead = report.queue[RequestState.dead.name], dead > 0 {
            report.warnings.append(
                "\(dead) \(dead == 1 ? "message was" : "messages were") given up within the last hour: pawl queue list --state dead"
            )
        }
        if let problem = storeProblem {
            report.warnings.insert("Messages that have to be stored are refused. \(problem)", at: 0)
        }
        return report
    }

    /// Why a store does not keep what it is given; nil if all do. The files are looked at.
    var storeProblem: String? {
        for health in health { health.checkFiles() }
        return health.lazy.compactMap(\.problem).first
    }

    /// Finds out whether a store that failed works again.
    func probeStoresIfFailing() { if storeProblem != nil { probeStores() } }

    /// Writes down what is counted in memory.
    func writeDown() throws {
        let now = SystemClock.now().wall
        let changes = environment.tally.rows(at: now) + (json?.environment.observations.take(wall: now) ?? [])
        do {
            try commit(changes)
        } catch {
            giveBack(changes)
            throw error
        }
    }

    /// What could not be written down is counted in memory again.
    func giveBack(_ changes: [StoreChange]) {
        environment.tally.giveBack(changes)
        json?.environment.observations.giveBack(changes)
    }

    // MARK: Acts

    /// Sets a policy, stores and audits it, and applies it to all connections.
    ///
    /// - Parameter withRooms: whether an account's policy counts in rooms too.
    func setPolicy(_ policy: Policy?, for account: AccountID?, withRooms: Bool = false) throws {
        let name = account?.text ?? "everyone"
        let detail = "\(name): \(policy?.name ?? "removed")\(withRooms ? ", with rooms" : "")"
        var changes: [StoreChange] = [.setPolicy(account, policy)]
        if let account {
            changes.append(
                withRooms
                    ? .putRecord(RecordRow(kind: .policyWithRooms, name: account.text, value: []))
                    : .removeRecord(.policyWithRooms, name: account.text))
        }
        try commit(changes + [audit("policy", detail)])
        environment.policies.update { snapshot in
            if let account {
                snapshot.set(policy, for: account, withRooms: withRooms)
            } else if let policy {
                snapshot.everyone = policy
            }
        }
        if account == nil { policySource.withLock { $0 = "set by an operator" } }
        logger.notice("policy changed", metadata: ["scope": .string(account == nil ? "everyone" : "account")])
    }

    /// Lowers a latch and tells everybody in the conversation.
    func reset(_ conversation: ConversationID) throws {
        let isRoom = conversation.first.roomName != nil
        let detail =
            isRoom ? displayName(conversation.first) : "\(conversation.first.name) and \(conversation.second.name)"
        try commit([.removeConversation(conversation), audit("reset", detail)])
        environment.latches.reset(conversation)
        vault.submit([.reset(conversation)])
        if isRoom {
            return tell(conversation.first, "An operator has reset the protection of \(detail).")
        }
        let text = "An operator has reset the protection of your conversation with "
        tell(conversation.first, text + displayName(conversation.second) + ".")
        tell(conversation.second, text + displayName(conversation.first) + ".")
    }

    /// An account as people know it: a connection without a login by its nick, while it is here.
    func displayName(_ account: AccountID) -> String {
        guard !account.isVerified else { return account.roomName ?? account.name }
        return environment.roster.nicks(of: account).first ?? account.name
    }

    /// The account that an operator means: a services account, or the nick of somebody who is here without one.
    func account(named name: String) -> AccountID { PresentNames(self).account(name) }

    /// The account of a services name that an operator writes.
    func services(_ name: String) -> AccountID { .services(json == nil ? name.lowercased() : name) }

    /// A room by the name that an operator writes.
    func room(_ name: String) -> AccountID { PresentNames(self).room(name) }

    func tell(_ account: AccountID, _ text: String) {
        let connections =
            account.roomName.map(environment.rooms.connections)
            ?? environment.roster.entries.filter { $0.account == account }.map(\.connection)
        vault.send(connections.map { AddressedReply(connection: $0, reply: .remark(text)) })
    }

    func commit(_ changes: [StoreChange]) throws {
        for case let failure? in try store.commit([changes]) { throw AdminFailure(failure.message) }
    }

    func audit(_ action: String, _ detail: String) -> StoreChange {
        .audit(auditRow(action, detail))
    }

    func auditRow(_ action: String, _ detail: String) -> AuditRow {
        AuditRow(at: SystemClock.now().wall, actor: "operator", action: action, detail: detail)
    }

    /// The policy in the configuration as it stands in its file now, and what it would protect for good if it were applied.
    func configuredPolicy() throws -> (policy: Policy, forecast: LatchForecast) {
        let policy = Assembly.policy(try reloadConfiguration(), as: role)
        return (policy, try forecast(ofConfigured: policy))
    }

    private func forecast(ofConfigured policy: Policy) throws -> LatchForecast {
        guard policySource.withLock({ $0 == Self.fromConfiguration }) else { return LatchForecast() }
        var changed = environment.policies.snapshot
        changed.everyone = policy
        return try latchForecast(to: changed)
    }

    /// Reads the configuration again; a wrong one is refused and the old one kept.
    ///
    /// - Parameter agreed: the policy that may protect conversations for good, because an operator has agreed to it.
    /// - Returns: what changed, in words.
    func reload(agreed: Policy? = nil) throws -> [String] {
        let new = try reloadConfiguration()
        let policy = Assembly.policy(new, as: role)
        let forecast = policy == agreed ? LatchForecast() : try forecast(ofConfigured: policy)
        let old = configuration.withLock { $0 }
        let differences = new.differences(from: old)
        let waiting = Set(new.differences(from: started).map(\.name))
        let read = ConfiguredFiles(new)
        let contents = read.changes(since: files.withLock { $0 })
        let replaceMapping = try json?.reload(new)
        environment.replace(Assembly.ircSettings(new, as: role, network: environment.settings.network))
        replaceMapping?()
        configuration.withLock { $0 = new }
        files.withLock { $0 = read }
        let names = differences.map(\.name) + contents.map(\.name)
        try commit([audit("reload", names.joined(separator: " "))])
        logger.notice("configuration reloaded")
        let policyKey = role == .front ? "policy" : "sidecar.require"
        let adopted = adopt(policy, forecast, isNew: differences.contains { $0.name == policyKey })
        return (adopted.map { [$0] } ?? [])
            + differences.filter { $0.name != policyKey }.map { difference in
                guard difference.needsRestart, !waiting.contains(difference.name) else { return "\(difference)" }
                return "\(difference.name): \(difference.before) → \(difference.after) (as it runs; nothing waits)"
            } + contents.map(\.text)
    }

    /// The configured policy holds until an operator has set another one.
    ///
    /// - Parameters:
    ///   - forecast: what it would protect for good without the operator's consent.
    ///   - isNew: whether it has changed in the configuration.
    /// - Returns: what became of it, in words; nil if there is nothing to say.
    private func adopt(_ new: Policy, _ forecast: LatchForecast, isNew: Bool) -> String? {
        let inForce = environment.policies.snapshot.everyone
        guard policySource.withLock({ $0 == Self.fromConfiguration }) else {
            return isNew
                ? "policy: \(new.name) stands in the configuration, and what an operator has set stays: \(inForce.name)"
                : nil
        }
        guard new != inForce else { return nil }
        guard forecast.rises.isEmpty else {
            let count = forecast.rises.count
            let text =
                "policy: \(new.name) is not applied, because it would protect \(count) conversation\(count == 1 ? "" : "s") for good; "
                + "to see which and agree: pawl config reload"
            logger.warning("\(text)")
            return text
        }
        guard new.takesPart || environment.latches.isEmpty else {
            return "policy: off is not applied, because conversations are protected; reset them first"
        }
        environment.policies.update { $0.everyone = new }
        return "policy: \(new.name) (applied)"
    }

    /// Takes no more clients and ends when the last one has gone and nothing waits.
    func drain() async {
        logger.notice("draining")
        try? commit([audit("drain", "")])
        await server.drain()
        let stop = requestStop
        let server = server
        Task {
            while server.connectionCount > 0 { try? await Task.sleep(for: .milliseconds(200)) }
            stop()
        }
    }
}

/// Tokens for acts that a person has to confirm. Random, short-lived, for one use.
final class Confirmations: Sendable {
    /// Ours: questions that wait for an answer at a time; a new one then takes the place of the oldest.
    private static let limit = 1000

    private let pending = Mutex<[String: (words: String, until: Int64)]>([:])

    /// Whether a token confirms these words; it is used up.
    func accept(_ token: String?, for words: String) -> Bool {
        guard let token else { return false }
        let entry = pending.withLock { $0.removeValue(forKey: token) }
        guard let entry else { return false }
        return entry.words == words && entry.until > SystemClock.now().monotonic
    }

    /// A token for these words, good for two minutes.
    func issue(for words: String) -> String {
        let token = String(UInt64.random(in: .min ... .max), radix: 36)
        let now = SystemClock.now().monotonic
        pending.withLock { pending in
            pending = pending.filter { $0.value.until > now }
            if pending.count >= Self.limit, let oldest = pending.min(by: { $0.value.until < $1.value.until }) {
                pending[oldest.key] = nil
            }
            pending[token] = (words, now + 120_000_000_000)
        }
        return token
    }
}
