// The members of a connection's rooms, from the lines that it received. A sidecar sends room keys to these only.

import RequestQueue

/// The folded nicks by folded room, without the connection's own nick.
struct RoomMembers {
    /// Ours: maximum numbers of rooms, and of members in all rooms. A member above the limit gets no key, and sealed
    /// messages of that member are withheld.
    static let roomLimit = 1000
    static let peopleLimit = 100_000

    private var rooms: [ExactText: Set<ExactText>] = [:]

    /// The folded nicks in the text of RPL_NAMREPLY. Split by bytes, as the names of rooms are.
    static func nicks(in list: String, _ fold: (String) -> String) -> [String] {
        list.utf8.split(separator: UInt8(ascii: " ")).map { entry in
            let nick = entry.drop { "~&@%+!".utf8.contains($0) }.prefix { $0 != UInt8(ascii: "!") }
            return fold(String(decoding: nick, as: UTF8.self))
        }
    }

    package var names: some Sequence<String> { rooms.keys.lazy.map(\.text) }

    package func others(in room: String) -> Set<ExactText> { rooms[room] ?? [] }

    package func contains(_ nick: String, in room: String) -> Bool { rooms[room]?.contains(nick) == true }

    func isAnywhere(_ nick: String) -> Bool { rooms.values.contains { $0.contains(ExactText(nick)) } }

    /// The members of all rooms with at most `limit` other members.
    func smallRooms(limit: Int) -> Set<ExactText> {
        rooms.values.filter { $0.count <= limit }.reduce(into: []) { $0.formUnion($1) }
    }

    /// Adds a room that the connection has joined. Its members follow in the list of names.
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
