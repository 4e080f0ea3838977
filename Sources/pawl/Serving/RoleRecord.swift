// The purpose of a data directory. That of a gateway holds other people's devices; that of a sidecar holds a person's
// own devices, on one network. Neither may be opened as the other. The name of the network is bound to every envelope,
// so the first start fixes it, and it is never derived from an address again.
//
// A sidecar pins keys by names of one network, so its directory serves that network only. `upstream.earlier_networks`
// lists names under which older envelopes are still opened.
//
// A gateway's directory is for one chat protocol too: the queue of an HTTP gateway would send stored messages of IRC as
// HTTP requests. Versions before this record stored no protocol; then the requests and keys in the store tell it, and a
// store without any is for the backend that is configured now.

import Devices
import PawlConfiguration
import RequestQueue
import SQLiteStore
import StorePort

/// The role, the network and the chat protocol that a store was first opened with.
enum RoleRecord {
    /// The network of a store.
    struct Network: Equatable {
        var name: String
        /// The notice for the operator at the start that fixes the name.
        var notice: String?
    }

    /// The name of the record of a gateway's chat protocol, beside ``RecordRow/network``.
    static let chatProtocol = "protocol"

    /// Refuses a store file that is for something else before it is opened: the opening may upgrade it for good.
    ///
    /// What it refuses, ``check(_:_:_:directory:now:)`` refuses too: there the records are authenticated.
    ///
    /// - Throws: ``AdminFailure`` that names the remedy.
    static func refuse(
        _ purpose: StoredPurpose, _ role: Role, _ upstream: PawlConfiguration.Upstream, directory: String
    ) throws {
        switch role {
        case .front:
            guard purpose.sidecar == nil else { throw ofSidecar }
            if let known = purpose.gateway[RecordRow.network] { try demand(text(known), upstream, directory) }
            if let holder = try purpose.gateway[chatProtocol].map({ try chat($0, directory) }) {
                try demand(holder, upstream, directory)
            }
        case .sidecar:
            guard purpose.gateway[RecordRow.network] == nil else { throw ofGateway }
            if let known = purpose.sidecar, purpose.hasPeers { try demandSidecar(text(known), upstream) }
        }
    }

    /// Records what a new store is for, and refuses a store that is for something else.
    ///
    /// - Throws: ``AdminFailure`` that names the remedy.
    static func check(
        _ role: Role, _ upstream: PawlConfiguration.Upstream, _ store: any Store, directory: String, now: Int64
    ) throws -> Network {
        let record = try store.record(.ownDevices, name: RecordRow.network)
        let hosted = try store.load().devices.contains { $0.account != .own }
        switch (role, record) {
        case (.front, nil): return try front(upstream, store, hosted: hosted, directory: directory, now: now)
        case (.front, _?): throw ofSidecar
        case (.sidecar, _) where try hosted || store.record(.network, name: RecordRow.network) != nil: throw ofGateway
        case (.sidecar, let row): return try sidecar(upstream, row, store)
        }
    }

