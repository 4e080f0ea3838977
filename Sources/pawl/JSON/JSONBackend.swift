// The additional parts of a gateway in front of a JSON backend: the mapping, and the queue of writes.

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

/// The parts of a gateway that only HTTP needs.
struct JSONBackend: Sendable {
    let environment: JSONEnvironment
    let writes: WriteQueue
    let meters = HTTPMeters()

    /// Creates the parts.
    ///
    /// - Throws: an error of the mapping or of the queue's file.
    init(
        _ configuration: PawlConfiguration, _ role: Assembly.Role, _ shared: IRCEnvironment, _ store: SQLiteStore,
        sealer: StorageSealer
    ) throws {
        guard role == .front else {
            throw AdminFailure("A sidecar speaks IRC. In front of a backend that speaks HTTP start: pawl serve.")
        }
        environment = JSONEnvironment(
            mapping: try Self.mapping(configuration), texts: shared.settings.texts, policies: shared.policies,
            latches: shared.latches, tally: shared.tally, directory: shared.directory ?? DirectoryCache(),
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

    /// Returns the client for the queue's requests. All others use the connections of ``HTTPServer``.
    private static func client(_ upstream: PawlConfiguration.Upstream) throws -> HTTPClient {
        var configuration = HTTPNetworkClient.configuration
        configuration.timeout.connect = .milliseconds(upstream.connectTimeout.milliseconds)
        if upstream.url.isEncrypted {
            configuration.tlsConfiguration = Assembly.clientTLS(upstream.tls)
            if let name = upstream.tls.serverName { configuration.dnsOverride = [name: upstream.url.host] }
        }
        return HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
    }

    /// Reads the mapping again, for a reload.
    ///
    /// - Returns: a closure that puts the new mapping in force.
    /// - Throws: an error of the mapping.
    func reload(_ configuration: PawlConfiguration) throws -> @Sendable () -> Void {
        let mapping = try Self.mapping(configuration)
        let texts = Assembly.ircSettings(configuration, as: .front, network: "").texts
        let limit = configuration.limits.answerBytes
        return { [environment] in environment.replace(mapping, texts: texts, answerLimit: limit) }
    }

    /// Adds the queue of writes to the services of connections.
    func serve(_ services: inout HTTPServices) {
        services.meters = meters
        let writes = writes
        services.loggedIn = { writes.loggedIn($0, $1) }
        services.findWrite = { writes.findWrite($0, $1, by: $2, $3) }
        services.enqueue = { writes.enqueue($0, $1) }
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
