import Devices
import DoubleRatchet
import Envelope
import Messenger
import PawlMessenger
import Synchronization

/// A device with keys of its own, for tests of a transport without a messenger.
final class KeyedDevice: Sendable {
    let user: Username
    let id: DeviceID
    private let identity: IdentityKeyPair
    private let bundle: PreKeyBundle

    init(_ user: Username, _ id: UInt64) {
        var random = SystemRandomSource()
        var changes: [PreKeyChange] = []
        var store = PreKeyStore()
        let pair = IdentityKeyPair(random: &random)
        bundle = store.bundle(identity: pair, at: 0, random: &random, &changes)
        identity = pair
        (self.user, self.id) = (user, DeviceID(id))
    }

    var deviceId: DeviceId { DeviceId(id.name)! }
    var recipient: MultiRecipientCypherMessage.Recipient { .init(user: user, deviceId: deviceId) }
    private var listed: ListedDevice { ListedDevice(id: id, identity: identity.publicKey) }

    func request() -> TransportCreationRequest {
        TransportCreationRequest(
            username: user, deviceId: deviceId, authenticationMethod: .identity,
            identity: identity.publicKey.bytes, sign: { self.identity.sign($0.span, context: $1) })
    }

    /// A list of this device.
    func list() -> DeviceList { DeviceList(of: listed, identity: identity) }
    func adding(_ other: KeyedDevice, to list: DeviceList) throws -> DeviceList {
        guard let list = list.adding(other.listed, by: id, identity) else { throw CypherTransportError.conflict }
        return list
    }
    func removing(_ other: KeyedDevice, from list: DeviceList) throws -> DeviceList {
        guard let list = list.removing(other.id, by: id, identity) else { throw CypherTransportError.conflict }
        return list
    }

    /// The published keys of an account.
    static func config(_ list: DeviceList, of devices: [KeyedDevice]) -> UserConfig {
        let keys = devices.map {
            DeviceKeys($0.bundle, of: $0.id, root: list.root, account: $0.user.raw, signedBy: $0.identity)
        }
        return UserConfig(bytes: PublishedKeys(deviceList: list, devices: keys).bytes)
    }

    /// The request of this device to be added.
    func registration(to list: DeviceList) -> UserDeviceConfig {
        let keys = DeviceKeys(bundle, of: id, root: list.root, account: user.raw, signedBy: identity)
        return UserDeviceConfig(bytes: DeviceRequest(root: list.root, keys: keys).bytes)
    }
}

/// What a transport has told its messenger.
final class RecordingDelegate: CypherTransportClientDelegate {
    struct NotStored: Error {}

    private struct State {
        var events: [CypherServerEvent] = []
        var failures = 0
        var states: [AuthenticationState] = []
    }

    private let state = Mutex(State())

    func receiveServerEvent(_ event: CypherServerEvent) async throws {
        try state.withLock { state in
            guard state.failures == 0 else {
                state.failures -= 1
                throw NotStored()
            }
            state.events.append(event)
        }
    }

    func authenticationChanged(to new: AuthenticationState) { state.withLock { $0.states.append(new) } }

    /// Does not store the next events.
    func fail(_ count: Int) { state.withLock { $0.failures = count } }

    var states: [AuthenticationState] { state.withLock { $0.states } }

    /// What has come, in words; without news about keys.
    var events: [String] {
        state.withLock { $0.events }.compactMap { event in
            switch event {
            case .messageSent(let message, let id, let user, let device):
                "message \(id) \(message.bytes) from \(user) \(device)"
            case .multiRecipientMessageSent(let message, let id, let user, let device):
                "shared \(id) \(message.message.bytes) from \(user) \(device)"
            case .messageDisplayed(let user, let device, let id): "read \(id) by \(user) \(device)"
            case .messageReceived(let user, let device, let id): "received \(id) by \(user) \(device)"
            case .messagesLost(let user, let device, let count): "lost \(count) from \(user) \(device)"
            case .requestDeviceRegistery(let config): "request of \(config.deviceId?.raw ?? "-")"
            case .plaintextReceived(let text, _, let user): "text \(text) from \(user)"
            case .keyBundlePublished, .oneTimePreKeysLow: nil
            }
        }
    }
}
