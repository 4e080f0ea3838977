// The machine of a connection's rooms: which the backend has let it into, which are joined again after an outage, and
// which lines replay history.

import Envelope
import IRCCodec
import NIOCore
import Protection
import RequestQueue

/// The rooms of one connection. All names are folded, except those of targets.
struct ConnectionRooms {
    /// The room of a target.
    struct Target: Sendable {
        /// As in the line.
        fileprivate let bytes: [UInt8]
        let name: String
        let account: AccountID
    }

    /// Ours: rooms of one connection. Servers allow some hundred; one that invents rooms must not fill memory.
    static let limit = 10_000

    /// Rooms that the backend has let this connection into.
    private var joined: Set<ExactText> = []
    private var restoration = Restoration()
    /// The room of the last copy: most lines of a busy connection are for the same room.
    private var last: Target?
    var history = RoomHistory()

    // MARK: Members

    func contains(_ room: String) -> Bool { joined.contains(room) }

    /// The rooms in which the backend delivers messages to this connection.
    var names: some Sequence<String> { joined.lazy.map(\.text) }

    /// The same, with those that are being joined again.
    var all: Set<ExactText> { joined.union(restoration.rooms) }

    /// Whether the client sees itself in a room that it is in, or that is being joined again.
    func isMember(of room: String) -> Bool { joined.contains(room) || restoration.rooms.contains(room) }

    /// The backend has let this connection into a room.
    ///
    /// - Parameter time: the server's time of the JOIN; nil if it sends none.
    /// - Returns: false if there are too many rooms, so that the connection takes no part in this one.
    @discardableResult
    mutating func join(_ room: String, at time: String?) -> Bool {
        guard joined.count < Self.limit || joined.contains(room) else { return false }
        joined.insert(room)
        history.joined(room, at: time)
        return true
    }

    mutating func leave(_ room: String) {
        joined.remove(room)
        restoration.remove(room)
        history.left(room)
    }

    /// The connection with the backend has ended.
    mutating func leaveAll() { joined.removeAll() }

    /// The room that a line is for; nil if this connection is not in it.
    ///
    /// - Parameter room: the folded room and status of a target that is not the last one.
    mutating func target(of line: IRCLine, room: (String) -> (name: String, status: String)?) -> Target? {
        guard let span = line.parameter(0) else { return nil }
        let isLast = line.bytes.withUnsafeReadableBytes { raw in
            last.map { raw[span.range].elementsEqual($0.bytes) } ?? false
        }
        if !isLast {
            let target = line.string(span)
            guard let room = room(target) else { return nil }
            last = Target(
                bytes: Array(target.utf8), name: room.name, account: .room(room.name, status: room.status))
        }
        guard let last, joined.contains(last.name) else { return nil }
        return last
    }

    /// The server compares names in another way, or names rooms otherwise.
    mutating func supportChanged() { last = nil }

    // MARK: Outages

    /// The backend was lost.
    ///
    /// - Returns: the rooms to join again.
    mutating func suspend() -> Set<ExactText> {
        defer {
            joined.removeAll()
            restoration = Restoration()
        }
        return all
    }

    /// The outage is over: these rooms are joined again, and these commands repeated.
    mutating func restore(_ rooms: Set<ExactText>, repeating verbs: Set<VerbKey>, now: Int64) {
        restoration = Restoration(rooms: rooms, verbs: verbs, at: now)
    }

    /// A room cannot be joined again.
    mutating func cannotRestore(_ room: String) { restoration.remove(room) }

    /// When the rooms are given up that the backend has not answered for; nil if there are none.
    var deadline: Int64? { restoration.deadline }

    /// Removes and returns the rooms that the backend has not let the client into again in time.
    mutating func expire(now: Int64) -> [String] { restoration.expire(now: now) }

    /// Whether members of rooms may not be back yet.
    func awaitsMembers(now: Int64) -> Bool { restoration.awaitsMembers(now: now) }

    /// Handles a line of the backend that may answer something that was repeated.
    mutating func answer(_ line: IRCLine, _ identity: @autoclosure () -> ConnectionIdentity) -> Restoration.Answer {
        guard !restoration.isSettled else { return .unrelated }
        let identity = identity()
        return restoration.answer(
            line, nick: identity.foldedNick, isOwn: identity.isSelf(line), identity.support.caseMapping)
    }
}

/// The machine that recognises history which a backend replays. The vault decides whether a reader may open it.
struct RoomHistory {
    /// Ours: maximum number of open batches, and of rooms for which a notice was shown.
    static let limit = 512

    /// Open batches that replay history.
    private var batches: Set<String> = []
    /// The server's time of the JOIN, by folded room, if the server sends the time.
    private var joinedAt: [ExactText: String] = [:]
    /// Rooms for which the notice about unreadable history was shown.
    private var notified: Set<String> = []

    fileprivate mutating func joined(_ room: String, at time: String?) { joinedAt[room] = time }

    fileprivate mutating func left(_ room: String) { joinedAt[room] = nil }

    /// The backend was lost: no batch is continued.
    mutating func suspended() { batches.removeAll() }

    /// Whether the backend marks a line as a replay.
    ///
    /// - Parameter room: nil if the line is not for a room.
    func isReplay(_ line: IRCLine, in room: String?) -> Bool {
        if !batches.isEmpty, let batch = line.tag("batch"), batches.contains(batch) { return true }
        return room.map { isBeforeJoin($0, line) } ?? false
    }

    /// Whether a line was sent before the JOIN, by the server's clock. Both times have the form of `server-time`.
    private func isBeforeJoin(_ room: String, _ line: IRCLine) -> Bool {
        guard let joined = joinedAt[room], let time = line.tagSpan("time"), time.count == joined.utf8.count else {
            return false
        }
        return line.bytes.withUnsafeReadableBytes { $0[time.range].lexicographicallyPrecedes(joined.utf8) }
    }

    /// Tracks the batches that replay history: `BATCH +reference chathistory #room`.
    ///
    /// - Returns: whether the last of them has ended, so that no more fragments follow.
    mutating func track(_ line: IRCLine) -> Bool {
        guard let reference = line.text(0), let sign = reference.first else { return false }
        let name = String(reference.dropFirst())
        if sign == "-" { return batches.remove(name) != nil && batches.isEmpty }
        let type = line.text(1) ?? ""
        let isInside = line.tag("batch").map(batches.contains) ?? false
        let isHistory = isInside || ["chathistory", "draft/chathistory", "znc.in/playback"].contains(type)
        if isHistory, batches.count < Self.limit { batches.insert(name) }
        return false
    }

    /// Whether the notice about a room's unreadable history is due; true once for each room.
    mutating func isNoticeDue(of room: String) -> Bool {
        if notified.count >= Self.limit { notified.removeAll() }
        return notified.insert(room).inserted
    }
}
