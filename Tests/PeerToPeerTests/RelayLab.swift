import PawlMessenger
import PawlPeerToPeerTCP
import PeerKit
import Synchronization
import TestKit
import TestThreads

/// A gateway that relays, and the devices that it knows. Their messages go over another server.
final class RelayLab: Sendable {
    private let lab: GatewayLab

    init() async throws {
        lab = try await blocking {
            // A suite that sends much does not test how much may be sent.
            try GatewayLab(
                policy: "opportunistic", settings: ["PAWL_LIMITS_RELAY_BYTES_PER_SECOND": "100000000"], metrics: "")
        }
    }

    deinit { lab.stop() }

    /// A person who uses relays alone, and whose device the gateway knows.
    func register(
        _ name: Username, at server: SpoofServer, _ settings: P2PSettings = patient
    ) async throws -> (person: Person, factory: any P2PTransportClientFactory) {
        let lab = lab
        let login = GatewayCredential.bearer(try await blocking { try lab.token(of: name.raw) })
        let factory = GatewayRelayP2PTransportClientFactory(url: try lab.url) { _ in login }
        var settings = settings
        settings.mode = .relayOnly
        let kept = Kept()
        let person = try await Person.register(name, at: server, [factory], settings) { kept.keep($0) }
        guard let own = kept.request else { throw CypherTransportError.notFound }
        // A registration publishes its keys after it has returned.
        var config: UserConfig?
        try await eventuallyAsync("the keys of \(name) are published") {
            config = try? await person.messenger.transport.readKeyBundle(forUsername: name)
            return config != nil
        }
        guard let config else { throw CypherTransportError.notFound }
        let client = GatewayTransportClient(url: try lab.url, for: own) { _ in login }
        // A gateway on a busy machine may answer too late.
        try await eventuallyAsync("the gateway knows \(name)") {
            do {
                try await client.publishKeyBundle(config)
                return true
            } catch CypherTransportError.offline {
                return false
            }
        }
        return (person, factory)
    }

    private final class Kept: Sendable {
        private let state = Mutex<TransportCreationRequest?>(nil)
        var request: TransportCreationRequest? { state.withLock { $0 } }
        func keep(_ request: TransportCreationRequest) { state.withLock { $0 = request } }
    }

    /// Factories of two devices that the gateway knows.
    func pair() async throws -> FactoryPair {
        let server = SpoofServer()
        let (alice, bob) = (try await register("alice", at: server), try await register("bob", at: server))
        for one in [alice, bob] { one.person.messenger.close() }
        return FactoryPair(
            alice.factory, bob.factory, devices: [bob.person.messenger.deviceId, alice.person.messenger.deviceId])
    }
}
