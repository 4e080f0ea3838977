// Assembles a gateway. Only this file names all concrete types.

import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import Foundation
import HTTPServer
import IRCCodec
import IRCGateway
import IRCServer
import JSONGateway
import Logging
import MappingFile
import NIOCore
import NIOPosix
import NIOSSL
import NIOSupport
import Outbox
import PawlConfiguration
import Protection
import Reports
import RequestQueue
import RequestQueueClient
import SQLiteKit
import SQLiteStore
import StorePort
import Vault

/// Makes a gateway from a configuration.
enum Assembly {
    /// An assembled gateway.
    struct Assembled: Sendable {
        var gateway: Gateway
        var configuration: PawlConfiguration
        var group: MultiThreadedEventLoopGroup
        /// Makes the store's file complete, after the last commit. Not left to the end of the last reference: one that stays would
        /// leave commits in the log beside it.
        var completeStore: @Sendable () -> Void
        /// Notices for the operator at this start.
        var notices: [String] = []
    }

    /// Assembles a gateway that does not listen yet.
    ///
    /// - Throws: an error if the store, the key or the certificate cannot be used.
    static func assemble(
        _ configuration: PawlConfiguration, as role: Role, logger: Logger,
        reload: @escaping @Sendable () throws -> PawlConfiguration,
        requestStop: @escaping @Sendable () -> Void
    ) throws -> Assembled {
        let store = try openStore(configuration)
        let network = try RoleRecord.check(
            role, configuration.upstream, store, directory: configuration.data, now: SystemClock.now().wall)
        let (policies, source) = try policyTable(configuration, role, store)
        let tables = SharedTables(policies: policies)
        let endpoints = Shared(try Endpoints(configuration))
        let parts = Parts(
            configuration: configuration, network: network.name, store: store,
            sealer: StorageSealer(key: store.key.withBytes { $0 }), tables: tables,
            group: MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount), logger: logger,
            downstream: { endpoints.withLock { $0.downstream } }, upstream: { endpoints.withLock { $0.upstream } },
            failed: { failure, changes in
                // The store's health is reported once; this is about one batch.
                logger.debug("the store did not take a batch: \(failure.message)")
                tables.tally.giveBack(changes)
            })
        let (roleParts, front, server) = try Self.front(role, parts)
        let group = parts.group
        let stateChanges = StateChanges()
        store.health.watch { problem in
            stateChanges.signal()
            if let problem {
                logger.error("the store fails, and messages that have to be stored are refused: \(problem)")
            } else {
                logger.notice("the store works again")
            }
        }
        let gateway = Gateway(
            parts: roleParts, tables: tables, store: store, front: front, server: server,
            health: store.health, stateChanges: stateChanges, probeStore: { store.probe() }, logger: logger,
            configuration: configuration, policySource: source,
            writeBackup: { try Backup.write(store, to: $0) },
            readAgain: {
                let new = try reload()
                let changed = try Endpoints(new)
                return ReadConfiguration(configuration: new) { endpoints.withLock { $0 = changed } }
            }, requestStop: requestStop)
        return Assembled(
            gateway: gateway, configuration: configuration, group: group,
            completeStore: { store.moveLog() },
            notices: [network.notice, takeoverNotice(store)].compactMap { $0 })
    }

    /// The notice of a start that has moved the queue of an earlier version into the store; nil for other starts.
    private static func takeoverNotice(_ store: SQLiteStore) -> String? {
        store.takenOver.map { count in
            "The queue of an earlier version is in the store now: \(count) \(count == 1 ? "request" : "requests"), finished "
                + "ones included. Its file queue.sqlite was removed."
        }
    }

    /// What the fronts of all chat protocols are made of.
    private struct Parts {
        var configuration: PawlConfiguration
        var network: String
        var store: SQLiteStore
        var sealer: StorageSealer
        var tables: SharedTables
        var group: MultiThreadedEventLoopGroup
        var logger: Logger
        var downstream: @Sendable () -> DownstreamOptions
        var upstream: @Sendable () -> UpstreamOptions
        /// Called with the reports of a batch that was not committed.
        var failed: @Sendable (StoreError, [StoreChange]) -> Void

        var earlierNetworks: [String] { configuration.upstream.earlierNetworks.filter { $0 != network } }

        /// Logs errors of connections to the backend, at most one in ten seconds: a backend that is down fails for every client.
        var upstreamFailed: @Sendable (any Error) -> Void {
            let lastReport = Shared(Int64(0))
            return { [logger] error in
                let now = SystemClock.now().monotonic
                let isDue = lastReport.withLock { last in
                    guard now - last > 10_000_000_000 || last == 0 else { return false }
                    last = now
                    return true
                }
                guard isDue else { return }
                if let fault = error as? CertificateFault {
                    logger.error("\(fault)")
                } else {
                    logger.warning("no answer from the backend: \(ErrorWords.text(error))")
                }
            }
        }

        /// Ends the process, which cannot know what its store holds; its service manager starts it again.
        var endProcess: @Sendable (StoreError) -> Void {
            { [logger] failure in
                logger.critical(
                    """
                    It is not known whether the store has taken a batch: \(failure.message) The gateway ends now, answers \
                    nobody, and reads the store when it is started again.
                    """)
                exit(ExitStatus.failed)
            }
        }

        /// Commits what opening the store has changed, and logs what the operator should know.
        ///
        /// - Throws: ``AdminFailure`` if the policy does not fit the store; no thread of the front runs yet.
        func begin(_ changes: [StoreChange], _ warnings: [String]) throws {
            if !changes.isEmpty { _ = try store.commit([changes]) }
            for warning in warnings { logger.warning("\(warning)") }
            try Assembly.refuseUnprotected(tables.policies.snapshot, tables.latches)
        }
    }

    /// Makes the front of the backend's chat protocol in a role.
    private static func front(_ role: Role, _ parts: Parts) throws -> (RoleParts, any ChatFront, any ChatServer) {
        switch (role, parts.configuration.upstream.url.scheme.chat) {
        case (.front, .irc):
            let directory = DirectoryCache()
            let (front, server) = try ircFront(parts, role, .front(directory))
            return (.front(directory), front, server)
        case (.sidecar, .irc):
            let peers = PeerCache()
            let (front, server) = try ircFront(parts, role, .sidecar(peers))
            return (.sidecar(peers, front), front, server)
        case (.front, .json):
            let directory = DirectoryCache()
            let (front, server) = try jsonFront(parts, directory)
            return (.front(directory), front, server)
        case (.sidecar, .json):
            throw AdminFailure("A sidecar speaks IRC. In front of a backend that speaks HTTP start: pawl serve.")
        }
    }

    private static func ircFront(
        _ parts: Parts, _ role: Role, _ keys: IRCRole
    ) throws -> (IRCFront, IRCServer) {
        let (configuration, tables, logger) = (parts.configuration, parts.tables, parts.logger)
        let environment = IRCEnvironment(
            settings: ircSettings(configuration, as: role, network: parts.network), policies: tables.policies,
            latches: tables.latches, tally: tables.tally, requests: tables.outbox, role: keys)
        let journal = try DeliveryJournal(directory: configuration.data)
        if let warning = journal.warning { logger.warning("\(warning)") }
        var changes: [StoreChange] = []
        var participants = try IRCParticipants(
            network: parts.network, carrier: .irc, sealer: parts.sealer, store: parts.store,
            latches: environment.latches, rooms: environment.rooms, openedMessages: environment.opened,
            outbox: environment.requests, requestAge: configuration.limits.requestAge.milliseconds,
            pendingLimit: configuration.limits.pendingRequestsPerAccount, now: SystemClock.now(),
            random: SystemRandomSource(), role: environment.role,
            wasDelivered: { journal.contains($0) }, changes: &changes)
        participants.vault.earlierNetworks = parts.earlierNetworks
        participants.messageLines = configuration.limits.messageFragments
        participants.onUnreadable = { session in
            tables.tally.add(.unreadableSessions)
            logger.error(
                """
                The session with the device \(String(session.peer.value, radix: 16)) cannot be read. Messages to this \
                device are not sealed until keys are exchanged again, which happens by itself.
                """)
        }
        try parts.begin(changes, participants.warnings)
        let failed = parts.failed
        let thread = IRCFront.Thread(
            participants: participants, clock: SystemClock.now,
            onFailure: { failure, jobs in failed(failure, jobs.flatMap(\.records)) }, onUnknown: parts.endProcess)
        var services = ConnectionServices(
            environment: environment, submit: { thread.submit($0) }, register: { thread.register($0, as: $1) },
            unregister: { thread.unregister($0) }, markDelivered: { journal.mark($0) }, clock: SystemClock.now,
            downstream: parts.downstream, upstream: parts.upstream)
        services.upstreamFailed = parts.upstreamFailed
        let server = IRCServer(services: services, group: parts.group) { UInt64.random(in: 1 ... .max) }
        return (IRCFront(thread: thread, environment: environment, store: parts.store, role: role), server)
    }

    private static func jsonFront(_ parts: Parts, _ directory: DirectoryCache) throws -> (JSONFront, HTTPServer) {
        let (configuration, tables) = (parts.configuration, parts.tables)
        let environment = try JSONBackend.environment(
            configuration, tables, directory, parts.store, sealer: parts.sealer)
        let held = try parts.store.records(.hold).compactMap { row in
            if case .account(let account)? = RequestScope(name: row.name) { account } else { nil }
        }
        for account in held { _ = tables.outbox.gate.hold(.account(account)) }
        var changes: [StoreChange] = []
        var participants = try JSONParticipants(
            network: parts.network, sealer: parts.sealer, store: parts.store, latches: tables.latches,
            traces: tables.outbox.traces, writes: environment.writes,
            queue: JSONBackend.queueSettings(configuration),
            historyRetention: configuration.history.retention.milliseconds, held: held, now: SystemClock.now(),
            random: SystemRandomSource(), directory: directory, changes: &changes)
        participants.vault.earlierNetworks = parts.earlierNetworks
        let credentials = JSONBackend.credentials(
            configuration, environment, stored: participants.storedSessions, parts.sealer)
        for account in credentials.accounts { participants.queue.setSession(account, present: true) }
        try parts.begin(changes, participants.warnings)
        let failed = parts.failed
        let thread = JSONFront.Thread(
            participants: participants, clock: SystemClock.now,
            onFailure: { failure, jobs in
                let changes = jobs.flatMap(\.records)
                failed(failure, changes)
                environment.observations.giveBack(changes)
            }, onUnknown: parts.endProcess)
        var services = HTTPServices(
            environment: environment, clock: SystemClock.now, downstream: parts.downstream, upstream: parts.upstream)
        services.submit = { thread.submit($0) }
        services.register = { thread.register($0, as: $1) }
        services.unregister = { thread.unregister($0) }
        services.upstreamFailed = parts.upstreamFailed
        services.defect = { [logger = parts.logger] in logger.error("\($0)") }
        let pools = UpstreamPools(services: services, group: parts.group)
        guard let sender = pools.sender(on: parts.group.next()) else { preconditionFailure("every loop has a pool") }
        let backend = JSONBackend(
            configuration, environment, parts.store, thread, credentials: credentials, sender: sender,
            meters: services.meters)
        backend.serve(&services)
        let server = HTTPServer(services: services, pools: pools) { UInt64.random(in: 1 ... .max) }
        return (JSONFront(thread: thread, backend: backend, gate: tables.outbox.gate), server)
    }

    /// The options for listening and connecting. A reload replaces them.
    private struct Endpoints: Sendable {
        var downstream: DownstreamOptions
        var upstream: UpstreamOptions

        init(_ configuration: PawlConfiguration) throws {
            downstream = try Assembly.downstream(configuration)
            upstream = try Assembly.upstream(configuration)
        }
    }

    // MARK: Store

    /// Opens the store with its key. The first start creates both.
    static func openStore(_ configuration: PawlConfiguration) throws -> SQLiteStore {
        try SQLiteStore.open(
            directory: configuration.data, key: keySource(configuration.storageKey),
            limits: StoreLimits(evidence: configuration.limits.evidenceRows))
    }

    static func keySource(_ key: PawlConfiguration.StorageKey) -> StorageKey.Source {
        switch key {
        case .file(let path): .file(path)
        case .environment(let name): .environment(name)
        }
    }

    /// Returns the policies in force. A policy that an operator has set overrides the configuration.
    private static func policyTable(
        _ configuration: PawlConfiguration, _ role: Role, _ store: SQLiteStore
    ) throws -> (PolicyTable, String) {
        let configured = role.policy(configuration)
        var snapshot = PolicySnapshot(everyone: configured)
        var source = Gateway.fromConfiguration
        for (account, policy) in try store.load().policies {
            if let account {
                snapshot.accounts[account] = policy
            } else {
                snapshot.everyone = policy
                source =
                    "set by an operator" + (policy == configured ? "" : "; the configuration says \(configured.name)")
            }
        }
        snapshot.withRooms = Set(try store.records(.policyWithRooms).map { AccountID(text: $0.name) })
        return (PolicyTable(snapshot), source)
    }

    /// - Throws: ``AdminFailure`` if conversations are protected and the policy would send them in the clear.
    fileprivate static func refuseUnprotected(_ snapshot: PolicySnapshot, _ latches: LatchTable) throws {
        if !snapshot.everyone.takesPart, !latches.isEmpty {
            throw AdminFailure(
                "\(latches.count) conversations are protected, and the policy off would send them in the clear. Start "
                    + "with --policy observe, which keeps them protected, and reset them if that is meant: "
                    + "pawl conversations reset A B.")
        }
    }

    // MARK: Settings

    /// Returns the settings of a configuration that a reload may change.
    ///
    /// - Parameter network: the name that the store holds.
    static func ircSettings(_ configuration: PawlConfiguration, as role: Role, network: String) -> IRCSettings {
        var settings = IRCSettings(
            network: network, heldLines: configuration.limits.heldLines,
            outagePatience: configuration.upstream.outagePatience.milliseconds,
            asksForVersion: configuration.detection.askVersion, marks: ProtectionMarks(configuration.sidecar.marks))
        settings.exemptions = (configuration.services + configuration.bots).map { pattern in
            switch pattern.origin {
            case .server(let mask): Exemption(nick: pattern.nick, proof: .server(mask))
            case .host(let mask): Exemption(nick: pattern.nick, proof: .host(mask))
            }
        }
        settings.texts =
            switch role {
            case .front: NoticeTexts(configuration.refusal)
            case .sidecar: .sidecar
            }
        settings.terminatesStartTLS = configuration.starttls == .terminate
        settings.visibility.hidesStartTLS = configuration.starttls == .hide
        settings.visibility.stsPort = configuration.listen.first(where: \.isEncrypted)?.port
        let flood = configuration.upstream.flood
        settings.flood = Pacer.Limit(
            burst: Double(flood.burst), linesPerSecond: flood.linesPerSecond,
            bytesPerSecond: Double(flood.bytesPerSecond))
        settings.fragments.inactivity = configuration.limits.fragmentTimeout.milliseconds * 1_000_000
        return settings
    }

    /// Returns the texts for people behind an HTTP backend, who can run no sidecar.
    static func httpTexts(_ configuration: PawlConfiguration) -> NoticeTexts {
        var texts = NoticeTexts(configuration.refusal)
        if configuration.refusal.isRequiredStandard { texts.required = NoticeTexts.http.required }
        if configuration.refusal.isRoomStandard { texts.room = NoticeTexts.http.room }
        return texts
    }

    private static func downstream(_ configuration: PawlConfiguration) throws -> DownstreamOptions {
        let listeners = configuration.listen.map {
            ListenerOptions(host: $0.host, port: $0.port, usesTLS: $0.isEncrypted)
        }
        var options = DownstreamOptions(
            listeners: listeners, tls: try serverTLS(configuration),
            connectionLimit: configuration.limits.connections)
        options.acceptsProxyProtocol = configuration.accept.proxyProtocol
        options.webIRCPassword = configuration.accept.webircPassword?.value
        let accept = configuration.accept
        options.trusts = { address in
            guard let text = address.ipAddress, let ip = IPAddress(text) else { return false }
            return accept.trusts(ip)
        }
        return options
    }

    private static func serverTLS(_ configuration: PawlConfiguration) throws -> NIOSSLContext? {
        guard let identity = configuration.tls else { return nil }
        do {
            let chain = try NIOSSLCertificate.fromPEMFile(identity.certificate).map {
                NIOSSLCertificateSource.certificate($0)
            }
            let key = try NIOSSLPrivateKey(file: identity.key, format: .pem)
            var tls = TLSConfiguration.makeServerConfiguration(certificateChain: chain, privateKey: .privateKey(key))
            if configuration.upstream.url.scheme.chat == .json { tls.applicationProtocols = HTTPServer.protocols }
            return try NIOSSLContext(configuration: tls)
        } catch {
            throw AdminFailure(
                "The certificate \(identity.certificate) or its key \(identity.key) cannot be used: \(error). "
                    + "Both have to be PEM files that belong together.")
        }
    }

    /// Returns the TLS settings for connections to the backend.
    static func clientTLS(_ options: PawlConfiguration.Upstream.TLS) -> TLSConfiguration {
        var tls = TLSConfiguration.makeClientConfiguration()
        if let authorities = options.authorities { tls.trustRoots = .file(authorities) }
        if !options.verify { tls.certificateVerification = .none }
        return tls
    }

    private static func upstream(_ configuration: PawlConfiguration) throws -> UpstreamOptions {
        let upstream = configuration.upstream
        var options = UpstreamOptions(
            host: upstream.url.host, port: upstream.url.port,
            connectTimeout: .milliseconds(upstream.connectTimeout.milliseconds))
        options.proxyProtocol = ProxyProtocol.Version(rawValue: upstream.proxyProtocol.rawValue)
        options.hostField = upstream.host
        options.webIRCPassword = upstream.webircPassword?.value
        guard upstream.url.isEncrypted else { return options }
        do {
            options.tls = try NIOSSLContext(configuration: clientTLS(upstream.tls))
        } catch {
            throw AdminFailure("The authorities for the backend's certificate cannot be used: \(error).")
        }
        let name = upstream.tls.serverName ?? upstream.url.host
        options.serverName = IPAddress(name) == nil ? name : nil
        return options
    }

    /// Opens the files that a configuration names, as `pawl config check` does.
    static func checkFiles(_ configuration: PawlConfiguration) throws {
        _ = try serverTLS(configuration)
        _ = try upstream(configuration)
        if let mapping = configuration.mapping { _ = try MappingFile.read(path: mapping) }
    }

    // MARK: Errors

    /// Describes an error for the operator: what happened and what to do, without type names.
    static func message(of error: any Error) -> String {
        switch error {
        case let error as StoreError: error.message
        case let error as QueueStoreError: error.message
        case let error as AdminFailure: error.message
        case let error as ConfigurationError: "\(error)"
        case let error as ListenFailure:
            "cannot listen on \(error.host):\(error.port): \(ErrorWords.text(error.error)). If another program has the port, stop it, "
                + "or choose another one with --listen."
        default: ErrorWords.text(error)
        }
    }
}

extension Duration {
    /// Whole milliseconds.
    var milliseconds: Int64 { components.seconds * 1000 + components.attoseconds / 1_000_000_000_000_000 }
}

// MARK: - Conversions of configuration values

extension NoticeTexts {
    fileprivate init(_ refusal: PawlConfiguration.Refusal) {
        self.init()
        outsider = refusal.outsider.template
        required = refusal.required.template
        room = refusal.room.template
    }
}

extension ProtectionMarks {
    fileprivate init(_ marks: PawlConfiguration.Sidecar.Marks) {
        self =
            switch marks {
            case .text: .text
            case .tags: .tags
            case .off: .off
            }
    }
}
