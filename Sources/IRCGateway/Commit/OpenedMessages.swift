// Messages to rooms that the vault has opened, for the connections of all members. The first connection that receives
// the line submits a job; the others wait for its result, or find it here, and cost the vault nothing.

import DequeModule
package import NIOCore
package import Protection
import RequestQueue
import Synchronization

/// An opened message, shared by all connections that may show it.
package final class OpenedMessage: Sendable {
    /// The readers of a message to a room, besides the accounts whose line is stored.
    package struct Audience: Sendable {
        /// When it was sent at the latest, in the count of ``RoomTable``.
        var relayedAt: UInt64
        /// Accounts that were in the room.
        package var readers: Set<AccountID>
        /// The nick in the line's source.
        package var source: [UInt8]
    }

    /// What a connection is to show.
    package enum Copy {
        case message(Opened)
        /// The connection has shown the message before.
        case shown
        /// The connection joined after the message was sent.
        case notReader
    }

    private struct State {
        package var shownTo: Set<ConnectionID>
        /// Accounts that were found to be readers after it was opened.
        package var readers: Set<AccountID> = []
        package var lines: [ByteBuffer]?
    }

    /// A copy has the same bytes; other bytes are handled as another message.
    package let ratchetMessage: [UInt8]
    /// The source and the room of the line, on a person's own device; else empty.
    package let origin: [UInt8]
    /// Nil if the message is not for a room.
    package let audience: Audience?
    private let opened: Opened
    /// The deliveries of a message to a room, by account.
    private let sequences: [AccountID: UInt64]
    private let state: Mutex<State>

    package init(
        ratchetMessage: [UInt8], origin: [UInt8], opened: Opened, sequences: [AccountID: UInt64],
        shownTo: Set<ConnectionID>,
        audience: Audience?
    ) {
        self.ratchetMessage = ratchetMessage
        self.origin = origin
        self.opened = opened
        self.sequences = sequences
        self.audience = audience
        state = Mutex(State(shownTo: shownTo))
    }

    package var sender: AccountID { opened.sender }

    /// Whether the line is stored for an account; then the account is a reader, in the room or not.
    package func hasDelivery(for account: AccountID) -> Bool { sequences[account] != nil }

    /// The copy for a connection that was not the first to receive the line.
    ///
    /// - Parameter standing: since when the connection was in the room when it received the line.
    package func copy(for connection: ConnectionID, of account: AccountID, _ presence: RoomPresence?) -> Copy {
        let sequence = sequences.isEmpty ? nil : sequences[account]
        let refusal: Copy? = state.withLock { state in
            guard sequence != nil || mayRead(account, presence, &state.readers) else {
                return state.shownTo.contains(connection) ? .shown : .notReader
            }
            return state.shownTo.insert(connection).inserted ? nil : .shown
        }
        if let refusal { return refusal }
        var copy = opened
        copy.sequence = sequence
        copy.gap = 0
        return .message(copy)
    }

    /// Undoes a ``copy(for:of:_:)`` that was not shown.
    package func takeBack(from connection: ConnectionID) {
        state.withLock { _ = $0.shownTo.remove(connection) }
    }

    /// Whether an account may read the message. An account with a login that once may read it always may.
    private func mayRead(_ account: AccountID, _ presence: RoomPresence?, _ found: inout Set<AccountID>) -> Bool {
        guard let audience else { return true }
        if let presence, presence.since <= audience.relayedAt {
            // An account without a login ends with its connection, which receives the message now.
            if account.isVerified { found.insert(account) }
            return true
        }
        return audience.readers.contains(account) || found.contains(account)
    }

    /// The lines for clients without tags, made by the first connection that needs them.
    package func lines(_ make: () -> [ByteBuffer]) -> [ByteBuffer] {
        if let lines = state.withLock({ $0.lines }) { return lines }
        let lines = make()
        state.withLock { $0.lines = lines }
        return lines
    }
}

