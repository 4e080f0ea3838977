// History that a backend replays when a client joins a room. This file recognises replays and sends notices about
// them; the vault decides whether a reader may open them.

import Devices
package import Envelope
package import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue

/// The state of replays on one connection.
package struct RoomHistory: Sendable {
    /// Ours: maximum number of open batches, and of rooms for which a notice was shown.
    package static let limit = 512
    /// Ours: how long a replayed message waits for its fragments, in nanoseconds. A replay arrives in one piece.
    package static let inactivity: Int64 = 3_000_000_000

    /// Open batches that replay history.
    package var batches: Set<String> = []
    /// The server's time of the JOIN, by folded room, if the server sends the time.
    private var joinedAt: [ExactText: String] = [:]
    /// Rooms for which the notice about unreadable history was shown.
    private var notified: Set<String> = []
    /// Reassembles replayed fragments apart from live ones, so that the two are never mixed in one message.
    package var assembler: FragmentAssembler?

    package mutating func joined(_ room: String, at time: String?) { joinedAt[room] = time }

    package mutating func left(_ room: String) { joinedAt[room] = nil }

    mutating func suspended() {
        batches.removeAll()
        assembler = nil
    }

    /// Whether a line was sent before the JOIN, by the server's clock. Both times have the form of `server-time`.
    func isBeforeJoin(_ room: String, _ line: IRCLine) -> Bool {
        guard let joined = joinedAt[room], let time = line.tagSpan("time"), time.count == joined.utf8.count else {
            return false
        }
        return line.bytes.withUnsafeReadableBytes { $0[time.range].lexicographicallyPrecedes(joined.utf8) }
    }

    /// Whether the notice about a room's unreadable history is due; true once for each room.
    package mutating func isNoticeDue(of room: String) -> Bool {
        if notified.count >= Self.limit { notified.removeAll() }
        return notified.insert(room).inserted
    }
}

extension IRCConnectionMachine {
    /// Whether the backend marks a line as a replay.
    package func isReplay(_ line: IRCLine) -> Bool {
        guard !line.tags.isEmpty else { return false }
        return isReplay(line, in: room(line.text(0) ?? "")?.name)
    }

    /// The same, with the room of the line; nil if the line is not for a room.
    package func isReplay(_ line: IRCLine, in room: String?) -> Bool {
        if !history.batches.isEmpty, let batch = line.tag("batch"), history.batches.contains(batch) { return true }
        return room.map { history.isBeforeJoin($0, line) } ?? false
    }

    /// Tracks the batches that replay history: `BATCH +reference chathistory #room`.
    func trackHistory(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
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

    /// Adds a replayed fragment.
    func collectReplay(
        _ id: UInt32, _ index: Int, _ count: Int, _ bytes: [UInt8], _ line: IRCLine, _ now: Timestamp,
        _ out: MachineOutput
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

    /// Notifies the client of messages that were replayed only in part.
    func expireReplays(_ time: Int64, _ out: MachineOutput) {
        for source in history.assembler?.expire(now: time) ?? [] {
            environment.tally.add(.fragmentsLost)
            notify(Notices.truncated(from: String(source.prefix { $0 != "!" })), out)
        }
    }

    /// The notice for old messages that are not shown, once for each room; then an empty text.
    ///
    /// - Returns: nil if the failure has another notice.
    func historyNotice(_ failure: OpenFailure, _ open: PendingOpen) -> String? {
        guard let room = open.room else { return nil }
        switch failure {
        case .notRecipient:
            return history.isNoticeDue(of: room) ? Notices.beforeJoining(room) : ""
        case .forgotten, .unknownSender, .wrongSource:
            guard open.isReplay else { return nil }
            return history.isNoticeDue(of: room) ? Notices.notKept(room) : ""
        default: return nil
        }
    }
}
