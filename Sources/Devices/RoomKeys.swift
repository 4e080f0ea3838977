// Sender keys of rooms whose members hold their own keys: one for sending to each room, and those received.

package import DoubleRatchet
package import Envelope
import RequestQueue
package import StorePort

/// A sender key that is no longer used, and the number of messages under it.
package struct EndedKey: Hashable, Sendable {
    package var id: UInt32
    package var count: UInt32

    package init(id: UInt32, count: UInt32) { (self.id, self.count) = (id, count) }
}

/// The sender keys of a device.
package struct RoomKeys {
    /// Ours: keys kept for one sender in one room, so that messages from before a rotation can be read after it.
    private static let keysOfSender = 3
    /// Ours: messages under one of our own keys; after that a new key is made.
    package static let messageLimit: UInt32 = 2000

    /// The key for sending to a room.
    package final class Own {
        package var key: SenderKey
        init(_ key: consuming SenderKey) { self.key = key }
    }

    /// A key received from another device.
    package final class Received {
        package var receiver: SenderKeyReceiver
        /// Whether its owner has sent the number of messages under it.
        package var isEnded = false
        package init(_ receiver: consuming SenderKeyReceiver) { self.receiver = receiver }
    }

    /// Ours: capacity for a row, so that growing the array leaves no copies of a key in memory.
    private static let stateCapacity = 4 * 1024

    private let sealer: StorageSealer
    private var own: [ExactText: Own] = [:]
    /// Devices that have our current key, by room.
    private var readers: [ExactText: Set<DeviceID>] = [:]
    /// Those of them that have asked for it again. They may have it all the same: when one leaves, a new key is made.
    private var asking: [ExactText: Set<DeviceID>] = [:]
    /// The last of our earlier keys that a device had, by room.
    private var ended: [ExactText: [DeviceID: EndedKey]] = [:]
    /// Ours: devices in one room for which `ended` is kept.
    private static let endedLimit = 256
    private var received: [ExactText: [Received]] = [:]

    /// - Throws: ``StoreError/corrupt(_:)`` if a row cannot be unsealed.
    package init(sealer: StorageSealer, rows: [RecordRow]) throws(StoreError) {
        self.sealer = sealer
        for row in rows {
            do {
                try read(row)
            } catch {
                throw .corrupt("A key of a room in the store cannot be unsealed: the row is damaged.")
            }
        }
    }

    private mutating func read(_ row: RecordRow) throws {
        var bytes = try sealer.open(row.value, label: Self.label(row.name))
        defer { bytes.wipe() }
        try read(bytes, of: row)
    }

    /// Makes memory agree with one row after a change of it was not committed; nil if the store has no such row.
    mutating func restore(_ name: String, _ row: RecordRow?) {
        if name.hasPrefix("own ") {
            let room = String(name.dropFirst(4))
            (own[room], readers[room], asking[room], ended[room]) = (nil, nil, nil, nil)
        } else {
            received[name] = nil
        }
        if let row { try? read(row) }
    }

    /// Reads an unsealed row. The cursor's copy is released at the end, so that the caller can wipe its bytes.
    private mutating func read(_ bytes: [UInt8], of row: RecordRow) throws {
        guard row.name.hasPrefix("own ") else { return try readReceived(bytes, row.name) }
        var cursor = ByteCursor(bytes)
        var key = try cursor.field()
        defer { key.wipe() }
        let room = String(row.name.dropFirst(4))
        while !cursor.isAtEnd, case let reader = try cursor.uint64(), reader != Self.endOfReaders {
            readers[room, default: []].insert(DeviceID(reader))
        }
        while !cursor.isAtEnd {
            let device = DeviceID(try cursor.uint64())
            ended[room, default: [:]][device] = EndedKey(id: try cursor.uint32(), count: try cursor.uint32())
        }
        own[room] = Own(try SenderKey(serialized: key.span))
    }

    /// Reads the keys of a sender in a room, each after the low 16 bits of its length: a key with more than some 900 skipped
    /// messages is longer than two bytes can say, and its state says how long it is.
    private mutating func readReceived(_ bytes: [UInt8], _ name: String) throws(RatchetError) {
        let keys = try bytes.span.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            var keys: [Received] = []
            while !reader.rest.isEmpty {
                let length = try reader.uint16()
                let left = reader.rest.count
                keys.append(Received(try SenderKeyReceiver.read(from: &reader)))
                guard UInt16(truncatingIfNeeded: left - reader.rest.count) == length else { throw .malformed }
            }
            return keys
        }
        received[name] = keys
    }

    // MARK: Own keys

    /// Returns the key for a room and these readers. Makes a new one if a reader has left or the key is used up.
    package mutating func key(
        for room: String, readers: Set<DeviceID>, random: inout some RandomSource
    ) -> Own {
        let isEnough = self.readers[room, default: []].isSubset(of: readers)
        if let own = own[room], isEnough, own.key.iteration < Self.messageLimit { return own }
        if let old = own[room] { end(old, in: room) }
        let fresh = Own(SenderKey(random: &random))
        own[room] = fresh
        (self.readers[room], asking[room]) = ([], nil)
        return fresh
    }

    private mutating func end(_ key: Own, in room: String) {
        guard key.key.iteration > 0, let readers = readers[room] else { return }
        let entry = EndedKey(id: key.key.id, count: key.key.iteration)
        if ended[room, default: [:]].count + readers.count > Self.endedLimit { ended[room] = [:] }
        for reader in readers.prefix(Self.endedLimit) { ended[room, default: [:]][reader] = entry }
    }

    /// The keys that devices had before the current one. Their counts show a device whether messages were lost.
    package func ended(for devices: [DeviceID], in room: String) -> [EndedKey] {
        Set(devices.compactMap { ended[room]?[$0] }).sorted { $0.id < $1.id }
    }

    /// Devices that have our key for a room.
    private func readers(in room: String) -> Set<DeviceID> { readers[room] ?? [] }

    /// Whether our key for a room has to be sent to some of these devices: they do not have it, or have asked for it.
    package func isKeyDue(for devices: [DeviceID], in room: String) -> Bool {
        !readers(in: room).subtracting(asking[room] ?? []).isSuperset(of: devices)
    }

    /// Records the devices that our key has been sent to.
    package mutating func give(to readers: Set<DeviceID>, in room: String) {
        (self.readers[room], asking[room]) = (readers, nil)
    }

    /// Records that a device needs the key again, because it has asked for it.
    package mutating func asked(by reader: DeviceID, in room: String) {
        guard readers(in: room).contains(reader) else { return }
        asking[room, default: []].insert(reader)
    }

    /// Separates the readers of a key from the earlier keys in a row; no device has this id.
    private static let endOfReaders: UInt64 = 0

    package func row(own key: Own, room: String, random: inout some RandomSource) throws -> StoreChange {
        var (bytes, state): ([UInt8], [UInt8]) = ([], [])
        bytes.reserveCapacity(Self.stateCapacity)
        state.reserveCapacity(Self.stateCapacity)
        key.key.serialize(into: &state)
        bytes.append(field: state)
        for reader in readers(in: room).sorted() { bytes.append(bigEndian: reader.value) }
        if let ended = ended[room], !ended.isEmpty {
            bytes.append(bigEndian: Self.endOfReaders)
            for (device, key) in ended.sorted(by: { $0.key < $1.key }) {
                bytes.append(bigEndian: device.value)
                bytes.append(bigEndian: key.id)
                bytes.append(bigEndian: key.count)
            }
        }
        defer { state.wipe() }
        return try row("own " + room, &bytes, &random)
    }

    // MARK: Received keys

    private static func name(_ sender: DeviceID, _ room: String) -> String {
        String(sender.value, radix: 16) + " " + room
    }

    /// The keys of a device in a room, newest first.
    package func received(from sender: DeviceID, in room: String) -> [Received] {
        received[Self.name(sender, room)] ?? []
    }

    /// Ours: rooms in which keys of one sender are kept; keys for more rooms are rejected.
    private static let roomsOfSender = 200

    /// Ours: keys of missing messages that are kept for one sender over all rooms, some 40 bytes each. A sender can claim in
    /// each room that thousands are missing.
    package static let skippedOfSender = 10_000

    /// Drops keys of a sender with most missing messages, until no more than the limit are kept. Those of one room's newest key
    /// stay. A dropped key is asked for again when a message under it comes.
    ///
    /// - Returns: the changed rows.
    package mutating func boundSkipped(
        of sender: DeviceID, besides room: String, random: inout some RandomSource
    ) throws -> [StoreChange] {
        let prefix = Self.name(sender, "")
        let names = received.keys.filter { $0.text.hasPrefix(prefix) }
        var keys: [(name: ExactText, key: Received)] = names.flatMap { name in
            (received[name] ?? []).map { (name, $0) }
        }
        var count = keys.reduce(0) { $0 + $1.key.receiver.skippedCount }
        guard count > Self.skippedOfSender else { return [] }
        let newest = received[Self.name(sender, room)]?.first
        keys = keys.filter { $0.key !== newest }.sorted {
            ($0.key.receiver.skippedCount, $1.name) > ($1.key.receiver.skippedCount, $0.name)
        }
        var changed: Set<ExactText> = []
        for (name, key) in keys where count > Self.skippedOfSender {
            count -= key.receiver.skippedCount
            received[name]?.removeAll { $0 === key }
            changed.insert(name)
        }
        return try changed.sorted().map { name in
            guard received[name]?.isEmpty == true else { return try row(ofReceived: name.text, &random) }
            received[name] = nil
            return .removeRecord(.senderKey, name: name.text)
        }
    }

    /// Stores a received key; returns whether it was stored. A known key is not stored again: an older state of it
    /// would open messages twice.
    package mutating func take(_ distribution: SenderKeyDistribution, from sender: DeviceID, in room: String) -> Bool {
        let name = Self.name(sender, room)
        guard received[name]?.contains(where: { $0.receiver.id == distribution.id }) != true else { return false }
        if received[name] == nil {
            let prefix = Self.name(sender, "")
            guard received.keys.count(where: { $0.text.hasPrefix(prefix) }) < Self.roomsOfSender else { return false }
        }
        received[name, default: []].insert(Received(SenderKeyReceiver(distribution)), at: 0)
        if let count = received[name]?.count, count > Self.keysOfSender { received[name]?.removeLast() }
        return true
    }

    /// Returns how many messages under ended keys never came. Counts each key once.
    package func missing(_ ended: [EndedKey], from sender: DeviceID, in room: String) -> Int {
        received(from: sender, in: room).reduce(0) { sum, key in
            guard !key.isEnded, let entry = ended.first(where: { $0.id == key.receiver.id }) else { return sum }
            key.isEnded = true
            // A receiver skips at most this many messages; a peer may claim more.
            return sum + Int(min(max(entry.count, key.receiver.next) - key.receiver.next, RatchetLimits.maximumSkip))
        }
    }

    package func row(from sender: DeviceID, in room: String, random: inout some RandomSource) throws -> StoreChange {
        try row(ofReceived: Self.name(sender, room), &random)
    }

    private func row(ofReceived name: String, _ random: inout some RandomSource) throws -> StoreChange {
        var (bytes, state): ([UInt8], [UInt8]) = ([], [])
        let keys = received[name] ?? []
        // Each has the low 16 bits of its length before it; see `readReceived`.
        bytes.reserveCapacity(keys.reduce(0) { $0 + 2 + $1.receiver.serializedSize })
        for key in keys {
            key.receiver.serialize(into: &state)
            bytes.append(field: state)
            state.wipe()
        }
        return try row(name, &bytes, &random)
    }

    private func row(_ name: String, _ bytes: inout [UInt8], _ random: inout some RandomSource) throws -> StoreChange {
        defer { bytes.wipe() }
        let sealed = try sealer.seal(bytes, label: Self.label(name), random: &random)
        return .putRecord(RecordRow(kind: .senderKey, name: name, value: sealed))
    }

    private static func label(_ name: String) -> String { "sender key " + name }
}
