// What a gateway in front of a JSON backend has besides: the mapping, and the queue of writes.

import AsyncHTTPClient
import DeviceDirectory
import Devices
import DoubleRatchet
import Foundation
import HTTPServer
import IRCGateway
import IRCServer
import JSONGateway
import MappingFile
import NIOCore
import NIOPosix
import NIOSSL
import Outbox
import PawlConfiguration
import Protection
import RequestQueue
import RequestQueueClient
import SQLiteStore
import Vault

/// The parts of a gateway that are there for HTTP only.
struct JSONBackend: Sendable {
    let environment: JSONEnvironment
    let writes: WriteQueue
    let meters = HTTPMeters()

    /// Nothing where the backend speaks something else.
    ///
    /// - Throws: what is wrong with the mapping, or with the queue's file.
    init?(
        _ configuration: PawlConfiguration, _ role: Assembly.Role, _ shared: IRCEnvironment, _ store: SQLiteStore,
        sealer: StorageSealer
    ) throws {
        guard configuration.upstream.url.scheme.chat == .json else { return nil }
        guard role == .front else {
            throw AdminFailure("A sidecar speaks IRC. In front of a backend that speaks HTTP start: pawl serve.")
        }
        environment = JSONEnvironment(
            mapping: try Self.mapping(configuration), texts: shared.settings.texts, policies: shared.policies,
            latches: shared.latches, tally: shared.tally, directory: shared.directory ?? DirectoryTable(),
            writeKeys: WriteKeys(secret: sealer.secret(for: "names of writes")),
            answerLimit: configuration.limits.answerBytes)
        environment.accounts.adopt(try store.evidence(limit: 1_000_000))
        var settings = QueueMachine.Settings()
        settings.limits.requestsPerTenant = configuration.limits.pendingRequestsPerAccount
        settings.limits.age = configuration.queueRequestAge.milliseconds
        let credentials: SessionCredentials =
            switch configuration.queueCredentials {
            case .memory: .memory
            case .sealed: .sealed(CredentialSealer(sealer: sealer))
            }
        let held = shared.requests.gate.holds.compactMap { scope in
            if case .account(let account) = scope { account.text } else { nil }
        }
        writes = try WriteQueue(
            store: try QueueFile(directory: configuration.data).open(),
            host: Self.host(configuration.upstream.url), settings: settings,
            credentials: credentials, http: try Self.client(configuration.upstream), held: held,
            environment: environment, traces: shared.requests.traces)
    }

    private static func mapping(_ configuration: PawlConfiguration) throws -> Mapping {
        try MappingFile.read(path: configuration.mapping ?? "")
    }

    private static func host(_ url: PawlConfiguration.Endpoint) -> String {
        "\(url.isEncrypted ? "https" : "http")://\(url.address)"
    }

    /// For the queue's requests; everything else goes over the connections of ``HTTPServer``.
    private static func client(_ upstream: PawlConfiguration.Upstream) throws -> HTTPClient {
        var configuration = HTTPNetworkClient.configuration
        configuration.timeout.connect = .milliseconds(upstream.connectTimeout.milliseconds)
        if upstream.url.isEncrypted {
            configuration.tlsConfiguration = Assembly.clientTLS(upstream.tls)
            if let name = upstream.tls.serverName { configuration.dnsOverride = [name: upstream.url.host] }
        }
        return HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
    }

    /// A reload: reads the mapping anew.
    ///
    /// - Returns: puts it in force. Until then the old one stays.
    /// - Throws: what is wrong with it.
    func reload(_ configuration: PawlConfiguration) throws -> @Sendable () -> Void {
        let mapping = try Self.mapping(configuration)
        let texts = Assembly.ircSettings(configuration, as: .front, network: "").texts
        let limit = configuration.limits.answerBytes
        return { [environment] in environment.replace(mapping, texts: texts, answerLimit: limit) }
    }

    /// What connections need.
    func services(
        _ shared: ConnectionServices, submit: @escaping @Sendable ([VaultJob]) -> Void
    ) -> HTTPServices {
        var services = HTTPServices(
            environment: environment, clock: shared.clock, downstream: shared.downstream, upstream: shared.upstream)
        services.meters = meters
        let writes = writes
        services.submit = submit
        services.register = shared.register
        services.unregister = shared.unregister
        services.loggedIn = { writes.loggedIn($0, $1) }
        services.recall = { writes.recall($0, $1, by: $2, $3) }
        services.enqueue = { writes.enqueue($0, $1) }
        services.await = { writes.await($0, $1) }
        services.upstreamFailed = shared.upstreamFailed
        return services
    }
}

/// Credentials in the queue's store, under the storage key.
private struct CredentialSealer: SessionSealing {
    let sealer: StorageSealer

    func seal(_ plaintext: [UInt8], tenant: String) throws -> [UInt8] {
        var random = SystemRandomSource()
        return try sealer.seal(plaintext, place: Self.place(tenant), random: &random)
    }

    func open(_ sealed: [UInt8], tenant: String) throws -> [UInt8] {
        try sealer.open(sealed, place: Self.place(tenant))
    }

    private static func place(_ tenant: String) -> String { "queue session \(tenant)" }
}
