// Messages to rooms: opened once for all hosted members, and kept until the line was written to each of them.
//
// All hosted members of a room are one recipient. The room has a device in the vault, and each speaker's device a
// session with it: one seal, one envelope and one opening, however many members there are. Hosted rooms use no sender
// keys, which would protect nothing more between members whose keys are in one state. A message for members with a
// status only (`@#room`) has a recipient of its own, so that a backend cannot deliver it to the whole room.
//
// A line that a member has not received when the process ends is delivered when the member joins the room again, within
// `limits.request_age`.

import Envelope
package import Protection
import StorePort
import Vault

/// Lines of rooms that have been opened and not yet been written to every member's socket. One row holds the line and
/// the members; member n of m has the delivery number (row - m + 1 + n), so that the row's own is the highest.
package struct RoomDeliveries: Sendable {
    package struct Row: Sendable {
        package var room: String
        package var line: [UInt8]
        /// In milliseconds since 1970.
        package var openedAt: Int64
        /// Sorted.
        package var members: [AccountID]
        /// For each member, whether the line is still to be delivered.
        package var isMissing: [Bool]
        package var missing: Int

        package init(room: String, line: [UInt8], openedAt: Int64, members: [AccountID], isMissing: [Bool]) {
            (self.room, self.line, self.openedAt) = (room, line, openedAt)
            (self.members, self.isMissing) = (members, isMissing)
            missing = isMissing.count { $0 }
        }
    }

    private var rows: [UInt64: Row] = [:]
    /// The numbers of the rows, ascending.
    private var numbers: [UInt64] = []

    mutating func begin(_ number: UInt64, _ row: Row) {
        rows[number] = row
        numbers.insert(number, at: Self.insertionIndex(of: number, in: numbers))
    }

    /// Removes a row that was not committed.
    mutating func remove(_ number: UInt64) {
        guard rows.removeValue(forKey: number) != nil else { return }
        numbers.remove(at: Self.insertionIndex(of: number, in: numbers))
    }

    /// The index of the first element of an ascending list that is not below a value.
    private static func insertionIndex<Value: Comparable>(of value: Value, in list: [Value]) -> Int {
        if let last = list.last, last < value { return list.count }
        var (low, high) = (0, list.count)
        while low < high {
            let middle = (low + high) / 2
            if list[middle] < value { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Marks a line as written to one member.
    ///
    /// - Returns: whether the number belongs to a row here, and the number of the row if all its members have the line.
    mutating func end(_ number: UInt64) -> (isKnown: Bool, finished: UInt64?) {
        let insertionIndex = Self.insertionIndex(of: number, in: numbers)
        guard insertionIndex < numbers.count else { return (false, nil) }
        let row = numbers[insertionIndex]
        guard let index = rows.index(forKey: row), case let count = rows.values[index].members.count,
            row - number < count
        else { return (false, nil) }
        let member = count - 1 - Int(row - number)
        // Another connection of the account may have received it before.
        guard rows.values[index].isMissing[member] else { return (true, nil) }
        rows.values[index].isMissing[member] = false
        rows.values[index].missing -= 1
        guard rows.values[index].missing == 0 else { return (true, nil) }
        rows[row] = nil
        numbers.remove(at: insertionIndex)
        return (true, row)
    }

    /// The lines that are still to be delivered to an account, in the order of opening.
    ///
    /// - Parameter isAway: whether the account has no connection in a room; a connection in the room is shown the line
    ///   anyway.
    func missing(_ account: AccountID, where isAway: (String) -> Bool) -> [RecoveredLine] {
        numbers.compactMap { number in
            guard let row = rows[number] else { return nil }
            let member = Self.insertionIndex(of: account, in: row.members)
            guard member < row.members.count, row.members[member] == account, row.isMissing[member], isAway(row.room)
            else { return nil }
            let sequence = number - UInt64(row.members.count - 1 - member)
            return RecoveredLine(sequence: sequence, line: row.line, room: row.room)
        }
    }

    /// Removes old rows, whose members have not come back.
    ///
    /// - Returns: the numbers of the removed rows.
    mutating func expire(openedBefore time: Int64) -> [UInt64] {
        let old = rows.filter { $0.value.openedAt < time }.keys.sorted()
        guard !old.isEmpty else { return [] }
        for number in old { rows[number] = nil }
        numbers.removeAll { rows[$0] == nil }
        return old
    }
}

/// Counts messages to rooms without a reader behind this gateway. They are no gap for members who join later.
struct UnreadCounts: Sendable {
    private struct Key: Hashable {
        package var sender: AccountID
        package var room: AccountID
    }

    private var counts: [Key: Int] = [:]

    mutating func note(_ request: Request) {
        let key = Key(sender: AccountID(text: request.account), room: AccountID(text: request.peer))
        guard let count = counts[key] else { return }
        counts[key] = count + 1
    }

    /// The messages without a reader since the last one that was opened; nil if none was opened.
    func count(from sender: AccountID, in room: AccountID) -> Int? { counts[Key(sender: sender, room: room)] }

    /// Undoes a ``gap(_:from:in:)``.
    mutating func restore(_ count: Int?, from sender: AccountID, in room: AccountID) {
        counts[Key(sender: sender, room: room)] = count
    }

    /// How many messages were lost before one that has just been opened.
    ///
    /// Zero for the first message since the start of the process, because the number is not known then.
    mutating func gap(_ skipped: Int, from sender: AccountID, in room: AccountID) -> Int {
        let unread = counts.updateValue(0, forKey: Key(sender: sender, room: room))
        return unread.map { max(0, skipped - $0) } ?? 0
    }

    mutating func forget(_ account: AccountID) { counts = counts.filter { $0.key.sender != account } }
}

extension IRCParticipants {
    /// Ours: members of one room whose line survives a crash. Further members are shown it, but it is not stored for
    /// them.
    private static var memberLimit: Int { 4096 }

    /// Stores a line for the members of a room that have a login.
    ///
    /// - Parameter time: only for members who had joined by then.
    /// - Returns: the delivery number of each member; nil if the line could not be sealed.
    mutating func deliver(
        _ line: [UInt8], from sender: AccountID, to recipient: AccountID, _ job: OpenJob, by time: UInt64,
        _ now: Timestamp, _ changes: inout [StoreChange]
    ) -> [AccountID: UInt64]? {
        guard let room = recipient.roomName else { return [:] }
        // Only the backend knows which members have the status; this vault is sure only of the account that received
        // it.
        let all = recipient.isPartOfRoom ? [job.account] : rooms.verifiedAccounts(in: room, by: time)
        let members = all.filter { $0 != sender && $0.isVerified }.prefix(Self.memberLimit)
        guard !members.isEmpty else { return [:] }
        let shard = vault.sharding.shard(from: sender, to: recipient)
        let last = deliveryIDs.next(in: shard, reserving: members.count)
        let first = last - UInt64(members.count) + 1
        let payload = Array(members.map(\.text).joined(separator: " ").utf8) + [0x0A] + line
        guard let sealed = try? vault.seal(line: payload, sequence: last) else { return nil }
        changes.append(
            .insertDelivery(DeliveryRow(sequence: last, account: recipient, sealedLine: sealed)))
        roomDeliveries.begin(
            last,
            .init(
                room: room, line: line, openedAt: now.wall, members: Array(members),
                isMissing: Array(repeating: true, count: members.count)))
        return Dictionary(uniqueKeysWithValues: zip(members, first...last))
    }

    /// Takes over a row of an earlier process, for members that have not received the line.
    mutating func adopt(_ row: DeliveryRow, _ now: Timestamp, _ changes: inout [StoreChange]) {
        let payload = vault.open(line: row.sealedLine, sequence: row.sequence) ?? []
        let parts = payload.split(separator: 0x0A, maxSplits: 1, omittingEmptySubsequences: false)
        let members = (parts.first ?? []).split(separator: 0x20)
            .map { AccountID(text: String(decoding: $0, as: UTF8.self)) }
        guard parts.count == 2, let room = row.account.roomName, members.count <= row.sequence else { return }
        let first = row.sequence - UInt64(members.count) + 1
        let isMissing = members.indices.map { !wasDelivered(first + UInt64($0)) }
        guard isMissing.contains(true) else { return changes.append(.removeDelivery(sequence: row.sequence)) }
        roomDeliveries.begin(
            row.sequence,
            .init(
                room: room, line: Array(parts[1]), openedAt: now.wall, members: members, isMissing: isMissing))
    }

    /// Notes that a line was written to a client's socket.
    mutating func delivered(_ sequence: UInt64, _ changes: inout [StoreChange]) {
        let (isKnown, finished) = roomDeliveries.end(sequence)
        if !isKnown { changes.append(.removeDelivery(sequence: sequence)) }
        if let finished { changes.append(.removeDelivery(sequence: finished)) }
    }

    /// Whether no other connection here is sure to open a message to a room: the sender is alone in it, or the message
    /// is for members with a status, whom only the backend knows.
    func isReadByNobody(_ entry: InFlight) -> Bool {
        let peer = AccountID(text: entry.request.peer)
        guard let room = peer.roomName else { return false }
        return peer.isPartOfRoom || !rooms.hasOthers(than: entry.connection, in: room)
    }
}
