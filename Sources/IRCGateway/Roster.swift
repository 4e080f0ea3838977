// The people behind this gateway now, by nick. Shared by all connections.

import DequeModule
package import Envelope
package import Protection
import RequestQueue
import Synchronization

/// A connection of a person behind this gateway.
package struct RosterEntry: Equatable, Sendable {
    package var connection: ConnectionID
    package var account: AccountID
    /// The nick as written.
    package var nick: String
    /// Whether the backend knows this connection now; false during an outage.
    package var isPresent: Bool
    /// Whether the account takes part in encryption. Under `off` it does not, and counts as an outsider.
    package var participates: Bool
    /// Whether the client has requested the capability; not proven.
    package var askedForCapability: Bool
    /// The device that this connection has proven; nil if none.
    package var device: DeviceID?

    package init(
        connection: ConnectionID, account: AccountID, nick: String, isPresent: Bool = true, participates: Bool,
        askedForCapability: Bool, device: DeviceID? = nil
    ) {
        self.device = device
        self.connection = connection
        self.account = account
        self.nick = nick
        self.isPresent = isPresent
        self.participates = participates
        self.askedForCapability = askedForCapability
    }
}

/// The table from folded nick to ``RosterEntry``.
package final class Roster: Sendable {
    /// Ours: how long a former owner of a nick is kept, in nanoseconds. Lines of that owner may still arrive.
    package static let memory: Int64 = 60_000_000_000
    /// Ours: maximum number of nicks with former owners, so that nick changes cannot fill memory.
    package static let formerLimit = 20_000
    /// Ours: how many accounts without a login keep their last nick for reports after they have left.
    package static let leftLimit = 10_000

    private struct State {
        var byNick: [ExactText: RosterEntry] = [:]
        var byAccount: [AccountID: [ConnectionID: String]] = [:]
        package var connections: [ConnectionID: String] = [:]
        var former: [ExactText: [(account: AccountID, until: Int64)]] = [:]
        /// The last nicks of accounts without a login that have left, and these accounts, the oldest first.
        var left: [AccountID: String] = [:]
        var leftOrder: Deque<AccountID> = []

        mutating func noteLeft(_ entry: RosterEntry) {
            guard !entry.account.isVerified else { return }
            if left.updateValue(entry.nick, forKey: entry.account) == nil { leftOrder.append(entry.account) }
            if leftOrder.count > Roster.leftLimit { left[leftOrder.removeFirst()] = nil }
        }

        package func entries(of account: AccountID) -> [RosterEntry] {
            (byAccount[account] ?? [:]).values.compactMap { byNick[$0] }
        }

        package mutating func remove(connection: ConnectionID, now: Int64) {
            guard let nick = connections.removeValue(forKey: connection), let entry = byNick.removeValue(forKey: nick)
            else { return }
            noteLeft(entry)
            byAccount[entry.account]?[connection] = nil
            if byAccount[entry.account]?.isEmpty == true { byAccount[entry.account] = nil }
            if former.count >= Roster.formerLimit { former = former.filter { $0.value.contains { $0.until > now } } }
            guard former.count < Roster.formerLimit else { return }
            var owners = (former[nick] ?? []).filter { $0.until > now && $0.account != entry.account }
            owners.append((entry.account, now + Roster.memory))
            former[nick] = owners
        }
    }

    private let state = Mutex(State())

    package init() {}

    /// The current owner of a nick; nil if there is none.
    package func owner(ofFoldedNick nick: String) -> RosterEntry? {
        state.withLock { $0.byNick[nick] }
    }

    /// The accounts from which a line under this nick may come: its owner, and its owners of the last minute.
    package func possibleOwners(ofFoldedNick nick: String, now: Int64) -> [AccountID] {
        state.withLock { state in
            var accounts: [AccountID] = []
            if let entry = state.byNick[nick] { accounts.append(entry.account) }
            for former in state.former[nick] ?? [] where former.until > now && !accounts.contains(former.account) {
                accounts.append(former.account)
            }
            return accounts
        }
    }

    /// The nicks of an account that the backend knows now, as written and sorted.
    package func nicks(of account: AccountID) -> [String] {
        state.withLock { state in
            var nicks: [String] = []
            for nick in (state.byAccount[account] ?? [:]).values {
                if let entry = state.byNick[nick], entry.isPresent { nicks.append(entry.nick) }
            }
            if nicks.count > 1 { nicks.sort() }
            return nicks
        }
    }

    /// The last nick of an account without a login that has left; nil if it is not known any more.
    package func nickOfLeft(_ account: AccountID) -> String? { state.withLock { $0.left[account] } }

    /// The connections of an account.
    package func connections(of account: AccountID) -> [ConnectionID] {
        state.withLock { $0.entries(of: account).map(\.connection) }
    }

    /// Whether another connection, of another account, has proven this device.
    package func isHeldElsewhere(_ device: DeviceID, than connection: ConnectionID, of account: AccountID) -> Bool {
        state.withLock { state in
            state.byNick.values.contains {
                $0.device == device && $0.connection != connection && $0.account != account
            }
        }
    }

    package func isPresent(_ account: AccountID) -> Bool {
        state.withLock { $0.entries(of: account).contains(where: \.isPresent) }
    }

    /// Whether all connections of an account are in an outage of the backend; false if it has none.
    package func isSuspended(_ account: AccountID) -> Bool {
        state.withLock { state in
            guard let nicks = state.byAccount[account], !nicks.isEmpty else { return false }
            return nicks.values.allSatisfy { state.byNick[$0]?.isPresent == false }
        }
    }

    /// Adds the entry of a connection, or replaces it.
    package func put(_ entry: RosterEntry, foldedNick: String, now: Int64) {
        state.withLock { state in
            state.remove(connection: entry.connection, now: now)
            if let previous = state.byNick[foldedNick] { state.remove(connection: previous.connection, now: now) }
            state.byNick[foldedNick] = entry
            state.byAccount[entry.account, default: [:]][entry.connection] = foldedNick
            state.connections[entry.connection] = foldedNick
        }
    }

    package func remove(_ connection: ConnectionID, now: Int64) {
        state.withLock { $0.remove(connection: connection, now: now) }
    }

    /// All entries, for reports.
    package var entries: [RosterEntry] { state.withLock { Array($0.byNick.values) } }

    package var count: Int { state.withLock { $0.byNick.count } }
}