    private static func front(
        _ upstream: PawlConfiguration.Upstream, _ store: any Store, hosted: Bool, directory: String, now: Int64
    ) throws -> Network {
        let chat = upstream.url.scheme.chat
        let known = try name(in: store)
        if let known { try demand(known, upstream, directory) }
        let recorded = try recordedProtocol(in: store, directory)
        if let holder = try recorded ?? protocolOfContents(store) { try demand(holder, upstream, directory) }
        let row = RecordRow(kind: .network, name: chatProtocol, value: Array(chat.stored.utf8))
        let change: [StoreChange] = recorded == nil ? [.putRecord(row)] : []
        if let known {
            if !change.isEmpty { try store.commitAsOne(change) }
            return Network(name: known, notice: nil)
        }
        let name = upstream.network ?? upstream.url.host
        try fix(name, in: store, actor: "pawl", detail: name, now: now, with: change)
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

    private static func demand(
        _ known: String, _ upstream: PawlConfiguration.Upstream, _ directory: String
    ) throws(AdminFailure) {
        if let wanted = upstream.network, wanted != known { throw mismatch(known, wanted, directory) }
    }

    private static func demand(
        _ holder: ChatProtocol, _ upstream: PawlConfiguration.Upstream, _ directory: String
    ) throws(AdminFailure) {
        let chat = upstream.url.scheme.chat
        if holder != chat { throw otherProtocol(directory, holder: holder, configured: chat) }
    }

    static func otherProtocol(_ directory: String, holder: ChatProtocol, configured: ChatProtocol) -> AdminFailure {
        AdminFailure(
            .otherProtocol,
            "The data directory \(directory) belongs to a gateway in front of a backend that speaks \(holder.title), "
                + "and the backend in upstream.url speaks \(configured.title). Messages that wait for one cannot be sent "
                + "to the other. Name another directory with --data.")
    }

    private static func sidecar(
        _ upstream: PawlConfiguration.Upstream, _ row: RecordRow?, _ store: any Store
    ) throws -> Network {
        let name = upstream.network ?? upstream.url.host
        if let known = row.map({ text($0.value) }) {
            if known == name { return Network(name: known, notice: nil) }
            // A sidecar that has met nobody, because its first address was wrong, may go to another network.
            if try !store.records(.peer).isEmpty { try demandSidecar(known, upstream) }
        }
        let row = RecordRow(kind: .ownDevices, name: RecordRow.network, value: Array(name.utf8))
        try store.commitAsOne([.putRecord(row)])
        return Network(name: name, notice: nil)
    }

    private static func demandSidecar(
        _ known: String, _ upstream: PawlConfiguration.Upstream
    ) throws(AdminFailure) {
        let name = upstream.network ?? upstream.url.host
        guard name == known else {
            throw AdminFailure(
                .otherNetwork,
                "This data directory is for the network \(known), and the keys in it are pinned by names there. Name "
                    + "another one with --data for \(name), or set upstream.network to \(known) if only its address "
                    + "has changed.")
        }
    }

    private static var ofSidecar: AdminFailure {
        AdminFailure(
            .directoryOfSidecar,
            "This data directory belongs to a sidecar. Start it with pawl sidecar, or name another with --data.")
    }

    private static var ofGateway: AdminFailure {
        AdminFailure(
            .directoryOfGateway,
            "This data directory belongs to a gateway, which holds other people's devices. Name another with --data.")
    }

    private static func text(_ value: [UInt8]) -> String { String(decoding: value, as: UTF8.self) }

    /// The name that a gateway's store holds; nil before its first start.
    static func name(in store: any Store) throws(StoreError) -> String? {
        try store.record(.network, name: RecordRow.network).map { text($0.value) }
    }

    /// Reads the recorded protocol; nil if a version before this record wrote the store.
    ///
    /// - Throws: ``AdminFailure`` for a protocol that this version does not know.
    private static func recordedProtocol(in store: any Store, _ directory: String) throws -> ChatProtocol? {
        try store.record(.network, name: chatProtocol).map { try chat($0.value, directory) }
    }

    private static func chat(_ stored: [UInt8], _ directory: String) throws(AdminFailure) -> ChatProtocol {
        guard let chat = Assembly.protocols.first(where: { Array($0.stored.utf8) == stored }) else {
            throw AdminFailure(
                .unknownProtocol,
                "The data directory \(directory) belongs to a gateway for a chat protocol that this version does not know. "
                    + "Start the newer pawl that wrote it, or name another directory with --data.")
        }
        return chat
    }

    /// Returns the protocol of the requests and keys in a store; nil if there are none.
    ///
    /// One request of IRC among those of HTTP is enough for IRC: the queue would send it.
    private static func protocolOfContents(_ store: any Store) throws -> ChatProtocol? {
        let queue = try store.queueContents()
        let requests = queue.requests + queue.finished.map(\.request)
        if requests.contains(where: { Request($0) != nil }) { return .irc }
        // Only over HTTP the queue has credentials, and messages have content keys of their own.
        return try requests.isEmpty && queue.sessions.isEmpty && store.oldestContentKeys() == nil ? nil : .json
    }

    /// Writes the name into a gateway's store, with a line in the audit log.
    ///
    /// - Parameter changes: are committed with it.
    static func fix(
        _ name: String, in store: any Store, actor: String, detail: String, now: Int64,
        with changes: [StoreChange] = []
    ) throws {
        let row = RecordRow(kind: .network, name: RecordRow.network, value: Array(name.utf8))
        let audit = AuditRow(at: now, actor: actor, action: "store.network", detail: detail)
        try store.commitAsOne([.putRecord(row), .audit(audit)] + changes)
    }

    private static func mismatch(_ known: String, _ wanted: String, _ directory: String) -> AdminFailure {
        AdminFailure(
            .otherNetwork,
            """
            The store in \(directory) is for the network \(known), and upstream.network says \(wanted). A message that was \
            sealed under one name cannot be opened under another.
            To keep the name: set upstream.network to \(known), or remove the key.
            To change it: pawl store network \(wanted) --data \(directory), and add \(known) to \
            upstream.earlier_networks, so that older messages can still be read.
            """)
    }
}

extension Store {
    /// Commits changes together, or none of them.
    ///
    /// - Throws: ``StoreError``, or ``AdminFailure`` if the store rejects a change.
    func commitAsOne(_ changes: [StoreChange]) throws {
        for case let failure? in try commit([changes]) { throw AdminFailure(failure) }
    }
}
