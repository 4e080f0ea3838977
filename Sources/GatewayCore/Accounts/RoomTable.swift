// Who behind this gateway is in which room. Each connection says so of itself, in the order of its own lines: what the
// backend tells about others may be older or newer than what it has told them.

import Synchronization

/// The members of rooms, by folded name of the room.
package final class RoomTable: Sendable {
    /// Ours: names in one room that are remembered for the operator's list; more do not make the list better.
    package static let nameLimit = 2000

    private struct Room {
        var members: [ConnectionID: AccountID] = [:]
        /// Members whose backend has gone and who are expected back.
        var awaited: Set<ConnectionID> = []
        /// Folded nicks that somebody has seen there, for the list of outsiders. Only as good as the last line that any
        /// of the members has had.
        var names: Set<String> = []
    }

    private let state = Mutex<[String: Room]>([:])

    package init() {}

    /// Puts a connection into a room, or renews whose it is.
    package func put(_ connection: ConnectionID, of account: AccountID, into room: String) {
        state.withLock { rooms in
            rooms[room, default: Room()].members[connection] = account
            rooms[room]?.awaited.remove(connection)
        }
    }

    /// The backend of a member has gone, and the member will be back.
    package func suspend(_ connection: ConnectionID, in room: String) {
        state.withLock { rooms in
            rooms[room, default: Room()].members[connection] = nil
            rooms[room]?.awaited.insert(connection)
        }
    }

    package func isAwaiting(_ room: String) -> Bool { state.withLock { $0[room]?.awaited.isEmpty == false } }

    package func remove(_ connection: ConnectionID, from room: String) {
        state.withLock { rooms in
            rooms[room]?.members[connection] = nil
            rooms[room]?.awaited.remove(connection)
            if let rest = rooms[room], rest.members.isEmpty, rest.awaited.isEmpty { rooms[room] = nil }
        }
    }

    /// The accounts in a room that outlive their connections, each once, in a fixed order.
    package func verifiedAccounts(in room: String) -> [AccountID] {
        state.withLock { Set(($0[room]?.members ?? [:]).values.filter(\.isVerified)).sorted() }
    }

    package func connections(in room: String) -> [ConnectionID] {
        state.withLock { Array(($0[room]?.members ?? [:]).keys) }
    }

    /// Whether anybody but this connection is in the room.
    package func hasOthers(than connection: ConnectionID?, in room: String) -> Bool {
        state.withLock { ($0[room]?.members ?? [:]).contains { $0.key != connection } }
    }

    /// How many connections are in each room, for reports.
    package var sizes: [String: Int] { state.withLock { $0.mapValues(\.members.count) } }

    // MARK: Names, for the list of outsiders

    /// Somebody has been seen in a room.
    package func saw(_ nicks: [String], in room: String) {
        state.withLock { rooms in
            guard let count = rooms[room]?.names.count else { return }
            rooms[room]?.names.formUnion(nicks.prefix(max(0, Self.nameLimit - count)))
        }
    }

    /// Somebody has gone from some rooms.
    package func lost(_ nick: String, from gone: some Sequence<String>) {
        state.withLock { rooms in
            for room in gone { rooms[room]?.names.remove(nick) }
        }
    }

    /// Somebody has another nick.
    package func renamed(_ nick: String, to new: String) {
        state.withLock { rooms in
            for room in rooms.keys where rooms[room]?.names.remove(nick) != nil { rooms[room]?.names.insert(new) }
        }
    }

    /// The folded nicks in each room that a test does not know.
    package func outsiders(_ isHere: (String) -> Bool) -> [(room: String, nick: String)] {
        let names = state.withLock { $0.mapValues(\.names) }
        return names.flatMap { room, nicks in nicks.filter { !isHere($0) }.map { (room, $0) } }
            .sorted { ($0.room, $0.nick) < ($1.room, $1.nick) }
    }
}
