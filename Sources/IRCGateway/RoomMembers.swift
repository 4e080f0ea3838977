// Who is in the rooms of a connection, as its own lines say. A sidecar gives keys to these and to nobody else.

import RequestQueue

/// Folded nicks by folded room, without the connection's own.
struct RoomMembers {
    /// Ours: rooms, and people in all of them. Who is not noted gets no key, and what they seal is withheld.
    static let roomLimit = 1000
    static let peopleLimit = 100_000

    private var rooms: [ExactText: Set<ExactText>] = [:]

    package var names: some Sequence<String> { rooms.keys.lazy.map(\.text) }

    package func others(in room: String) -> Set<ExactText> { rooms[room] ?? [] }

    package func contains(_ nick: String, in room: String) -> Bool { rooms[room]?.contains(nick) == true }

    func isAnywhere(_ nick: String) -> Bool { rooms.values.contains { $0.contains(ExactText(nick)) } }

    /// Everybody in rooms of no more than so many others.
    func smallRooms(limit: Int) -> Set<ExactText> {
        rooms.values.filter { $0.count <= limit }.reduce(into: []) { $0.formUnion($1) }
    }

    /// The connection itself has been let in; who else is there comes with the list of names.
    package mutating func begin(_ room: String) {
        if rooms.count < Self.roomLimit || rooms[room] != nil { rooms[room] = [] }
    }

    package mutating func end(_ room: String) { rooms[room] = nil }

    package mutating func add(_ nicks: some Sequence<String>, to room: String, besides own: String) {
        guard rooms[room] != nil, rooms.values.reduce(0, { $0 + $1.count }) < Self.peopleLimit else { return }
        rooms[room]?.formUnion(nicks.map { ExactText($0) })
        rooms[room]?.remove(own)
    }

    package mutating func remove(_ nick: String, from room: String) { rooms[room]?.remove(nick) }

    mutating func removeEverywhere(_ nick: String) {
        for room in rooms.keys { rooms[room]?.remove(nick) }
    }

    package mutating func rename(_ nick: String, to new: String) {
        for room in rooms.keys where rooms[room]?.remove(nick) == true { rooms[room]?.insert(new) }
    }
}
