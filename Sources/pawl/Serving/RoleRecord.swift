// The purpose of a data directory. That of a gateway holds other people's devices; that of a sidecar holds a person's
// own devices, on one network. Neither may be opened as the other. The name of the network is bound to every envelope,
// so the first start fixes it, and it is never derived from an address again.
//
// A sidecar pins keys by names of one network, so its directory serves that network only. `upstream.earlier_networks`
// lists names under which older envelopes are still opened.

import Devices
import PawlConfiguration
import StorePort

/// The role and the network that a store was first opened with.
enum RoleRecord {
    /// The network of a store.
    struct Network: Equatable {
        var name: String
        /// The notice for the operator at the start that fixes the name.
        var notice: String?
    }

    /// Records the network of a new store, and refuses a store of another role or network.
    ///
    /// - Throws: ``AdminFailure`` that names the remedy.
    static func check(
        _ role: Assembly.Role, _ upstream: PawlConfiguration.Upstream, _ store: any Store, directory: String, now: Int64
    ) throws -> Network {
        let record = try store.record(.ownDevices, name: RecordRow.network)
        let hosted = try store.load().devices.contains { $0.account != .own }
        switch (role, record) {
        case (.front, nil): return try front(upstream, store, hosted: hosted, directory: directory, now: now)
        case (.front, _?):
            throw AdminFailure(
                "This data directory belongs to a sidecar. Start it with pawl sidecar, or name another with --data.")
        case (.sidecar, _) where try hosted || store.record(.network, name: RecordRow.network) != nil:
            throw AdminFailure(
                "This data directory belongs to a gateway, which holds other people's devices. Name another with --data."
            )
        case (.sidecar, let row): return try sidecar(upstream, row, store)
        }
    }

    private static func front(
        _ upstream: PawlConfiguration.Upstream, _ store: any Store, hosted: Bool, directory: String, now: Int64
    ) throws -> Network {
        if let known = try name(in: store) {
            guard upstream.network == nil || upstream.network == known else {
                throw mismatch(known, upstream.network ?? "", directory)
            }
            return Network(name: known, notice: nil)
        }
        let name = upstream.network ?? upstream.url.host
        try fix(name, in: store, actor: "pawl", detail: name, now: now)
        var notice =
            "The name of the network is fixed in the store as \(name). It is bound to every sealed message, and does not "
            + "change with the address of the backend."
        notice +=
            hosted
            ? " If an earlier start used another name or another host in upstream.url, list that one in "
                + "upstream.earlier_networks, so that its messages can be read."
            : " To choose another name, stop pawl before the first message and run: pawl store network NAME --data \(directory)"
        return Network(name: name, notice: notice)
    }

    private static func sidecar(
        _ upstream: PawlConfiguration.Upstream, _ row: RecordRow?, _ store: any Store
    ) throws -> Network {
        let name = upstream.network ?? upstream.url.host
        guard let row else {
            let row = RecordRow(kind: .ownDevices, name: RecordRow.network, value: Array(name.utf8))
            for case let failure? in try store.commit([[.putRecord(row)]]) { throw AdminFailure(failure.message) }
            return Network(name: name, notice: nil)
        }
        let known = String(decoding: row.value, as: UTF8.self)
        guard known == name else {
            throw AdminFailure(
                "This data directory is for the network \(known), and the keys in it are pinned by names there. Name "
                    + "another one with --data for \(name), or set upstream.network to \(known) if only its address "
                    + "has changed.")
        }
        return Network(name: known, notice: nil)
    }

    /// The name that a gateway's store holds; nil before its first start.
    static func name(in store: any Store) throws(StoreError) -> String? {
        try store.record(.network, name: RecordRow.network).map { String(decoding: $0.value, as: UTF8.self) }
    }

    /// Writes the name into a gateway's store, with a line in the audit log.
    static func fix(_ name: String, in store: any Store, actor: String, detail: String, now: Int64) throws {
        let row = RecordRow(kind: .network, name: RecordRow.network, value: Array(name.utf8))
        let audit = AuditRow(at: now, actor: actor, action: "store.network", detail: detail)
        for case let failure? in try store.commit([[.putRecord(row), .audit(audit)]]) {
            throw AdminFailure(failure.message)
        }
    }

    private static func mismatch(_ known: String, _ wanted: String, _ directory: String) -> AdminFailure {
        AdminFailure(
            """
            The store in \(directory) is for the network \(known), and upstream.network says \(wanted). A message that was \
            sealed under one name cannot be opened under another.
            To keep the name: set upstream.network to \(known), or remove the key.
            To change it: pawl store network \(wanted) --data \(directory), and add \(known) to \
            upstream.earlier_networks, so that older messages can still be read.
            """)
    }
}
