// The members of a connection's rooms, from the lines that it received. A sidecar sends room keys to these only.

import RequestQueue

/// The folded nicks by folded room, without the connection's own nick.
struct RoomMembers {
    /// Ours: maximum numbers of rooms, and of members in all rooms. A member above the limit gets no key, and sealed
    /// messages of that member are withheld.
    static let roomLimit = 1000
    static let peopleLimit = 100_000

    private var rooms: [ExactText: Set<ExactText>] = [:]
    /// The number of members in all rooms; a person counts once in each.
    private var total = 0

    /// The folded nicks in the text of RPL_NAMREPLY. Split by bytes, as the names of rooms are.
    static func nicks(in list: String, _ fold: (String) -> String) -> [String] {
        list.utf8.split(separator: UInt8(ascii: " ")).map { entry in
            let nick = entry.drop { "~&@%+!".utf8.contains($0) }.prefix { $0 != UInt8(ascii: "!") }
            return fold(String(decoding: nick, as: UTF8.self))
        }
    }

    var names: some Sequence<String> { rooms.keys.lazy.map(\.text) }

    func others(in room: String) -> Set<ExactText> { rooms[room] ?? [] }

    func count(in room: String) -> Int { rooms[room]?.count ?? 0 }

    func contains(_ nick: String, in room: String) -> Bool { rooms[room]?.contains(nick) == true }

    func isAnywhere(_ nick: String) -> Bool { rooms.values.contains { $0.contains(ExactText(nick)) } }

    /// The rooms of which a nick is a member, sorted.
    func rooms(of nick: String) -> [String] {
        rooms.filter { $0.value.contains(ExactText(nick)) }.keys.sorted().map(\.text)
    }

    /// Adds a room that the connection has joined. Its members follow in the list of names.
    mutating func begin(_ room: String) {
        guard rooms.count < Self.roomLimit || rooms[room] != nil else { return }
        total -= count(in: room)
        rooms[room] = []
    }

    mutating func end(_ room: String) {
        total -= count(in: room)
        rooms[room] = nil
    }

    mutating func add(_ nicks: some Sequence<String>, to room: String, besides own: String) {
        guard rooms[room] != nil, total < Self.peopleLimit else { return }
        change(room) { members in
            members.formUnion(nicks.map { ExactText($0) })
            members.remove(own)
        }
    }

    mutating func remove(_ nick: String, from room: String) { change(room) { $0.remove(nick) } }

    mutating func removeEverywhere(_ nick: String) {
        for room in rooms(of: nick) { remove(nick, from: room) }
    }

    mutating func rename(_ nick: String, to new: String) {
        for room in rooms(of: nick) {
            change(room) { members in
                members.remove(nick)
                members.insert(new)
            }
        }
    }

    /// Changes the members of a room, if it is known.
    private mutating func change(_ room: String, _ body: (inout Set<ExactText>) -> Void) {
        let before = count(in: room)
        if rooms[room] != nil { body(&rooms[room, default: []]) }
        total += count(in: room) - before
    }
}
