// A running gateway as the admin commands see it.

import DeviceDirectory
import Foundation
import Logging
import NIOSupport
import PawlConfiguration
import PostgresStore
import Protection
import Reports
import RequestQueue
import SQLiteKit
import StorePort
import Synchronization

/// The interface of a running gateway to the admin commands.
final class Gateway: Sendable {
    let parts: RoleParts
    let tables: SharedTables
    let store: any Store
    let front: any ChatFront
    let server: any ChatServer
    let health: StoreHealth
    private let probeStore: @Sendable () -> Void
    let reporter: Reporter
    let logger: Logger
    let startedAt: Int64
    let dataDirectory: String
    let confirmations = Confirmations()
    let stateChanges: StateChanges
    /// Its part among the gateways of a database; nil if the store is a file.
    let standby: Standby?
    /// Writes store, key and queue into one file.
    let writeBackup: @Sendable (String) throws -> Void
    private let configuration: Mutex<PawlConfiguration>
    /// The configuration at the start of this process. Keys that need a restart are compared with it.
    private let started: PawlConfiguration
    /// The digests of the configured files at the last reading.
    private let files: Mutex<ConfiguredFiles>
    private let readAgain: @Sendable () throws -> ReadConfiguration
    private let requestStop: @Sendable () -> Void
    static let fromConfiguration = "from the configuration"
    /// The origin of the policy in force, which explains why the file may have no effect.
    private let policySource: Mutex<String>

    init(
        parts: RoleParts, tables: SharedTables, store: any Store, front: any ChatFront,
        server: any ChatServer, health: StoreHealth,
        stateChanges: StateChanges, probeStore: @escaping @Sendable () -> Void, logger: Logger,
        configuration: PawlConfiguration,
        policySource: String, standby: Standby?,
        writeBackup: @escaping @Sendable (String) throws -> Void,
        readAgain: @escaping @Sendable () throws -> ReadConfiguration, requestStop: @escaping @Sendable () -> Void
    ) {
        self.parts = parts
        self.tables = tables
        self.store = store
        self.front = front
        self.server = server
        self.health = health
        self.stateChanges = stateChanges
        self.standby = standby
        self.probeStore = probeStore
        self.logger = logger
        self.configuration = Mutex(configuration)
        started = configuration
        files = Mutex(ConfiguredFiles(configuration))
        self.policySource = Mutex(policySource)
        self.writeBackup = writeBackup
        self.readAgain = readAgain
        self.requestStop = requestStop
        reporter = Reporter(
            policies: tables.policies, latches: tables.latches, tally: tables.tally, store: store)
        startedAt = SystemClock.now().wall
        dataDirectory = configuration.data
    }

    // MARK: Reports

    func status() async throws -> StatusReport {
        let current = configuration.withLock { $0 }
        // Counters that cannot be stored are reported from memory.
        try? writeDown()
        var report: StatusReport
        do {
            report = try reporter.status(
                upstream: "\(current.upstream.url)", policySource: policySource.withLock { $0 },
                published: deviceOwners.reduce(0) { $0 + $1.entry.published.count },
                connections: server.connectionCount, texts: front.commandTexts, startedAt: startedAt,
                now: SystemClock.now())
        } catch {
            throw storeProblem.map { AdminFailure(.notStored, $0) } ?? AdminFailure(error)
        }
        try await front.complete(&report)
        let forked = deviceOwners.filter(\.entry.isForked).map { displayName($0.account) }
        if !forked.isEmpty {
            report.warnings.append(
                "Two versions of the device list of \(forked.prefix(10).joined(separator: ", "))"
                    + "\(forked.count > 10 ? " and others" : ""), of which neither continues the other: one of the devices may "
                    + "be stolen. The first version stays. Ask the person which devices are theirs; then pawl devices list, "
                    + "pawl devices revoke.")
        }
        if let problem = storeProblem {
            report.warnings.insert("Messages that have to be stored are refused. \(problem)", at: 0)
        }
        return report
    }

