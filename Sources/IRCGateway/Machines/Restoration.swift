// What a connection repeats after an outage: the rooms and the commands whose answers the client must not see again.

import IRCCodec
import RequestQueue

/// The machine of what was repeated after the last outage and is not answered yet.
struct Restoration {
    /// What a line of the backend is for the client.
    enum Answer: Equatable {
        /// No answer to something that was repeated.
        case unrelated
        /// An answer that the client has seen before.
        case hidden
        /// The backend does not let the client into a room again.
        ///
        /// - Parameter room: folded.
        case refused(room: String)
    }

    /// Ours: how long a message to a room waits for members who are not back yet, in nanoseconds. Longer than the
    /// longest pause between two attempts to connect.
    private static let roomPatience: Int64 = 35_000_000_000
    /// Ours: how long a server may take to let the client into its rooms again, in nanoseconds. Some servers delay many JOINs,
    /// and some refuse one in words that do not name the room.
    static let joinPatience: Int64 = 180_000_000_000

    /// Verbs that were repeated and are not answered yet.
    private var verbs: Set<VerbKey> = []
    /// Rooms being joined again, folded. The client has never left them.
    private(set) var rooms: Set<ExactText> = []
    /// Those of them that the backend has let the client into, and whose names it has not sent.
    private var entered: Set<ExactText> = []
    /// When the outage ended; nil if there was none.
    private var endedAt: Int64?

    init() {}

    /// An outage has ended, and these are repeated.
    init(rooms: Set<ExactText>, verbs: Set<VerbKey>, at now: Int64) {
        (self.rooms, self.verbs, endedAt) = (rooms, verbs, now)
    }

    /// Whether everything that was repeated is answered.
    var isSettled: Bool { verbs.isEmpty && rooms.isEmpty }

    /// Whether members of rooms may not be back yet.
    func awaitsMembers(now: Int64) -> Bool { endedAt.map { now < $0 + Self.roomPatience } ?? false }

    /// When the rooms are given up that the backend has not answered for; nil if there are none.
    var deadline: Int64? { rooms.isEmpty ? nil : endedAt.map { $0 + Self.joinPatience } }

    /// Time has passed.
    ///
    /// - Returns: the rooms that the backend has not let the client into, sorted.
    mutating func expire(now: Int64) -> [String] {
        guard let deadline, deadline <= now else { return [] }
        defer { (rooms, entered) = ([], []) }
        return rooms.subtracting(entered).sorted().map(\.text)
    }

    /// The client has left a room, or it cannot be joined again.
    mutating func remove(_ room: String) {
        rooms.remove(ExactText(room))
        entered.remove(ExactText(room))
    }

    /// Handles a line of the backend that may answer something that was repeated.
    ///
    /// - Parameters:
    ///   - nick: the connection's own, folded.
    ///   - isOwn: whether the source of the line is this connection.
    mutating func answer(
        _ line: IRCLine, nick: String, isOwn: @autoclosure () -> Bool, _ mapping: CaseMapping
    ) -> Answer {
        if !verbs.isEmpty, answersVerb(line, nick, mapping) { return .hidden }
        guard !rooms.isEmpty else { return .unrelated }
        if line.key == .join, isOwn() {
            let room = mapping.fold(line.text(0) ?? "")
            guard rooms.contains(room) else { return .unrelated }
            entered.insert(ExactText(room))
            return .hidden
        }
        guard let numeric = line.key.numeric, let name = line.text(numeric == 353 ? 2 : 1) else { return .unrelated }
        let room = mapping.fold(name)
        guard rooms.contains(room) else { return .unrelated }
        switch numeric {
        case 324, 329, 332, 333, 353: return .hidden
        case 366:
            remove(room)
            return .hidden
        // Servers refuse a JOIN with many numerics, for example 480 or 609 if too many join at once.
        case 400...599, 609:
            guard !entered.contains(room) else { return .unrelated }
            remove(room)
            return .refused(room: room)
        default: return .unrelated
        }
    }

    /// Whether a line answers a repeated MODE or AWAY.
    private mutating func answersVerb(_ line: IRCLine, _ nick: String, _ mapping: CaseMapping) -> Bool {
        if line.key.numeric == 306 { return verbs.remove(.away) != nil }
        guard line.key == .mode, line.text(0).map(mapping.fold) == nick else { return false }
        return verbs.remove(.mode) != nil
    }
}
