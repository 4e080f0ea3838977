import Foundation
import PawlMessenger
import PeerKit
import TestThreads

extension GatewayLab {
    /// Starts both; see the other initialiser.
    static func start(
        policy: String = "opportunistic", settings: [String: String] = [:], metrics: String = ""
    ) async throws -> GatewayLab {
        try await blocking { try GatewayLab(policy: policy, settings: settings, metrics: metrics) }
    }

    /// A new login of a person, whose account is made if there is none.
    func login(_ name: Username) async throws -> GatewayCredential {
        .bearer(try await blocking { try self.token(of: name.raw) })
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
}

extension App {
    /// A messenger of one device over a gateway.
    static func register(
        _ name: Username, at lab: GatewayLab, _ database: MessengerDatabase = .inMemory(), adopts: Bool = false
    ) async throws -> App {
        let handler = RecordingHandler(adopts: adopts)
        var attempts = 0
        while true {
            do {
                let messenger = try await CypherMessenger.registerMessenger(
                    username: name, authenticationMethod: .identity, appPassword: "open sesame",
                    usingTransport: { try await lab.client(for: $0) }, database: database, eventHandler: handler)
                return App(messenger: messenger, handler: handler, database: database)
            } catch CypherMessengerError.registrationIncomplete(_) where attempts < 20 {
                // On a busy machine the gateway may answer too late: an app calls again then.
                attempts += 1
            }
        }
    }
}
