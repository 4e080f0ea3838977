// Sender keys of rooms whose members hold their own: one for what the person says in each room, and those of the others.

import DoubleRatchet
import Envelope

/// The sender keys that a device has.
struct RoomKeys {
    /// Ours: keys of one sender in one room that are kept, so that what was said before a rotation can be read behind it.
    private static let keysOfSender = 3
    /// Ours: messages under one key of our own; then there is a new one.
    static let messageLimit: UInt32 = 2000

    /// The key for what the person says in a room.
    final class Own {
        var key: SenderKey
        init(_ key: consuming SenderKey) { self.key = key }
    }

    /// Somebody's key.
    final class Received {
        var receiver: SenderKeyReceiver
        init(_ receiver: consuming SenderKeyReceiver) { self.receiver = receiver }
    }

    private let sealer: StorageSealer
    private var own: [String: Own] = [:]
    /// Devices that have our own keys, by room.
    private var readers: [String: Set<DeviceID>] = [:]
    private var received: [String: [Received]] = [:]

    /// - Throws: ``StoreError/corrupt(_:)`` where a row cannot be unsealed.
    init(sealer: StorageSealer, rows: [RecordRow]) throws(StoreError) {
        self.sealer = sealer
        for row in rows {
            do {
                var cursor = ByteCursor(try sealer.open(row.value, place: Self.place(row.name)))
                if row.name.hasPrefix("own ") {
                    let key = try cursor.field()
                    let room = String(row.name.dropFirst(4))
                    while !cursor.isAtEnd { readers[room, default: []].insert(DeviceID(try cursor.uint64())) }
                    own[room] = Own(try SenderKey(serialized: key.span))
                } else {
                    while !cursor.isAtEnd {
                        let key = try cursor.field()
                        received[row.name, default: []].append(Received(try SenderKeyReceiver(serialized: key.span)))
                    }
                }
            } catch {
                throw .corrupt("A key of a room in the store cannot be unsealed: the row is damaged.")
            }
        }
    }

    // MARK: Our own

    /// The key for a room, for these readers and no others: a new one where somebody is no reader any more.
    mutating func key(
        for room: String, readers: Set<DeviceID>, random: inout some RandomSource
    ) -> Own {
        let isEnough = self.readers[room, default: []].isSubset(of: readers)
        if let own = own[room], isEnough, own.key.iteration < Self.messageLimit { return own }
        let fresh = Own(SenderKey(random: &random))
        own[room] = fresh
        self.readers[room] = []
        return fresh
    }

    /// Devices that have the key for a room.
    func readers(in room: String) -> Set<DeviceID> { readers[room] ?? [] }

    /// The key has been given to devices.
    mutating func give(to readers: Set<DeviceID>, in room: String) { self.readers[room] = readers }

    /// A device has asked for the key again.
    mutating func forget(reader: DeviceID, in room: String) { readers[room]?.remove(reader) }

    func row(own key: Own, room: String, random: inout some RandomSource) throws -> StoreChange {
        var bytes: [UInt8] = []
        var state: [UInt8] = []
        key.key.serialize(into: &state)
        bytes.append(field: state)
        for reader in readers(in: room).sorted() { bytes.append(bigEndian: reader.value) }
        defer { state.wipe() }
        return try row("own " + room, &bytes, &random)
    }

    // MARK: Others'

    private static func name(_ sender: DeviceID, _ room: String) -> String {
        String(sender.value, radix: 16) + " " + room
    }

    /// The keys of a device in a room, the newest first.
    func received(from sender: DeviceID, in room: String) -> [Received] { received[Self.name(sender, room)] ?? [] }

    /// Ours: rooms in which the keys of one sender are kept; more are not taken.
    private static let roomsOfSender = 200

    /// Takes a key. One that is known is not taken again: an older state of it would open messages twice.
    mutating func take(_ distribution: SenderKeyDistribution, from sender: DeviceID, in room: String) -> Bool {
        let name = Self.name(sender, room)
        guard received[name]?.contains(where: { $0.receiver.id == distribution.id }) != true else { return false }
        if received[name] == nil {
            let prefix = Self.name(sender, "")
            guard received.keys.count(where: { $0.hasPrefix(prefix) }) < Self.roomsOfSender else { return false }
        }
        received[name, default: []].insert(Received(SenderKeyReceiver(distribution)), at: 0)
        if let count = received[name]?.count, count > Self.keysOfSender { received[name]?.removeLast() }
        return true
    }

    func row(from sender: DeviceID, in room: String, random: inout some RandomSource) throws -> StoreChange {
        let name = Self.name(sender, room)
        var bytes: [UInt8] = []
        for key in received[name] ?? [] {
            var state: [UInt8] = []
            key.receiver.serialize(into: &state)
            bytes.append(field: state)
            state.wipe()
        }
        return try row(name, &bytes, &random)
    }

    private func row(_ name: String, _ bytes: inout [UInt8], _ random: inout some RandomSource) throws -> StoreChange {
        defer { bytes.wipe() }
        let sealed = try sealer.seal(bytes, place: Self.place(name), random: &random)
        return .putRecord(RecordRow(kind: .senderKey, name: name, value: sealed))
    }

    private static func place(_ name: String) -> String { "sender key " + name }
}
