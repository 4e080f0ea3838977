// Letters for devices, by number and in order until their device says that it has them, and blobs. The store holds the
// contents; in memory is what has to be counted.
//
//     letter    DEVICE SEQUENCE   -> the letter          16 hexadecimal digits each, so that rows stand in order
//     mailbox   DEVICE            -> up to which number the device has them (8)
//     sent      DEVICE            -> the last ids that it has sent something under, the beginnings of their SHA-256 (8 each)
//     parcel    NUMBER            -> what several letters have in common
//     blob      ID                -> owner (2 + n), bytes

import Crypto
package import Envelope
import Protection
package import StorePort

/// What waits.
package struct Mailroom {
    /// Ours: letters and bytes for one device, and those of one account among them: nobody alone can fill it.
    static let boxLimit = 1000
    static let boxBytes = 1 << 20
    static let senderLimit = 250
    static let senderBoxBytes = 256 << 10
    /// Ours: registrations of one account that wait.
    package static let registrationLimit = 4
    package static let registrationBytes = 4096
    /// Ours: bytes of everything that waits, of all devices, and of what one account has sent of it.
    static let totalBytes = 256 << 20
    static let senderBytes = 8 << 20
    /// Ours: devices of one message, bytes of an id, and of one letter's own part.
    package static let recipientLimit = 100
    package static let idLimit = 128
    package static let contentLimit = 64 << 10
    /// Ours: bytes of the part that several devices get.
    package static let bodyLimit = 256 << 10
    /// Ours: letters of one answer, and their bytes.
    static let pageLimit = 50
    static let pageBytes = 512 << 10
    /// Ours: after so long nobody fetches it any more. In milliseconds.
    package static let life: Int64 = 30 * 86_400_000
    /// Ours: ids that a sender's device has used last, remembered so that a repeated call does nothing.
    static let idMemory = 128

    /// Ours: how often mailboxes are checked for expired entries, in nanoseconds.
    static let pruneInterval: Int64 = 60_000_000_000

    private struct Entry {
        package var sequence: UInt64
        package var at: Int64
        package var size: Int
        package var from: AccountID
        package var kind: Letter.Kind
        package var parcel: UInt64
    }

    /// What one account has in a box.
    private struct Share: Equatable {
        package var letters = 0
        package var registrations = 0
        package var bytes = 0

        package mutating func count(_ entry: Entry, _ sign: Int) {
            if entry.kind == .registration { registrations += sign } else { letters += sign }
            bytes += sign * entry.size
        }
    }

    private struct Box {
        package var last: UInt64 = 0
        package var entries: [Entry] = []
        package var bytes = 0
        package var shares: [AccountID: Share] = [:]

        package mutating func add(_ entry: Entry) {
            entries.append(entry)
            last = max(last, entry.sequence)
            count(entry, 1)
        }

        package mutating func count(_ entry: Entry, _ sign: Int) {
            bytes += sign * entry.size
            shares[entry.from, default: Share()].count(entry, sign)
            if shares[entry.from] == Share() { shares[entry.from] = nil }
        }
    }

    private var boxes: [DeviceID: Box] = [:]
    private var parcels: [UInt64: (count: Int, size: Int, from: AccountID)] = [:]
    private var lastParcel: UInt64 = 0
    private var bytes = 0
    /// The same of each sender.
    private var sizes: [AccountID: Int] = [:]
    private var sent: [DeviceID: [UInt64]] = [:]
    package private(set) var blobs: BlobShelf

    /// - Throws: ``StoreError/corrupt(_:)``.
    package init(store: any Store) throws(StoreError) {
        blobs = try BlobShelf(store: store)
        for row in try store.records(.mailbox) {
            guard let device = Self.device(row.name) else { throw Self.damaged }
            boxes[device, default: Box()].last = row.value.reduce(0) { $0 << 8 | UInt64($1) }
        }
        for row in try store.records(.letter) {
            let parts = row.name.split(separator: " ").map(String.init)
            guard parts.count == 2, let device = Self.device(parts[0]), let sequence = UInt64(parts[1], radix: 16),
                let letter = try? Letter(row.value)
            else { throw Self.damaged }
            add(letter, sequence, to: device)
        }
        for row in try store.records(.parcel) {
            guard let number = UInt64(row.name, radix: 16), let parcel = parcels[number] else { continue }
            parcels[number]?.size = row.value.count
            count(row.value.count, of: parcel.from)
            lastParcel = max(lastParcel, number)
        }
        for row in try store.records(.sent) {
            guard let device = Self.device(row.name), row.value.count.isMultiple(of: 8) else { throw Self.damaged }
            sent[device] = Self.digests(row.value)
        }
    }

    private static func digests(_ bytes: [UInt8]) -> [UInt64] {
        var cursor = ByteCursor(bytes)
        return (0..<bytes.count / 8).compactMap { _ in try? cursor.uint64() }
    }

    private static let damaged = StoreError.corrupt(
        "A letter for a device in the store is damaged. Bring back a backup: pawl restore FILE.")

    private static func device(_ name: String) -> DeviceID? { UInt64(name, radix: 16).map(DeviceID.init) }
    private static func name(_ device: DeviceID, _ sequence: UInt64) -> String {
        device.name + " " + DeviceID(sequence).name
    }

    private mutating func add(_ letter: Letter, _ sequence: UInt64, to device: DeviceID) {
        let entry = Entry(
            sequence: sequence, at: letter.at, size: letter.bytes.count, from: letter.from, kind: letter.kind,
            parcel: letter.parcel)
        boxes[device, default: Box()].add(entry)
        count(entry.size, of: letter.from)
        if letter.parcel != 0 { parcels[letter.parcel, default: (0, 0, letter.from)].count += 1 }
    }

    private mutating func count(_ size: Int, of account: AccountID) {
        bytes += size
        let left = (sizes[account] ?? 0) + size
        sizes[account] = left == 0 ? nil : left
    }

    // MARK: Rollback

    /// Makes memory agree with one record of the store after a change of it was not committed. Reads this record only.
    package mutating func restore(_ kind: RecordKind, name: String, from store: any Store) {
        let row: RecordRow?
        do { row = try store.record(kind, name: name) } catch { return }
        switch kind {
        case .letter:
            let parts = name.split(separator: " ").map(String.init)
            guard parts.count == 2, let device = Self.device(parts[0]), let sequence = UInt64(parts[1], radix: 16)
            else {
                return
            }
            takeOut(sequence, of: device)
            if let row, let letter = try? Letter(row.value) { add(letter, sequence, to: device) }
            boxes[device]?.entries.sort { $0.sequence < $1.sequence }
        case .parcel:
            guard let number = UInt64(name, radix: 16), let parcel = parcels[number] else { return }
            count((row?.value.count ?? 0) - parcel.size, of: parcel.from)
            parcels[number]?.size = row?.value.count ?? 0
        case .sent:
            guard let device = Self.device(name) else { return }
            sent[device] = row.map { Self.digests($0.value) }
        case .blob: blobs.restore(name, row?.value)
        // Numbers of a mailbox only rise.
        default: break
        }
    }

    /// Takes one entry out of memory, with what it counted for.
    private mutating func takeOut(_ sequence: UInt64, of device: DeviceID) {
        guard var box = boxes[device], let index = box.entries.firstIndex(where: { $0.sequence == sequence }) else {
            return
        }
        let entry = box.entries.remove(at: index)
        box.count(entry, -1)
        boxes[device] = box
        count(-entry.size, of: entry.from)
        guard entry.parcel != 0, let parcel = parcels[entry.parcel] else { return }
        parcels[entry.parcel]?.count -= 1
        guard parcel.count == 1 else { return }
        count(-parcel.size, of: parcel.from)
        parcels[entry.parcel] = nil
    }

    // MARK: In

    private static func digest(_ id: String) -> UInt64 {
        SHA256.hash(data: Array(id.utf8)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// Whether a device has sent something under this id lately.
    package func isRepeated(_ id: String, by device: DeviceID) -> Bool {
        sent[device]?.contains(Self.digest(id)) == true
    }

    /// Notes that it has, in the same transaction as what it has sent.
    package mutating func note(_ id: String, by device: DeviceID, _ changes: inout [StoreChange]) {
        let ids = (sent[device] ?? []).suffix(Self.idMemory - 1) + [Self.digest(id)]
        sent[device] = Array(ids)
        var value: [UInt8] = []
        for id in ids { value.append(bigEndian: id) }
        changes.append(.putRecord(RecordRow(kind: .sent, name: device.name, value: value)))
    }

    /// Puts a letter into each box, or into none.
    ///
    /// - Parameters:
    ///   - letters: of one sender, each for another device.
    ///   - body: what they have in common; often nothing.
    package mutating func post(
        _ letters: [(device: DeviceID, letter: Letter)], body: [UInt8], _ changes: inout [StoreChange]
    ) throws(MailRefusal) {
        guard let sender = letters.first?.letter.from else { return }
        var size = body.count
        for (device, letter) in letters {
            let box = boxes[device] ?? Box()
            let share = box.shares[sender] ?? Share()
            let mine = letter.bytes.count
            let hasRoom =
                letter.kind == .registration
                ? share.registrations < Self.registrationLimit : share.letters < Self.senderLimit
            guard hasRoom, box.entries.count < Self.boxLimit, box.bytes + mine <= Self.boxBytes,
                share.bytes + mine <= Self.senderBoxBytes
            else { throw .full }
            size += mine
        }
        guard bytes + size <= Self.totalBytes, (sizes[sender] ?? 0) + size <= Self.senderBytes else { throw .full }
        var parcel: UInt64 = 0
        if !body.isEmpty {
            lastParcel += 1
            parcel = lastParcel
            parcels[parcel] = (0, body.count, sender)
            count(body.count, of: sender)
            changes.append(.putRecord(RecordRow(kind: .parcel, name: DeviceID(parcel).name, value: body)))
        }
        for (device, letter) in letters {
            var letter = letter
            letter.parcel = parcel
            let sequence = (boxes[device]?.last ?? 0) + 1
            add(letter, sequence, to: device)
            changes.append(
                .putRecord(RecordRow(kind: .letter, name: Self.name(device, sequence), value: letter.bytes)))
        }
    }

    // MARK: Out

    /// Letters behind a number, in order. What is not committed yet ends them.
    package func letters(
        for device: DeviceID, after: UInt64, _ store: any Store
    ) throws(StoreError) -> (letters: [(sequence: UInt64, letter: Letter, body: [UInt8])], more: Bool) {
        var found: [(sequence: UInt64, letter: Letter, body: [UInt8])] = []
        var size = 0
        for entry in boxes[device]?.entries ?? [] where entry.sequence > after {
            size += entry.size + (parcels[entry.parcel]?.size ?? 0)
            guard found.count < Self.pageLimit, size <= Self.pageBytes || found.isEmpty,
                let row = try store.record(.letter, name: Self.name(device, entry.sequence)),
                let letter = try? Letter(row.value)
            else { return (found, true) }
            let body =
                entry.parcel == 0 ? [] : try store.record(.parcel, name: DeviceID(entry.parcel).name)?.value ?? []
            found.append((entry.sequence, letter, body))
        }
        return (found, false)
    }

    /// Removes what a device has.
    package mutating func acknowledge(_ through: UInt64, by device: DeviceID, _ changes: inout [StoreChange]) {
        remove(from: device, &changes) { $0.sequence <= through }
    }

    /// Removes what nobody has fetched in time, and what waits for devices that are no more.
    package mutating func prune(now: Int64, _ changes: inout [StoreChange], isThere: (DeviceID) -> Bool) {
        for (device, box) in boxes {
            if !isThere(device) {
                remove(from: device, &changes) { _ in true }
                changes.append(.removeRecord(.mailbox, name: device.name))
                boxes[device] = nil
            } else if box.entries.first.map({ $0.at + Self.life < now }) == true {
                remove(from: device, &changes) { $0.at + Self.life < now }
            }
        }
        for device in sent.keys where !isThere(device) {
            sent[device] = nil
            changes.append(.removeRecord(.sent, name: device.name))
        }
    }

    private mutating func remove(
        from device: DeviceID, _ changes: inout [StoreChange], where isGone: (Entry) -> Bool
    ) {
        guard var box = boxes[device], box.entries.contains(where: isGone) else { return }
        for entry in box.entries where isGone(entry) {
            changes.append(.removeRecord(.letter, name: Self.name(device, entry.sequence)))
            box.count(entry, -1)
            count(-entry.size, of: entry.from)
            guard entry.parcel != 0, let parcel = parcels[entry.parcel] else { continue }
            parcels[entry.parcel]?.count -= 1
            guard parcel.count == 1 else { continue }
            parcels[entry.parcel] = nil
            count(-parcel.size, of: parcel.from)
            changes.append(.removeRecord(.parcel, name: DeviceID(entry.parcel).name))
        }
        box.entries.removeAll(where: isGone)
        boxes[device] = box
        guard box.entries.isEmpty else { return }
        // Numbers are never used twice, also when nothing is left that shows them.
        var value: [UInt8] = []
        value.append(bigEndian: box.last)
        changes.append(.putRecord(RecordRow(kind: .mailbox, name: device.name, value: value)))
    }

    // MARK: Blobs

    package mutating func withBlobs<Result, Failure: Error>(
        _ body: (inout BlobShelf) throws(Failure) -> Result
    ) throws(Failure) -> Result { try body(&blobs) }
}
