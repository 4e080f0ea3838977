// The members of rooms behind this gateway. Each connection reports its own membership in the order of its own lines:
// what the backend sends to one connection about another may be older or newer than what it sends to that one.
//
// A message that crosses a JOIN or a KICK is therefore read by exactly those to whom the backend relayed it as members.
// Reports about others are used only for the list of outsiders, and for when a member joined, because the connections
// of two members are read at different speeds.

package import Protection
package import RequestQueue
import Synchronization

/// Since when a connection is in a room, and the present, in the count of ``RoomTable``.
package struct RoomPresence: Sendable, Equatable {
    package var since: UInt64
    package var now: UInt64
}

/// The members of rooms, by folded name of the room.
package final class RoomTable: Sendable {
    /// Ours: names kept for one room for the operator's list; more do not make the list better.
    package static let nameLimit = 2000

    private struct Member {
        package var account: AccountID
        /// When the connection joined, in the count of ``RoomTable``.
        package var since: UInt64

        package init(account: AccountID, since: UInt64) {
            self.account = account
            self.since = since
        }
    }

    /// The accounts in a room that outlive their connections, each once, in a fixed order.
    private struct Verified {
        private var accounts: [AccountID] = []
        /// For each account, when the first of its connections joined.
        private var since: [UInt64] = []
        private var latest: UInt64 = 0

        init(_ members: some Sequence<Member>) {
            var first: [AccountID: UInt64] = [:]
            for member in members where member.account.isVerified {
                first[member.account] = min(first[member.account] ?? .max, member.since)
            }
            for (account, time) in first.sorted(by: { $0.key < $1.key }) {
                accounts.append(account)
                since.append(time)
                latest = max(latest, time)
            }
        }

        package func accounts(by time: UInt64) -> [AccountID] {
            time >= latest ? accounts : zip(accounts, since).filter { $0.1 <= time }.map(\.0)
        }
    }

    private struct Room {
        package var members: [ConnectionID: Member] = [:] {
            didSet { verified = nil }
        }
        /// The accounts among them that have a login, cached by the first lookup.
        package var verified: Verified?
        /// Members that have lost their backend and are expected back.
        var awaited: [ConnectionID: Member] = [:]
        /// Folded nicks that a member's connection has seen in the room, and since when. As recent as the last line
        /// that any of
        /// these connections has received.
        package var names: [ExactText: UInt64] = [:]
    }

    private struct State {
        package var rooms: [ExactText: Room] = [:]
        /// A logical clock: counts events, so that "before" and "after" need no time.
        package var count: UInt64 = 0

        package mutating func tick() -> UInt64 {
            count += 1
            return count
        }
    }

    private let state = Mutex(State())

    package init() {}

    /// Puts a connection into a room, or updates its account.
    ///
    /// - Parameter nick: folded. Another connection may have reported its JOIN before its own line arrived.
    package func put(_ connection: ConnectionID, of account: AccountID, as nick: String, into room: String) {
        state.withLock { state in
            let known = state.rooms[room]
            let since =
                known?.members[connection]?.since ?? known?.awaited[connection]?.since ?? known?.names[nick]
                ?? state.tick()
            state.rooms[room, default: Room()].members[connection] = Member(account: account, since: since)
            state.rooms[room]?.awaited[connection] = nil
            if known?.names[nick] == nil { state.rooms[room]?.names[nick] = since }
        }
    }

    /// Marks a member as expected back after its connection has lost the backend.
    package func suspend(_ connection: ConnectionID, in room: String) {
        state.withLock { state in
            let known = state.rooms[room]?.members[connection] ?? state.rooms[room]?.awaited[connection]
            let member = known ?? Member(account: .connection(connection.value), since: state.tick())
            state.rooms[room, default: Room()].members[connection] = nil
            state.rooms[room]?.awaited[connection] = member
            // No connection is left that would report departures.
            if state.rooms[room]?.members.isEmpty == true { state.rooms[room]?.names = [:] }
        }
    }

    package func isAwaiting(_ room: String) -> Bool { state.withLock { $0.rooms[room]?.awaited.isEmpty == false } }

    /// Takes a connection out of a room.
    ///
    /// - Parameter nick: folded. Removed too, unless another connection has seen it join again.
    package func remove(_ connection: ConnectionID, as nick: String, from room: String) {
        state.withLock { state in
            if let since = state.rooms[room]?.members[connection]?.since,
                let seen = state.rooms[room]?.names[nick], seen <= since
            {
                state.rooms[room]?.names[nick] = nil
            }
            state.rooms[room]?.members[connection] = nil
            state.rooms[room]?.awaited[connection] = nil
            if let rest = state.rooms[room], rest.members.isEmpty {
                state.rooms[room]?.names = [:]
                if rest.awaited.isEmpty { state.rooms[room] = nil }
            }
        }
    }

    /// The accounts in a room that outlive their connections, each once, in a fixed order.
    ///
    /// - Parameter time: only accounts that had joined by then.
    package func verifiedAccounts(in room: String, by time: UInt64 = .max) -> [AccountID] {
        state.withLock { state in
            let known = state.rooms[room]?.verified
            let verified = known ?? Verified((state.rooms[room]?.members ?? [:]).values)
            if known == nil { state.rooms[room]?.verified = verified }
            return verified.accounts(by: time)
        }
    }

    /// The accounts with a login that are expected back in a room, and had joined it by a time.
    package func awaitedAccounts(in room: String, by time: UInt64) -> Set<AccountID> {
        state.withLock { state in
            let awaited = (state.rooms[room]?.awaited ?? [:]).values
            return Set(awaited.filter { $0.account.isVerified && $0.since <= time }.map(\.account))
        }
    }

    package func connections(in room: String) -> [ConnectionID] {
        state.withLock { Array(($0.rooms[room]?.members ?? [:]).keys) }
    }

    /// Whether another connection is in the room.
    package func hasOthers(than connection: ConnectionID?, in room: String) -> Bool {
        state.withLock { ($0.rooms[room]?.members ?? [:]).contains { $0.key != connection } }
    }

    /// How many connections are in each room, for reports.
    package var sizes: [ExactText: Int] { state.withLock { $0.rooms.mapValues(\.members.count) } }

    // MARK: Before and after

    /// The logical time: how many events there have been.
    package var time: UInt64 { state.withLock { $0.count } }

    /// Since when a connection has been in a room, and the time now; nil if it is not in the room.
    package func presence(of connection: ConnectionID, in room: String) -> RoomPresence? {
        state.withLock { state in
            guard let member = state.rooms[room]?.members[connection] else { return nil }
            return RoomPresence(since: member.since, now: state.count)
        }
    }

    // MARK: Names, for the list of outsiders

    /// Notes nicks that were seen in a room.
    package func saw(_ nicks: [String], in room: String) {
        state.withLock { state in
            guard let names = state.rooms[room]?.names else { return }
            let new = nicks.filter { names[$0] == nil }.prefix(max(0, Self.nameLimit - names.count))
            guard !new.isEmpty else { return }
            let now = state.tick()
            for nick in new { state.rooms[room]?.names[nick] = now }
        }
    }

    /// Notes that a nick has left some rooms.
    package func lost(_ nick: String, from gone: some Sequence<String>) {
        state.withLock { state in
            for room in gone { state.rooms[room]?.names[nick] = nil }
        }
    }

    /// Notes that a nick was changed.
    package func renamed(_ nick: String, to new: String) {
        state.withLock { state in
            for room in state.rooms.keys {
                guard let since = state.rooms[room]?.names.removeValue(forKey: nick) else { continue }
                state.rooms[room]?.names[new] = since
            }
        }
    }

    /// The folded nicks in each room for which `isHere` is false, sorted.
    package func outsiders(_ isHere: (String) -> Bool) -> [(room: String, nick: String)] {
        let names = state.withLock { $0.rooms.mapValues { Array($0.names.keys) } }
        return names.flatMap { room, nicks in nicks.map(\.text).filter { !isHere($0) }.map { (room.text, $0) } }
            .sorted { ($0.room, $0.nick) < ($1.room, $1.nick) }
    }
}
