import Foundation
import PawlMessenger
import PeerKit
import TestThreads

/// A real gateway in front of the backend of an app that knows nothing of encryption.
final class GatewayLab: Sendable {
    let backend: ChatBackendProcess
    let gateway: PawlProcess

    /// - Parameters:
    ///   - settings: further keys of the configuration, as variables of the environment.
    ///   - metrics: where the metrics are; empty for nowhere.
    init(policy: String = "opportunistic", settings: [String: String] = [:], metrics: String = "") async throws {
        (backend, gateway) = try await blocking {
            let backend = try ChatBackendProcess()
            let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
                .deletingLastPathComponent().deletingLastPathComponent()
            var options = PawlProcess.Options(policy: policy, arguments: ["--metrics", metrics])
            (options.listenScheme, options.upstreamScheme) = ("http", "http")
            let mapping = root.appending(path: "config/mappings/generic.yaml").path
            options.environment = settings.merging(["PAWL_MAPPING": mapping]) { $1 }
            return (backend, try PawlProcess(upstream: backend.port, options))
        }
    }

    var url: URL {
        get throws {
            guard let url = URL(string: "http://127.0.0.1:\(gateway.port)") else { throw CypherTransportError.notFound }
            return url
        }
    }

    /// A new login of a person, whose account is made if there is none.
    func login(_ name: Username) async throws -> GatewayCredential {
        let port = gateway.port
        return .bearer(try await blocking { try ChatPerson(name.raw, port: port).token })
    }

    /// The transport of a device, with a login of its own.
    ///
    /// - Parameter address: where the gateway is for it; nil for the gateway itself.
    func client(
        for request: TransportCreationRequest, at address: URL? = nil, sockets: (any GatewaySocketClient)? = nil
    ) async throws -> GatewayTransportClient {
        let login = try await login(request.username)
        return GatewayTransportClient(url: try address ?? url, for: request, sockets: sockets) { _ in login }
    }

    func stop() {
        gateway.stop()
        backend.stop()
    }
}

extension App {
    /// A messenger of one device over a gateway.
    static func register(
        _ name: Username, at lab: GatewayLab, _ database: MessengerDatabase = .inMemory(), adopts: Bool = false
    ) async throws -> App {
        let handler = RecordingHandler(adopts: adopts)
        let messenger = try await CypherMessenger.registerMessenger(
            username: name, authenticationMethod: .identity, appPassword: "open sesame",
            usingTransport: { try await lab.client(for: $0) }, database: database, eventHandler: handler)
        return App(messenger: messenger, handler: handler, database: database)
    }
}
