// The two roles of the program, and what a running gateway has in only one of them.

import DeviceDirectory
import Devices
import PawlConfiguration
import Protection

/// What the program was started as.
enum Role: Sendable {
    /// In front of a backend, for all its users: `pawl serve`.
    case front
    /// Beside one person's client: `pawl sidecar`.
    case sidecar

    /// The configuration key that sets the policy for everyone.
    var policyKey: String {
        switch self {
        case .front: "policy"
        case .sidecar: "sidecar.require"
        }
    }

    /// The policy for everyone that a configuration sets.
    func policy(_ configuration: PawlConfiguration) -> Policy {
        switch self {
        case .front: configuration.policy
        case .sidecar: configuration.sidecar.require ? .required : .opportunistic
        }
    }
}

/// What a running gateway has in one role only.
enum RoleParts: Sendable {
    /// The public keys of people's own devices.
    case front(DirectoryCache)
    /// The peers of the person and their devices. Sidecars exist on IRC only.
    case sidecar(PeerCache, IRCFront)

    var role: Role {
        switch self {
        case .front: .front
        case .sidecar: .sidecar
        }
    }
}

extension Gateway {
    var role: Role { parts.role }

    /// - Throws: ``AdminFailure`` if this is not a sidecar.
    func sidecar() throws -> Sidecar {
        switch parts {
        case .sidecar(let peers, let front): return Sidecar(gateway: self, peers: peers, front: front)
        case .front:
            throw AdminFailure(
                .isGateway,
                "This is a gateway, not a sidecar: name the sidecar's directory with --data. Here: pawl devices list.")
        }
    }

    /// - Throws: ``AdminFailure`` in a sidecar.
    func directory() throws -> DirectoryCache {
        switch parts {
        case .front(let directory): return directory
        case .sidecar:
            throw AdminFailure(
                .isSidecar, "This is a sidecar, which has no directory. Here: pawl sidecar status.")
        }
    }

    /// The accounts with devices of their own in the directory; none in a sidecar.
    var deviceOwners: [(account: AccountID, entry: DirectoryCache.Entry)] {
        switch parts {
        case .front(let directory): directory.all
        case .sidecar: []
        }
    }
}
