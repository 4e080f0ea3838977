// Messages to rooms that the vault has opened, for the connections of all members. The first connection that has the
// line asks the vault; the others wait for that answer, or find it here, and cost the vault nothing.

import DequeModule
package import NIOCore
package import Protection
import Synchronization

/// An opened message, shared by all who may have a copy of it.
package final class OpenedMessage: Sendable {
    /// Whom a message to a room is for, besides those whose line is stored.
    package struct Audience: Sendable {
        /// By when it had been said, in the count of ``RoomTable``.
        var saidAt: UInt64
        /// Accounts that were there.
        package var readers: Set<AccountID>
        /// The nick under which it came.
        package var source: [UInt8]
    }

    /// What a connection gets.
    package enum Copy {
        case message(Opened)
        /// It has had the message.
        case shown
        /// It came after the message had been said.
        case notReader
    }

    private struct State {
        package var shownTo: Set<ConnectionID>
        /// Accounts that have been found to be readers since it was opened.
        package var readers: Set<AccountID> = []
        package var lines: [ByteBuffer]?
    }

    /// A copy has the same bytes; anything else is looked at as something new.
    package let ratchetMessage: [UInt8]
    /// Where and under whose name it came to a person's own device.
    package let place: [UInt8]
    /// Nothing where the message is not for a room.
    package let audience: Audience?
    private let opened: Opened
    /// The deliveries of a message to a room, by account.
    private let sequences: [AccountID: UInt64]
    private let state: Mutex<State>

    package init(
        ratchetMessage: [UInt8], place: [UInt8], opened: Opened, sequences: [AccountID: UInt64],
        shownTo: Set<ConnectionID>,
        audience: Audience?
    ) {
        self.ratchetMessage = ratchetMessage
        self.place = place
        self.opened = opened
        self.sequences = sequences
        self.audience = audience
        state = Mutex(State(shownTo: shownTo))
    }

    package var sender: AccountID { opened.sender }

    /// Whether the line is stored for an account, which makes it a reader wherever it stands.
    package func hasDelivery(for account: AccountID) -> Bool { sequences[account] != nil }

    /// What a connection is to be shown, by the one rule for all who were not the first to have it.
    ///
    /// - Parameter standing: where the connection stood in the room when the line came to it.
    package func copy(for connection: ConnectionID, of account: AccountID, _ standing: RoomStanding?) -> Copy {
        let sequence = sequences.isEmpty ? nil : sequences[account]
        let refusal: Copy? = state.withLock { state in
            guard sequence != nil || mayRead(account, standing, &state.readers) else {
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

    /// Whether the message is for an account whose connection stands there. Once it is, it remains so.
    private func mayRead(_ account: AccountID, _ standing: RoomStanding?, _ found: inout Set<AccountID>) -> Bool {
        guard let audience else { return true }
        if let standing, standing.since <= audience.saidAt {
            // An account without a login ends with its connection, which has the message now.
            if account.isVerified { found.insert(account) }
            return true
        }
        return audience.readers.contains(account) || found.contains(account)
    }

    /// The lines for clients that asked for no tags: put together by the first who needs them.
    package func lines(_ make: () -> [ByteBuffer]) -> [ByteBuffer] {
        if let lines = state.withLock({ $0.lines }) { return lines }
        let lines = make()
        state.withLock { $0.lines = lines }
        return lines
    }
}

/// The table of lines that are being opened or have just been opened.
///
/// A line is found again by all of its bytes but the tags, so that it has the same source, target and envelope, and by
/// the room that the asking connection takes the target for. Nothing is here before it is committed.
package final class OpenedMessages: Sendable {
    /// A line to a room that carries a whole envelope.
    package struct Line: Sendable, Equatable {
        package let bytes: [UInt8]
        package let room: AccountID

        /// Compares eight bytes at a time: every member's copy of every line comes by here.
        fileprivate func isSame(_ other: UnsafeRawBufferPointer) -> Bool {
            guard bytes.count == other.count else { return false }
            return bytes.withUnsafeBytes { mine in
                var offset = 0
                while offset + 8 <= mine.count {
                    guard
                        mine.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                            == other.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                    else { return false }
                    offset += 8
                }
                return mine[offset...].elementsEqual(other[offset...])
            }
        }
    }

    /// A connection that waits for what another one has asked.
    package struct Waiter {
        package var connection: ConnectionID
        package var ticket: UInt64
    }

    /// What is known of a line.
    package enum Answer {
        case opened(OpenedMessage)
        /// The vault is opening it; the answer will come to this ticket.
        case waits(ticket: UInt64)
        /// Nobody has asked.
        case unknown
    }

    /// Ours: how long a line is kept; later the vault is asked again, and looks at the source again. In nanoseconds.
    package static let lifetime: Int64 = 10_000_000_000
    /// Ours: opened lines that are kept.
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

    /// The end of an envelope in armour: no two have the same unless somebody makes it so, and then it is slower.
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
    /// - Parameter reserve: takes the place of an answer that will come.
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
                // Taken out for the moment, so that it is not copied.
                table.entries.values[index].state = .opening([])
                waiters.append(Waiter(connection: connection, ticket: ticket))
                table.entries.values[index].state = .opening(waiters)
                return .waits(ticket: ticket)
            }
        }
    }

    /// Announces that the vault is asked for a line; the job has to carry what is returned.
    ///
    /// - Returns: nothing where somebody has announced it already; the job is then for one connection alone.
    package func begin(_ bytes: UnsafeRawBufferPointer, to room: AccountID, now: Int64) -> Line? {
        guard let key = Key(bytes) else { return nil }
        let line = Line(bytes: Array(bytes), room: room)
        return table.withLock { table in
            table.expire(now)
            if let entry = table.entries[key] {
                if case .opening = entry.state { return nil }
                // Whoever is not given what is here asks for itself alone.
                if entry.until > now, entry.line == line { return nil }
            }
            table.entries[key] = Entry(line: line, until: now + Self.lifetime, state: .opening([]))
            return line
        }
    }

    // MARK: For the vault

    /// Puts the message of a line in, once it is committed; none where it was not opened.
    ///
    /// - Returns: who waits for it.
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

    /// Forgets what is old.
    package func expire(now: Int64) { table.withLock { $0.expire(now) } }
}