/// The lines that are being opened or have just been opened.
///
/// The key of a line is all of its bytes except the tags, that is source, target and envelope, and the room that the
/// connection resolves the target to. A message is added after its commit.
package final class OpenedMessages: Sendable {
    /// A line to a room that carries a whole envelope.
    package struct Line: Sendable, Equatable {
        package let bytes: [UInt8]
        package let room: AccountID

        /// Whether a line has the same bytes. It runs for every member's copy of every line.
        fileprivate func isSame(_ other: UnsafeRawBufferPointer) -> Bool {
            bytes.withUnsafeBytes { $0.isSame(as: other) }
        }
    }

    /// A connection that waits for the result of another connection's job.
    package struct Waiter {
        package var connection: ConnectionID
        package var ticket: UInt64
    }

    /// The state of a line.
    package enum Answer {
        case opened(OpenedMessage)
        /// The vault is opening it; the reply will have this ticket.
        case waits(ticket: UInt64)
        /// No connection has submitted a job for it.
        case unknown
    }

    /// Ours: how long a line is kept, in nanoseconds. Later the vault opens it again and checks the source again.
    package static let lifetime: Int64 = 10_000_000_000
    /// Ours: how many opened lines are kept.
    package static let limit = 1024

    private enum State {
        case opening([Waiter])
        case opened(OpenedMessage)
    }

    private struct Entry {
        package var line: Line
        package var until: Int64
        package var state: State
    }

    /// The end of an armoured envelope. Two envelopes have the same end only on purpose; then lookups are slower.
    private struct Key: Hashable {
        package let first: UInt64
        package let second: UInt64

        package init?(_ bytes: UnsafeRawBufferPointer) {
            guard bytes.count > 17 else { return nil }
            first = bytes.loadUnaligned(fromByteOffset: bytes.count - 17, as: UInt64.self)
            second = bytes.loadUnaligned(fromByteOffset: bytes.count - 9, as: UInt64.self)
        }
    }

    private struct Table {
        package var entries: [Key: Entry] = [:]
        /// Opened lines, the oldest first.
        package var order: Deque<(key: Key, until: Int64)> = []

        package mutating func expire(_ now: Int64) {
            while let oldest = order.first, oldest.until <= now || order.count > OpenedMessages.limit {
                order.removeFirst()
                if let entry = entries[oldest.key], entry.until == oldest.until, case .opened = entry.state {
                    entries[oldest.key] = nil
                }
            }
        }
    }

    private let table = Mutex(Table())

    package init() {}

    // MARK: For connections

    /// Looks a line up.
    ///
    /// - Parameter reserve: reserves a ticket for a reply that will follow.
    package func ask(
        _ bytes: UnsafeRawBufferPointer, to room: AccountID, by connection: ConnectionID, now: Int64,
        reserve: () -> UInt64
    ) -> Answer {
        guard let key = Key(bytes) else { return .unknown }
        return table.withLock { table in
            guard let index = table.entries.index(forKey: key) else { return .unknown }
            guard table.entries.values[index].until > now, table.entries.values[index].line.room == room,
                table.entries.values[index].line.isSame(bytes)
            else { return .unknown }
            switch table.entries.values[index].state {
            case .opened(let message): return .opened(message)
            case .opening(var waiters):
                let ticket = reserve()
                // Taken out of the table while it is changed, so that the array is not copied.
                table.entries.values[index].state = .opening([])
                waiters.append(Waiter(connection: connection, ticket: ticket))
                table.entries.values[index].state = .opening(waiters)
                return .waits(ticket: ticket)
            }
        }
    }

    /// Registers a line that the vault is about to open. The job has to contain the result.
    ///
    /// - Returns: nil if another connection has registered the line; then the job is for this connection alone.
    package func begin(_ bytes: UnsafeRawBufferPointer, to room: AccountID, now: Int64) -> Line? {
        guard let key = Key(bytes) else { return nil }
        let line = Line(bytes: Array(bytes), room: room)
        return table.withLock { table in
            table.expire(now)
            if let entry = table.entries[key] {
                if case .opening = entry.state { return nil }
                // A connection that does not get the stored message submits a job of its own.
                if entry.until > now, entry.line == line { return nil }
            }
            table.entries[key] = Entry(line: line, until: now + Self.lifetime, state: .opening([]))
            return line
        }
    }

    // MARK: For the vault

    /// Stores the opened message of a line after the commit; nil if it was not opened.
    ///
    /// - Returns: the connections that wait for it.
    package func finish(_ line: Line, _ message: OpenedMessage?, now: Int64) -> [Waiter] {
        guard let key = line.bytes.withUnsafeBytes({ Key($0) }) else { return [] }
        return table.withLock { table in
            guard let entry = table.entries[key], entry.line == line, case .opening(let waiters) = entry.state else {
                return []
            }
            table.entries[key] = nil
            if let message {
                let until = now + Self.lifetime
                table.entries[key] = Entry(line: line, until: until, state: .opened(message))
                table.order.append((key, until))
            }
            table.expire(now)
            return waiters
        }
    }

    /// Removes expired lines.
    package func expire(now: Int64) { table.withLock { $0.expire(now) } }
}
