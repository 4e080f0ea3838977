// Assembles a gateway: its store, its endpoints, and the front of its chat protocol.

import DeviceDirectory
import Devices
import Foundation
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import NIOSupport
import PawlConfiguration
import PostgresStore
import Protection
import Reports
import RequestQueue
import SQLiteKit
import SQLiteStore
import StoreBase
import StorePort

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
        /// Why the store has ended this gateway; nil if it has not.
        var failure: @Sendable () -> StoreError?
        /// Notices for the operator at this start.
        var notices: [String] = []
    }

    /// Assembles a gateway that does not listen yet.
    ///
    /// - Parameter standby: the part of this process among the gateways of a database, whose shards it owns; nil for a file.
    /// - Throws: an error if the store, the key or the certificate cannot be used.
    static func assemble(
        _ configuration: PawlConfiguration, as role: Role, logger: Logger, standby: Standby? = nil,
        reload: @escaping @Sendable () throws -> PawlConfiguration,
        requestStop: @escaping @Sendable () -> Void
    ) throws -> Assembled {
        // First: opening the store may change it for good, and a wrong configuration is to change nothing.
        try checkFiles(configuration)
        let opened = try openStore(configuration, role, standby)
        let store = opened.store
        let network = try RoleRecord.check(
            role, configuration.upstream, store, directory: configuration.data, now: SystemClock.now().wall)
        let (policies, source) = try policyTable(configuration, role, store)
        let tables = SharedTables(policies: policies)
        let endpoints = Shared(try Endpoints(configuration, standby?.gate))
        let ended = Shared<StoreError?>(nil)
        let parts = FrontParts(
            configuration: configuration, network: network.name, store: store,
            sealer: StorageSealer(key: opened.key.withBytes { $0 }), tables: tables,
            group: standby?.group ?? MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount), logger: logger,
            downstream: { endpoints.withLock { $0.downstream } }, upstream: { endpoints.withLock { $0.upstream } },
            failed: { failure, changes in
                // The store's health is reported once; this is about one batch.
                logger.debug("the store did not take a batch: \(failure.message)")
                tables.tally.giveBack(changes)
                if case .epochLost = failure { Standby.endTaken(logger) }
                if case .rolledBack(let text) = failure {
                    logger.critical("\(text) This gateway ends.")
                    ended.withLock { $0 = failure }
                    requestStop()
                }
            }, isTakenOver: opened.isTakenOver)
        let (roleParts, front, server) = try Self.front(role, parts)
        let group = parts.group
        let stateChanges = standby?.stateChanges ?? StateChanges()
        opened.health.watch { problem in
            stateChanges.signal()
            if let problem {
                logger.error("the store fails, and messages that have to be stored are refused: \(problem)")
            } else {
                logger.notice("the store works again")
            }
        }
        let gateway = Gateway(
            parts: roleParts, tables: tables, store: store, front: front, server: server,
            health: opened.health, stateChanges: stateChanges, probeStore: opened.probe, logger: logger,
            configuration: configuration, policySource: source, standby: standby,
            writeBackup: opened.writeBackup,
            readAgain: {
                let new = try reload()
                let changed = try Endpoints(new, standby?.gate)
                return ReadConfiguration(configuration: new) { endpoints.withLock { $0 = changed } }
            }, requestStop: requestStop)
        return Assembled(
            gateway: gateway, configuration: configuration, group: group,
            completeStore: opened.complete, failure: { standby?.failure ?? ended.withLock { $0 } },
            notices: [network.notice].compactMap { $0 } + opened.notices)
    }

    /// The notice of a start that has moved the queue of an earlier version into the store; nil for other starts.
    fileprivate static func takeoverNotice(_ store: SQLiteStore) -> String? {
        store.takenOver.map { count in
            "The queue of an earlier version is in the store now: \(count) \(count == 1 ? "request" : "requests"), finished "
                + "ones included. Its file queue.sqlite was removed."
        }
    }

    /// The notice of the start that has upgraded the store of an earlier version; nil for other starts.
    fileprivate static func upgradeNotice(_ store: SQLiteStore) -> String? {
        guard store.isUpgraded else { return nil }
        var text = "The store of an earlier version was upgraded"
        if store.hasAddedCodes {
            text +=
                ": its policies, latches, devices and records have authentication codes now, made from what was in it"
        }
        return text + ". An earlier version of pawl refuses it from now on."
    }

    // MARK: Chat protocols

    /// The chat protocols of the program. A new one is added here.
    static let fronts: [any ChatFront.Type] = [IRCFront.self, JSONFront.self]

    /// The same as configurations name them.
    static let protocols = fronts.map { $0.chat }

    private static func front(of configuration: PawlConfiguration) -> any ChatFront.Type {
        let chat = configuration.upstream.url.scheme.chat
        guard let front = fronts.first(where: { $0.chat == chat }) else {
            preconditionFailure("a configuration was read for other protocols")
        }
        return front
    }

    /// Makes the front of the backend's chat protocol in a role.
    private static func front(
        _ role: Role, _ parts: FrontParts
    ) throws -> (parts: RoleParts, front: any ChatFront, server: any ChatServer) {
        let type = front(of: parts.configuration)
        switch role {
        case .front:
            let directory = DirectoryCache()
            let (front, server) = try type.gateway(parts, directory)
            return (.front(directory), front, server)
        case .sidecar: return try type.sidecar(parts)
        }
    }

    /// The options for listening and connecting. A reload replaces them.
    private struct Endpoints: Sendable {
        var downstream: DownstreamOptions
        var upstream: UpstreamOptions

        init(_ configuration: PawlConfiguration, _ gate: ActGate?) throws {
            downstream = try Assembly.downstream(configuration)
            upstream = try Assembly.upstream(configuration)
            (downstream.gate, upstream.gate) = (gate, gate)
        }
    }

    // MARK: Store

    /// Opens the store with its key. The first start creates both.
    private static func openStore(
        _ configuration: PawlConfiguration, _ role: Role, _ standby: Standby?
    ) throws -> OpenedStore {
        let limits = StoreLimits(evidence: configuration.limits.evidenceRows)
        if let standby { return OpenedStore(try PostgresStore(standby.membership, limits)) }
        precondition(configuration.store.url == nil, "a gateway joins its database first")
        let key = keySource(configuration.storageKey)
        return OpenedStore(
            try SQLiteStore.open(directory: configuration.data, key: key, limits: limits) { purpose in
                try RoleRecord.refuse(purpose, role, configuration.upstream, directory: configuration.data)
            })
    }

    /// Joins the gateways of the database that a configuration names.
    ///
    /// - Returns: nil if the store is a file.
    /// - Throws: an error if the database or the key cannot be used, or if another gateway runs and this one is not to stand by.
    static func join(
        _ configuration: PawlConfiguration, as role: Role, logger: Logger, requestStop: @escaping @Sendable () -> Void
    ) throws -> Standby? {
        guard let address = try databaseAddress(configuration) else { return nil }
        // First: the first start makes tables and a key, and a wrong configuration is to change nothing.
        try checkFiles(configuration)
        guard case .front = role else {
            throw AdminFailure(
                .configurationRefused,
                "A sidecar keeps one person's keys in a file of its own, and store.url names a database. Remove store.url."
            )
        }
        let membership = try reaching(logger) { () throws(StoreError) in
            try Membership.join(
                address, directory: configuration.data, key: keySource(configuration.storageKey),
                name: configuration.store.gateway, program: ProgramVersion.text)
        }
        if !configuration.store.standby { try membership.refuseOthers() }
        return Standby(membership, configuration, logger: logger, requestStop: requestStop)
    }

    /// Ours: for how long a start tries to reach its database. A service manager allows five starts a minute, and those of an
    /// outage must be fewer: a gateway that is given up does not come back with the database.
    private static let reachTime: Duration = .seconds(20)

    /// Tries again for a while if the database cannot be reached or is not in order.
    private static func reaching<Value>(
        _ logger: Logger, _ body: () throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        let end = ContinuousClock.now + reachTime
        var isTold = false
        while true {
            do throws(StoreError) { return try body() } catch {
                guard case .unavailable = error, ContinuousClock.now < end else { throw error }
                if !isTold { logger.warning("\(error.message) It is tried again for \(reachTime).") }
                isTold = true
            }
            Thread.sleep(forTimeInterval: 0.5)
        }
    }

    /// The database of the store; nil if the store is a file.
    ///
    /// - Throws: ``AdminFailure``, which does not show the address: it may hold a password.
    private static func databaseAddress(_ configuration: PawlConfiguration) throws(AdminFailure) -> StoreAddress? {
        guard let url = configuration.store.url else { return nil }
        do throws(StoreError) {
            return try StoreAddress(url, isPooled: configuration.store.pooled)
        } catch {
            throw AdminFailure(error)
        }
    }

    static func keySource(_ key: PawlConfiguration.StorageKey) -> StorageKey.Source {
        switch key {
        case .file(let path): .file(path)
        case .environment(let name): .environment(name)
        }
    }

    /// Returns the policies in force. A policy that an operator has set overrides the configuration.
    private static func policyTable(
        _ configuration: PawlConfiguration, _ role: Role, _ store: any Store
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

    // MARK: Settings

    private static func downstream(_ configuration: PawlConfiguration) throws -> DownstreamOptions {
        let listeners = configuration.listen.map {
            ListenerOptions(
                host: $0.host, port: $0.port, usesTLS: $0.isEncrypted, usesWebSocket: $0.scheme.isWebSocket)
        }
        var options = DownstreamOptions(
            listeners: listeners, tls: try serverTLS(configuration),
            connectionLimit: configuration.limits.connections)
        options.asksForCertificates = configuration.clientCertificates == .ask
        options.acceptsProxyProtocol = configuration.accept.proxyProtocol
        options.webIRCPassword = configuration.accept.webircPassword?.value
        options.webOrigins = WebOrigins(configuration.webSocketOrigins)
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
            tls.applicationProtocols = front(of: configuration).tlsProtocols
            if configuration.clientCertificates == .ask {
                // No authority counts: the handler accepts every certificate for its fingerprint.
                tls.certificateVerification = .optionalVerification
                tls.trustRoots = .certificates([])
            }
            return try NIOSSLContext(configuration: tls)
        } catch {
            throw AdminFailure(
                .certificateUnusable,
                "The certificate \(identity.certificate) or its key \(identity.key) cannot be used: \(error). "
                    + "Both have to be PEM files that belong together.")
        }
    }

    /// Returns the TLS settings for connections to the backend.
    ///
    /// - Throws: ``AdminFailure`` if the certificate for the backend cannot be used.
    static func clientTLS(_ options: PawlConfiguration.Upstream.TLS) throws -> TLSConfiguration {
        var tls = TLSConfiguration.makeClientConfiguration()
        if let identity = options.identity {
            do {
                tls.certificateChain = try NIOSSLCertificate.fromPEMFile(identity.certificate).map { .certificate($0) }
                tls.privateKey = .privateKey(try NIOSSLPrivateKey(file: identity.key, format: .pem))
            } catch {
                throw clientCertificateFailure(identity, error)
            }
        }
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
        let tls = try clientTLS(upstream.tls)
        do {
            options.tls = try NIOSSLContext(configuration: tls)
        } catch {
            if let identity = upstream.tls.identity, upstream.tls.authorities == nil {
                throw clientCertificateFailure(identity, error)
            }
            throw AdminFailure(
                .authoritiesUnusable, "The authorities for the backend's certificate cannot be used: \(error).")
        }
        let name = upstream.tls.serverName ?? upstream.url.host
        options.serverName = IPAddress(name) == nil ? name : nil
        return options
    }

    private static func clientCertificateFailure(
        _ identity: PawlConfiguration.Identity, _ error: any Error
    ) -> AdminFailure {
        AdminFailure(
            .certificateUnusable,
            "The certificate for the backend, \(identity.certificate), or its key \(identity.key) cannot be used: \(error). "
                + "Both have to be PEM files that belong together.")
    }

    /// Opens the files that a configuration names, as `pawl config check` does.
    static func checkFiles(_ configuration: PawlConfiguration) throws {
        _ = try serverTLS(configuration)
        _ = try upstream(configuration)
        _ = try databaseAddress(configuration)
        try front(of: configuration).checkFiles(configuration)
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
            if let port = error.port {
                "cannot listen on \(error.host):\(port): \(ErrorWords.text(error.error)). If another program has the port, stop it, "
                    + "or choose another one with --listen."
            } else {
                "cannot listen on the socket \(error.host): \(ErrorWords.text(error.error)). Its directory has to exist, and "
                    + "the gateway's user needs to write there."
            }
        default: ErrorWords.text(error)
        }
    }
}

