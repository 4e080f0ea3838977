// The accounts and conversations that a gateway knows. A policy for a mistyped name would protect nothing, so
// `pawl policy set` refuses unknown names.

import DeviceDirectory
import Foundation
import NIOSupport
import PawlConfiguration
import Protection
import RequestQueue
import StorePort
import Vault

/// The people and conversations that a gateway knows from its connections and its store.
struct KnownNames {
    /// Ours: suggestions for an unknown name.
    private static let nearestLimit = 3
    /// Ours: rows of each table that are read. A name beyond them counts as unknown, and has to be confirmed.
    private static let limit = 100_000

    /// Services accounts, or the accounts of a backend that speaks HTTP.
    private(set) var accounts: Set<AccountID> = []
    /// Rooms, or the conversations of a backend that speaks HTTP.
    private(set) var rooms: Set<AccountID> = []
    /// Folded nicks of people without a services account.
    private(set) var nicks: Set<String> = []
    /// Scopes with a policy of their own. Their policy can be changed even if their name was never seen.
    private let configured: Set<AccountID>
    private let observations: [ObservationRow]
    private let latched: [ConversationID]
    private let gateway: Gateway

    /// Whether letter case in names is ignored, as on IRC. A backend that speaks HTTP has its own rules.
    private var foldsCase: Bool { gateway.front.foldsCase }

    init(_ gateway: Gateway) throws {
        try gateway.writeDown()
        self.gateway = gateway
        configured = Set(gateway.tables.policies.snapshot.accounts.keys)
        let store = gateway.store
        observations = try store.observations(limit: Self.limit)
        latched = try store.conversations(limit: Self.limit).map(\.id)
        for row in try store.evidence(limit: Self.limit) {
            if row.verified {
                accounts.insert(.services(row.name))
            } else {
                nicks.insert(row.name)
            }
        }
        add(try store.deviceAccounts(limit: Self.limit))
        add(latched.flatMap { [$0.first, $0.second] })
        add(gateway.deviceOwners.map(\.account))
        add(gateway.front.knownNames(observations))
    }

    private mutating func add(_ found: some Sequence<AccountID>) {
        for account in found {
            if let room = account.roomName {
                if !room.isEmpty { rooms.insert(.room(room)) }
            } else if !account.text.isEmpty, !account.text.contains(" "), !foldsCase || account.isVerified {
                accounts.insert(account)
            }
        }
    }

    // MARK: Names

    /// The result of looking up a name.
    enum Match {
        case known(AccountID)
        /// - Parameter nearest: the most similar known names, the most similar first.
        case unknown(AccountID, nearest: [String])
    }

    func account(_ name: String) -> Match {
        match(gateway.services(name), among: accounts.union(configured.filter { $0.roomName == nil })) { $0.name }
    }

    func room(_ name: String) -> Match {
        match(gateway.room(name), among: rooms.union(configured.filter { $0.roomName != nil })) { $0.roomName ?? "" }
    }

    /// Whether the gateway has ever seen an account or a room.
    func hasSeen(_ scope: AccountID) -> Bool { accounts.contains(scope) || rooms.contains(scope) }

    private func match(_ exact: AccountID, among known: Set<AccountID>, _ name: (AccountID) -> String) -> Match {
        guard !known.contains(exact) else { return .known(exact) }
        // Names that differ only in Unicode normalisation, or on IRC in case, match if there is only one such name.
        let wanted = folded(name(exact))
        let alike = known.filter { folded(name($0)) == wanted }
        if alike.count == 1, let only = alike.first { return .known(only) }
        return .unknown(exact, nearest: Self.nearest(name(exact), among: known.map(name)))
    }

    private func folded(_ name: String) -> String { foldsCase ? name.lowercased() : name }

    /// Returns the known names whose cores differ least, the most similar first.
    static func nearest(_ wanted: String, among names: some Sequence<String>) -> [String] {
        let core = Array(Self.core(wanted).utf8)
        let tolerance = max(1, min(3, core.count / 2))
        return names.compactMap { name -> (distance: Int, name: String)? in
            let candidate = Array(Self.core(name).utf8)
            guard abs(candidate.count - core.count) <= tolerance else { return nil }
            let distance = NearestName.distance(candidate, core)
            return distance <= tolerance ? (distance, name) : nil
        }.sorted { ($0.distance, $0.name) < ($1.distance, $1.name) }.prefix(nearestLimit).map(\.name)
    }

    /// The compared part of a name: `alice` of `@alice:example.org`, `ops` of `#ops`. Its length is bounded.
    private static func core(_ name: String) -> String {
        let begin = name.drop { "@#!&+~".contains($0) }.prefix { $0 != ":" }
        return begin.prefix(NearestName.wordLimit).lowercased()
    }

    // MARK: Coverage

    /// How many known people, connections and conversations a scope covers now.
    struct Coverage: Codable, Equatable {
        var people: Int
        var connections: Int
        var conversations: Int

        var text: String {
            func count(_ number: Int, _ noun: String) -> String { "\(number) \(noun)\(number == 1 ? "" : "s")" }
            return "\(people) known \(people == 1 ? "person" : "people"), \(count(connections, "connection")) and "
                + count(conversations, "conversation")
        }
    }

    /// - Parameters:
    ///   - scope: an account, a room, or nil for everyone without a policy of their own.
    ///   - withRooms: whether an account's policy applies in rooms too.
    func coverage(of scope: AccountID?, withRooms: Bool = false) -> Coverage {
        let policies = gateway.tables.policies.snapshot.accounts
        let known = gateway.knownConversations(observations)
        guard let scope else {
            let people = accounts.filter { policies[$0] == nil }.count + (foldsCase ? nicks.count : 0)
            let conversations = Set(known.map(\.id) + latched).union(rooms.map { ConversationID($0, $0) })
            return Coverage(
                people: people, connections: gateway.server.connectionCount,
                conversations: conversations.count { policies[$0.first] == nil || $0.first.roomName == nil })
        }
        if let room = scope.roomName {
            return Coverage(
                people: people(in: room), connections: gateway.front.connectionCount(of: scope),
                conversations: rooms.contains(scope) ? 1 : 0)
        }
        let observed = known.filter { ($0.isPrivate || withRooms) && $0.people.contains(scope) }.map(\.id)
        let pairs = latched.filter { $0.first == scope || $0.second == scope }
        return Coverage(
            people: accounts.contains(scope) ? 1 : 0, connections: gateway.front.connectionCount(of: scope),
            conversations: Set(observed + pairs).count)
    }

    private func people(in room: String) -> Int {
        gateway.front.peopleCount(in: room, observations, among: accounts)
    }
}
