// What a data directory is for. A gateway's holds other people's devices and a sidecar's a person's own, on one network:
// neither may be opened as the other.

import GatewayCore

/// The role and the network that a store was first opened with.
enum RoleRecord {
    private static let name = "network"

    /// Notes the network of a new sidecar, and refuses a store that is for something else.
    ///
    /// - Throws: ``AdminFailure`` with what to do.
    static func check(_ role: Assembly.Role, network: String, _ store: any Store) throws {
        let record = try store.record(.ownDevices, name: name)
        let hosted = try store.load().devices.contains { $0.account != .own }
        switch (role, record) {
        case (.front, nil): break
        case (.front, _?):
            throw AdminFailure(
                "This data directory belongs to a sidecar. Start it with pawl sidecar, or name another with --data.")
        case (.sidecar, _) where hosted:
            throw AdminFailure(
                "This data directory belongs to a gateway, which holds other people's devices. Name another with --data."
            )
        case (.sidecar, nil):
            let row = RecordRow(kind: .ownDevices, name: name, value: Array(network.utf8))
            for case let failure? in try store.commit([[.putRecord(row)]]) { throw AdminFailure(failure.message) }
        case (.sidecar, let row?):
            let known = String(decoding: row.value, as: UTF8.self)
            guard known != network else { return }
            throw AdminFailure(
                "This data directory is for the network \(known), and the keys in it are pinned by names there. Name "
                    + "another one with --data for \(network), or set upstream.network to \(known) if only its address "
                    + "has changed.")
        }
    }
}