extension Duration {
    /// Whole milliseconds.
    var milliseconds: Int64 { components.seconds * 1000 + components.attoseconds / 1_000_000_000_000_000 }
}

/// The store that a configuration names, open: a file, or a database.
private struct OpenedStore {
    let store: any Store
    let key: StorageKey
    let health: StoreHealth
    /// Finds out whether a store that has failed works again.
    let probe: @Sendable () -> Void
    /// Whether another gateway has the store.
    let isTakenOver: @Sendable () -> Bool
    let writeBackup: @Sendable (String) throws -> Void
    /// What is due after the last commit.
    let complete: @Sendable () -> Void
    let notices: [String]

    init(_ file: SQLiteStore) {
        (store, key, health) = (file, file.key, file.health)
        probe = { file.probe() }
        isTakenOver = { false }
        writeBackup = { try Backup.write(file, to: $0) }
        complete = { file.moveLog() }
        notices = [Assembly.takeoverNotice(file), Assembly.upgradeNotice(file)].compactMap { $0 }
    }

    init(_ database: PostgresStore) {
        (store, key, health) = (database, database.key, database.health)
        probe = { database.probe() }
        isTakenOver = { database.isTakenOver() }
        writeBackup = { _ in
            throw AdminFailure(
                .storeInDatabase,
                "The store is in a database. Back that up with its own tools (pg_dump or a base backup), and the storage "
                    + "key apart from it.")
        }
        complete = { database.leave() }
        notices = []
    }
}
