// The additional parts of a gateway in front of a JSON backend: the mapping, and the queue of writes.

import DeviceDirectory
import Devices
import DoubleRatchet
import HTTPServer
import JSONGateway
import MappingFile
import NIOCore
import NIOSupport
import Outbox
import PawlConfiguration
import Protection
import RequestQueue
import RequestQueueClient
import StorePort
import Vault

/// The parts of a gateway that only HTTP needs.
struct JSONBackend: Sendable {
    let environment: JSONEnvironment
    let writes: WriteQueue
    let meters: HTTPMeters
    /// The memory for all bodies that are collected.
    let budget: ByteBudget
    /// Nil without a push hook.
    let push: PushHook?

    /// Creates the state that exchanges share.
    ///
    /// - Throws: an error of the mapping or of the store.
    static func environment(
        _ configuration: PawlConfiguration, _ tables: SharedTables, _ directory: DirectoryCache, _ store: any Store,
        sealer: StorageSealer
    ) throws -> JSONEnvironment {
        let environment = JSONEnvironment(
            mapping: try mapping(configuration), texts: JSONFront.texts(configuration), policies: tables.policies,
            latches: tables.latches, directory: directory,
            writes: WriteTables(
                keys: WriteKeys(secret: sealer.secret(for: "names of writes")), opened: tables.outbox.traces,
                tally: tables.tally),
            answerLimit: configuration.limits.answerBytes, relays: relayLimits(configuration),
            push: configuration.push.url == nil ? nil : PushNotices())
        environment.accounts.adopt(try store.evidence(limit: 1_000_000))
        return environment
    }

    /// The queue's settings.
    static func queueSettings(_ configuration: PawlConfiguration) -> QueueMachine.Settings {
        var settings = JSONParticipants.queueSettings(host: host(configuration.upstream.url))
        settings.limits.requestsPerTenant = configuration.limits.pendingRequestsPerAccount
        settings.limits.age = configuration.queueRequestAge.milliseconds
        return settings
    }

    /// The credentials of accounts, with those that an earlier process has stored.
    static func credentials(
        _ configuration: PawlConfiguration, _ environment: JSONEnvironment, stored: [ExactText: [UInt8]],
        _ sealer: StorageSealer
    ) -> AccountCredentials {
        let waiters = environment.writes.waiters
        let isNew: @Sendable (RequestToken) -> Bool = { waiters.expects($0) }
        return switch configuration.queueCredentials {
        case .memory: AccountCredentials(environment.credentials, isNew: isNew)
        case .sealed:
            AccountCredentials(
                environment.credentials, sealer: CredentialSealer(sealer: sealer), stored: stored, isNew: isNew)
        }
    }

    /// Creates the queue of writes on a commit thread, and makes it the addressee of the queue's turns.
    ///
    /// - Parameters:
    ///   - credentials: those of accounts. The queue's machine knows which accounts have one.
    ///   - sender: the connections over which writes are sent.
    init(
        _ configuration: PawlConfiguration, _ environment: JSONEnvironment, _ store: any Store,
        _ thread: JSONFront.Thread, credentials: AccountCredentials, sender: UpstreamSender, meters: HTTPMeters,
        budget: ByteBudget, push: PushHook?
    ) {
        (self.environment, self.meters, self.budget, self.push) = (environment, meters, budget, push)
        let driver = CommitLoopQueue(on: sender.eventLoop, thread: thread, clock: SystemClock.now)
        thread.register(driver, as: JSONParticipants.sender)
        writes = WriteQueue(
            store: store.queueTables, driver: driver, host: Self.host(configuration.upstream.url),
            credentials: credentials, sender: sender, environment: environment,
            submit: { thread.submit($0) })
    }

    /// - Throws: ``ConfigurationError`` if the mapping cannot be used.
    static func mapping(_ configuration: PawlConfiguration) throws -> Mapping {
        try MappingFile.read(path: configuration.mapping ?? "", kinds: configuration.kinds)
    }

    private static func host(_ url: PawlConfiguration.Endpoint) -> String {
        "\(url.isEncrypted ? "https" : "http")://\(url.address)"
    }

    /// Reads the mapping again, for a reload.
    ///
    /// - Returns: a closure that puts the new mapping in force.
    /// - Throws: an error of the mapping.
    func reload(_ configuration: PawlConfiguration) throws -> @Sendable () -> Void {
        let mapping = try Self.mapping(configuration)
        let texts = JSONFront.texts(configuration)
        let limit = configuration.limits.answerBytes
        let relays = Self.relayLimits(configuration)
        let collected = configuration.limits.collectedBytes
        return { [environment, budget] in
            budget.setLimit(collected)
            environment.replace(mapping, texts: texts, answerLimit: limit, relays: relays)
        }
    }

    private static func relayLimits(_ configuration: PawlConfiguration) -> RelayLimits {
        let limits = configuration.limits
        return RelayLimits(
            connections: limits.relaysPerAccount, bytesPerSecond: limits.relayBytesPerSecond,
            idle: limits.relayIdle.milliseconds * 1_000_000)
    }

    /// Adds the queue of writes to the services of connections.
    func serve(_ services: inout HTTPServices) {
        let writes = writes
        services.loggedIn = { writes.loggedIn($0, $1) }
        services.findWrite = { writes.find($0, $1, $2, by: $3) }
        services.enqueue = { writes.enqueue($0, $1, $2) }
        services.await = { writes.await($0, $1) }
    }
}

/// Seals credentials in the queue's store under the storage key.
private struct CredentialSealer: SessionSealing {
    let sealer: StorageSealer

    func seal(_ plaintext: [UInt8], tenant: String) throws -> [UInt8] {
        var random = SystemRandomSource()
        return try sealer.seal(plaintext, label: Self.label(tenant), random: &random)
    }

    func open(_ sealed: [UInt8], tenant: String) throws -> [UInt8] {
        try sealer.open(sealed, label: Self.label(tenant))
    }

    private static func label(_ tenant: String) -> String { "queue session \(tenant)" }
}