    /// Why the store cannot commit; nil if it can. Checks that its files still exist.
    var storeProblem: String? {
        health.checkFiles()
        return health.problem
    }

    /// Checks whether the store works again after it has failed.
    func probeStoreIfFailing() { if storeProblem != nil { probeStore() } }

    /// Takes the counters that are in memory, to be stored or given back.
    func unstored() -> [StoreChange] {
        let now = SystemClock.now().wall
        return tables.tally.rows(at: now) + front.takeObservations(at: now)
    }

    /// Stores the counters that are in memory.
    func writeDown() throws {
        let changes = unstored()
        do {
            try commit(changes)
        } catch {
            giveBack(changes)
            throw error
        }
    }

    /// Returns counters that could not be stored to memory.
    func giveBack(_ changes: [StoreChange]) {
        tables.tally.giveBack(changes)
        front.giveBack(changes)
    }

    // MARK: Acts

    /// Sets a policy, stores and audits it, and applies it to all connections.
    ///
    /// - Parameter withRooms: whether an account's policy applies in rooms too.
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
        tables.policies.update { snapshot in
            if let account {
                snapshot.set(policy, for: account, withRooms: withRooms)
            } else if let policy {
                snapshot.everyone = policy
            }
        }
        if account == nil { policySource.withLock { $0 = "set by an operator" } }
        stateChanges.signal()
        logger.notice("policy changed", metadata: ["scope": .string(account == nil ? "everyone" : "account")])
    }

    /// Lowers a latch and notifies the connected members of the conversation.
    func reset(_ conversation: ConversationID) throws {
        let isRoom = conversation.first.roomName != nil
        let detail =
            isRoom ? displayName(conversation.first) : "\(conversation.first.name) and \(conversation.second.name)"
        try commit([.removeConversation(conversation), audit("reset", detail)])
        tables.latches.reset(conversation)
        front.reset(conversation)
        stateChanges.signal()
        if isRoom {
            return front.notify(conversation.first, "An operator has reset the protection of \(detail).")
        }
        let text = "An operator has reset the protection of your conversation with "
        front.notify(conversation.first, text + displayName(conversation.second) + ".")
        front.notify(conversation.second, text + displayName(conversation.first) + ".")
    }

    /// The name of an account for people: for a connection without a login its nick.
    func displayName(_ account: AccountID) -> String { front.displayName(account) }

    /// Returns the account of an operator's text: a services account, or the nick of a connected person without one.
    func account(named name: String) -> AccountID { front.names().account(name) }

    /// Returns the services account of an operator's text.
    func services(_ name: String) -> AccountID { front.services(name) }

    /// Returns the room of an operator's text.
    func room(_ name: String) -> AccountID { front.names().room(name) }

    func commit(_ changes: [StoreChange]) throws { try store.commitAsOne(changes) }

    func audit(_ action: String, _ detail: String) -> StoreChange {
        .audit(auditRow(action, detail))
    }

    func auditRow(_ action: String, _ detail: String) -> AuditRow {
        let actor = standby.map { "operator at \($0.membership.name)" } ?? "operator"
        return AuditRow(at: SystemClock.now().wall, actor: actor, action: action, detail: detail)
    }

    /// Reads the configuration again, with the files that it names. Nothing is in force yet.
    ///
    /// - Throws: an error that names the fault; the old configuration stays.
    func prepareReload() throws -> Reload {
        let read = try readAgain()
        let policy = role.policy(read.configuration)
        var forecast = LatchForecast()
        if policySource.withLock({ $0 == Self.fromConfiguration }) {
            forecast = try latchForecast { $0.everyone = policy }
        }
        return Reload(
            read: read, files: ConfiguredFiles(read.configuration), policy: policy, forecast: forecast,
            replaceFront: try front.reload(read.configuration))
    }

    /// Puts a configuration in force that was read again.
    ///
    /// - Parameter isAgreed: whether an operator has agreed to what the policy protects for good.
    /// - Returns: the changes in words.
    func reload(_ reload: Reload, isAgreed: Bool = false) throws -> [String] {
        let new = reload.read.configuration
        let old = configuration.withLock { $0 }
        let differences = new.differences(from: old)
        let waiting = Set(new.differences(from: started).map(\.name))
        let contents = reload.files.changes(since: files.withLock { $0 })
        reload.read.replaceEndpoints()
        reload.replaceFront()
        configuration.withLock { $0 = new }
        files.withLock { $0 = reload.files }
        defer { stateChanges.signal() }
        let names = differences.map(\.name) + contents.map(\.name)
        try commit([audit("reload", names.joined(separator: " "))])
        logger.notice("configuration reloaded")
        let adopted = adopt(
            reload.policy, isAgreed ? LatchForecast() : reload.forecast,
            isNew: differences.contains { $0.name == role.policyKey })
        return (adopted.map { [$0] } ?? [])
            + differences.filter { $0.name != role.policyKey }.map { difference in
                guard difference.needsRestart, !waiting.contains(difference.name) else { return "\(difference)" }
                return "\(difference.name): \(difference.before) → \(difference.after) (in force; no restart needed)"
            } + contents.map(\.text)
    }

    /// Applies the configured policy, unless an operator has set another one.
    ///
    /// - Parameters:
    ///   - forecast: what it would protect for good without the operator's consent.
    ///   - isNew: whether it has changed in the configuration.
    /// - Returns: the outcome in words; nil if nothing has changed.
    private func adopt(_ new: Policy, _ forecast: LatchForecast, isNew: Bool) -> String? {
        let inForce = tables.policies.snapshot.everyone
        guard policySource.withLock({ $0 == Self.fromConfiguration }) else {
            return isNew
                ? "policy: \(new.name) is configured, but the policy that an operator has set stays: \(inForce.name)"
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
        guard new.takesPart || tables.latches.isEmpty else {
            return "policy: off is not applied, because conversations are protected; reset them first"
        }
        tables.policies.update { $0.everyone = new }
        return "policy: \(new.name) (applied)"
    }

    /// Returns a question that the operator has to confirm.
    func question(_ text: String, _ words: String) -> AdminAnswer {
        let token = confirmations.issue(for: words)
        return AdminAnswer(
            exit: ExitStatus.needsConfirmation, out: "", error: "\(text) To confirm, add: --confirm \(token)",
            code: FailureCode.confirmationRequired.rawValue, confirmation: token)
    }

    /// Accepts no more clients, and stops the process when the last one has disconnected.
    func drain() async {
        logger.notice("draining")
        try? commit([audit("drain", "")])
        await server.drain()
        stateChanges.signal()
        let stop = requestStop
        let server = server
        Task {
            while server.connectionCount > 0 { try? await Task.sleep(for: .milliseconds(200)) }
            stop()
        }
    }
}

/// A configuration that was read again. It is not in force.
struct ReadConfiguration: Sendable {
    var configuration: PawlConfiguration
    /// Puts its certificates and its backend in force.
    var replaceEndpoints: @Sendable () -> Void
}

/// A reload that is prepared: everything that can fail has been read.
struct Reload: Sendable {
    fileprivate let read: ReadConfiguration
    fileprivate let files: ConfiguredFiles
    let policy: Policy
    /// What the policy would protect for good.
    let forecast: LatchForecast
    fileprivate let replaceFront: @Sendable () -> Void
}

/// Random tokens that confirm an act. Each is valid once and for two minutes.
final class Confirmations: Sendable {
    /// Ours: open questions at one time. Beyond that, a new one replaces the oldest.
    private static let limit = 1000

    private let pending = Mutex<[String: (words: String, until: Int64)]>([:])

    /// Whether a token confirms these words. The token is consumed.
    func accept(_ token: String?, for words: String) -> Bool {
        guard let token else { return false }
        let entry = pending.withLock { $0.removeValue(forKey: token) }
        guard let entry else { return false }
        return entry.words == words && entry.until > SystemClock.now().monotonic
    }

    /// Issues a token for these words.
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
