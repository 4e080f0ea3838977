// What a backend plays back when somebody joins a room. Whether a reader may have it is the vault's business; here is
// told what is a replay, and what to say about it.

import Devices
package import Envelope
package import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue

/// What a connection knows of replays.
package struct RoomHistory: Sendable {
    /// Ours: batches at one time, and rooms that are remembered as told about.
    package static let limit = 512
    /// Ours: a replay comes in one piece, so what it lacks after this long it will never have. In nanoseconds.
    package static let inactivity: Int64 = 3_000_000_000

    /// Batches that play something back.
    package var batches: Set<String> = []
    /// The server's time of the JOIN, by folded room, where it tells the time.
    private var joinedAt: [ExactText: String] = [:]
    /// Rooms whose unreadable history has been explained.
    private var told: Set<String> = []
    /// Its fragments stand apart, so that a message is never put together from a replay and a live rest.
    package var assembler: FragmentAssembler?

    package mutating func joined(_ room: String, at time: String?) { joinedAt[room] = time }

    package mutating func left(_ room: String) { joinedAt[room] = nil }

    mutating func suspended() {
        batches.removeAll()
        assembler = nil
    }

    /// Whether a line was said before the JOIN, by the server's clock. Both times have the form of `server-time`.
    func isBeforeJoin(_ room: String, _ line: IRCLine) -> Bool {
        guard let joined = joinedAt[room], let time = line.tagSpan("time"), time.count == joined.utf8.count else {
            return false
        }
        return line.bytes.withUnsafeReadableBytes { $0[time.range].lexicographicallyPrecedes(joined.utf8) }
    }

    /// Whether a room's history is to be explained now.
    package mutating func tells(of room: String) -> Bool {
        if told.count >= Self.limit { told.removeAll() }
        return told.insert(room).inserted
    }
}

extension IRCSession {
    /// Whether the backend says that a line is played back.
    package func isReplay(_ line: IRCLine) -> Bool {
        guard !line.tags.isEmpty else { return false }
        return isReplay(line, in: room(line.text(0) ?? "")?.name)
    }

    /// The same where the room is known.
    package func isReplay(_ line: IRCLine, in room: String?) -> Bool {
        if !history.batches.isEmpty, let batch = line.tag("batch"), history.batches.contains(batch) { return true }
        return room.map { history.isBeforeJoin($0, line) } ?? false
    }

    /// Notes which batches play something back: `BATCH +reference chathistory #room`.
    func trackHistory(_ line: IRCLine, _ now: Moment, _ out: SessionOutput) {
        guard let reference = line.text(0), let sign = reference.first else { return }
        let name = String(reference.dropFirst())
        if sign == "-" {
            guard history.batches.remove(name) != nil, history.batches.isEmpty else { return }
            return expireReplays(.max, out)
        }
        let type = line.text(1) ?? ""
        let isInside = line.tag("batch").map(history.batches.contains) ?? false
        let isHistory = isInside || ["chathistory", "draft/chathistory", "znc.in/playback"].contains(type)
        if isHistory, history.batches.count < RoomHistory.limit { history.batches.insert(name) }
    }

    /// Takes a fragment that is played back.
    func collectReplay(
        _ id: UInt32, _ index: Int, _ count: Int, _ bytes: [UInt8], _ line: IRCLine, _ now: Moment,
        _ out: SessionOutput
    ) {
        if history.assembler == nil {
            var limits = settings.fragments
            limits.inactivity = min(limits.inactivity, RoomHistory.inactivity)
            history.assembler = FragmentAssembler(limits: limits)
        }
        let outcome = history.assembler?.add(
            source: line.string(line.source), target: line.text(0) ?? "", id: id, index: index, count: count,
            bytes: bytes, now: now.monotonic)
        switch outcome {
        case .complete(let envelope): open(envelope, line, [], now, out)
        case .contradiction, .overflow: report(.malformed, from: line.string(line.sourceNick), out)
        case .waiting, .duplicate, nil: break
        }
        scheduleWake(now, out)
    }

    /// Tells of messages that were played back in part.
    func expireReplays(_ time: Int64, _ out: SessionOutput) {
        for source in history.assembler?.expire(now: time) ?? [] {
            environment.tally.add(.fragmentsLost)
            notify(Remarks.truncated(from: String(source.prefix { $0 != "!" })), out)
        }
    }

    /// What is said, once for each room, of messages that are not shown because they are old.
    func historyRemark(_ failure: OpenFailure, _ open: PendingOpen) -> String? {
        guard let room = open.room else { return nil }
        switch failure {
        case .notRecipient:
            return history.tells(of: room) ? Remarks.beforeJoining(room) : ""
        case .forgotten, .unknownSender, .wrongSource:
            guard open.isReplay else { return nil }
            return history.tells(of: room) ? Remarks.notKept(room) : ""
        default: return nil
        }
    }
}
