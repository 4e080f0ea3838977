// Who behind this gateway is in which room. Each connection says so of itself, in the order of its own lines: what the
// backend tells about others may be older or newer than what it has told them.
//
// A message that crosses a JOIN or a KICK is therefore read by exactly those to whom the backend relayed it as members.
// What connections report about others counts only for the list of outsiders, and for when a member came, because two
// members' connections are read at different speeds.

package import Protection
package import RequestQueue
import Synchronization

/// Where a connection stands in a room, in the count of ``RoomTable``.
package struct RoomStanding: Sendable, Equatable {
    package var since: UInt64
    package var now: UInt64
}

/// The members of rooms, by folded name of the room.
package final class RoomTable: Sendable {
    /// Ours: names in one room that are remembered for the operator's list; more do not make the list better.
    package static let nameLimit = 2000

    private struct Member {
        package var account: AccountID
        /// When the connection came, in the count of ``RoomTable``.
        package var since: UInt64

        package init(account: AccountID, since: UInt64) {
            self.account = account
            self.since = since
        }
    }

    /// The accounts in a room that outlive their connections, each once, in a fixed order.
    private struct Verified {
        private var accounts: [AccountID] = []
        /// Since when the first connection of each is there.
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
        /// The accounts among them that outlive their connections, once they have been asked for.
        package var verified: Verified?
        /// Members whose backend has gone and who are expected back.
        var awaited: [ConnectionID: Member] = [:]
        /// Folded nicks that somebody has seen there, and since when. Only as good as the last line that any of the
        /// members has had.
        package var names: [ExactText: UInt64] = [:]
    }

    private struct State {
        package var rooms: [ExactText: Room] = [:]
        /// Counts what has happened, so that "before" and "after" need no clock.
        package var count: UInt64 = 0

        package mutating func tick() -> UInt64 {
            count += 1
            return count
        }
    }

    private let state = Mutex(State())

    package init() {}

    /// Puts a connection into a room, or renews whose it is.
    ///
    /// - Parameter nick: folded. Somebody else's line may have told of its coming before its own did.
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

    /// The backend of a member has gone, and the member will be back.
    package func suspend(_ connection: ConnectionID, in room: String) {
        state.withLock { state in
            let known = state.rooms[room]?.members[connection] ?? state.rooms[room]?.awaited[connection]
            let member = known ?? Member(account: .connection(connection.value), since: state.tick())
            state.rooms[room, default: Room()].members[connection] = nil
            state.rooms[room]?.awaited[connection] = member
            // Nobody is left who would see them go.
            if state.rooms[room]?.members.isEmpty == true { state.rooms[room]?.names = [:] }
        }
    }

    package func isAwaiting(_ room: String) -> Bool { state.withLock { $0.rooms[room]?.awaited.isEmpty == false } }

    /// Takes a connection out of a room.
    ///
    /// - Parameter nick: folded. Its name goes as well, where nobody has seen it come again.
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
    /// - Parameter time: only those who had come by then.
    package func verifiedAccounts(in room: String, by time: UInt64 = .max) -> [AccountID] {
        state.withLock { state in
            let known = state.rooms[room]?.verified
            let verified = known ?? Verified((state.rooms[room]?.members ?? [:]).values)
            if known == nil { state.rooms[room]?.verified = verified }
            return verified.accounts(by: time)
        }
    }

    /// The accounts that are expected back in a room, and had come to it by a time.
    package func awaitedAccounts(in room: String, by time: UInt64) -> Set<AccountID> {
        state.withLock { state in
            let awaited = (state.rooms[room]?.awaited ?? [:]).values
            return Set(awaited.filter { $0.account.isVerified && $0.since <= time }.map(\.account))
        }
    }

    package func connections(in room: String) -> [ConnectionID] {
        state.withLock { Array(($0.rooms[room]?.members ?? [:]).keys) }
    }

    /// Whether anybody but this connection is in the room.
    package func hasOthers(than connection: ConnectionID?, in room: String) -> Bool {
        state.withLock { ($0.rooms[room]?.members ?? [:]).contains { $0.key != connection } }
    }

    /// How many connections are in each room, for reports.
    package var sizes: [ExactText: Int] { state.withLock { $0.rooms.mapValues(\.members.count) } }

    // MARK: Before and after

    /// How many comings there have been: a time without a clock.
    package var time: UInt64 { state.withLock { $0.count } }

    /// Since when a connection has been in a room, and the time now.
    package func standing(of connection: ConnectionID, in room: String) -> RoomStanding? {
        state.withLock { state in
            guard let member = state.rooms[room]?.members[connection] else { return nil }
            return RoomStanding(since: member.since, now: state.count)
        }
    }

    // MARK: Names, for the list of outsiders

    /// Somebody has been seen in a room.
    package func saw(_ nicks: [String], in room: String) {
        state.withLock { state in
            guard let names = state.rooms[room]?.names else { return }
            let new = nicks.filter { names[$0] == nil }.prefix(max(0, Self.nameLimit - names.count))
            guard !new.isEmpty else { return }
            let now = state.tick()
            for nick in new { state.rooms[room]?.names[nick] = now }
        }
    }

    /// Somebody has gone from some rooms.
    package func lost(_ nick: String, from gone: some Sequence<String>) {
        state.withLock { state in
            for room in gone { state.rooms[room]?.names[nick] = nil }
        }
    }

    /// Somebody has another nick.
    package func renamed(_ nick: String, to new: String) {
        state.withLock { state in
            for room in state.rooms.keys {
                guard let since = state.rooms[room]?.names.removeValue(forKey: nick) else { continue }
                state.rooms[room]?.names[new] = since
            }
        }
    }

    /// The folded nicks in each room that a test does not know.
    package func outsiders(_ isHere: (String) -> Bool) -> [(room: String, nick: String)] {
        let names = state.withLock { $0.rooms.mapValues { Array($0.names.keys) } }
        return names.flatMap { room, nicks in nicks.map(\.text).filter { !isHere($0) }.map { (room.text, $0) } }
            .sorted { ($0.room, $0.nick) < ($1.room, $1.nick) }
    }
}
