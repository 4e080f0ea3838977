// What a connection is, by the role of its gateway. Each role has a state of its own that the other cannot reach.

import DeviceDirectory
import Devices
import Envelope
import Protection
import Reports

/// The part of a connection's state that depends on the role of the gateway.
enum ConnectionRole {
    /// A user's connection with a gateway in front of the backend. The user's client may have a device of its own.
    case front(ClientDevice)
    /// The connection of a person's client with the person's sidecar.
    case sidecar(SidecarConnection)

    init(_ role: IRCRole, _ latches: LatchTable) {
        switch role {
        case .front(let directory): self = .front(ClientDevice(directory))
        case .sidecar(let peers): self = .sidecar(SidecarConnection(peers, latches))
        }
    }

    /// The account of a connection before its login.
    ///
    /// A sidecar's device is the person's, whatever account they log in to.
    func firstAccount(of id: ConnectionID) -> AccountID {
        switch self {
        case .front: .connection(id.value)
        case .sidecar: .own
        }
    }

    var isSidecar: Bool {
        switch self {
        case .front: false
        case .sidecar: true
        }
    }

    /// The device that the client has proven to a gateway in front; nil if there is none.
    var clientDevice: DeviceID? {
        switch self {
        case .front(let device): device.id
        case .sidecar: nil
        }
    }

    /// What encrypts the messages of this connection.
    var capability: Capability {
        switch self {
        case .front(let device): device.id == nil ? .hosted : .client
        case .sidecar: .sidecar
        }
    }

    /// The prefix of the gateway's labels, which distinguishes them from the client's.
    ///
    /// A sidecar has another one, because there may be a gateway in front with labels of its own.
    var labelPrefix: String {
        switch self {
        case .front: "pawl"
        case .sidecar: "pawls"
        }
    }

    /// The counter of messages that this gateway seals.
    var sentTally: TallyKind {
        switch self {
        case .front: .sentGateway
        case .sidecar: .sentDevice
        }
    }

    /// Whether a gateway in front of the backend knows the sidecar's device. Keys are then requested from it.
    var hasFront: Bool {
        switch self {
        case .front: false
        case .sidecar(let sidecar): sidecar.front.isReady
        }
    }

    /// Whether a folded nick belongs to a peer with an established session. Its plaintext may come from someone else.
    func isKnownPeer(_ nick: String) -> Bool {
        switch self {
        case .front: false
        case .sidecar(let sidecar): sidecar.people.isKnownPeer(nick)
        }
    }
}

/// The state of a sidecar's connection that a connection of a front gateway does not have.
final class SidecarConnection {
    let peers: PeerCache
    var people: SidecarPeople
    var exchange = KeyExchange()
    var protection: RoomProtection
    var front = FrontLink()
    var ownLines = OwnLines()

    init(_ peers: PeerCache, _ latches: LatchTable) {
        self.peers = peers
        people = SidecarPeople(peers, latches)
        protection = RoomProtection(peers, latches)
    }

    /// Whether there is no gateway in front, and none is expected back. A front gateway has rules of its own for rooms.
    var isOnBareServer: Bool { front.isAbsent }
}
