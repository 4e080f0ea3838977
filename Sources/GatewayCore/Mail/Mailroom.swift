// Letters for devices, by number and in order until their device says that it has them, and blobs. The store holds the
// contents; in memory is what has to be counted.
//
//     letter    DEVICE SEQUENCE   -> the letter          16 hexadecimal digits each, so that rows stand in order
//     mailbox   DEVICE            -> up to which number the device has them (8)
//     parcel    NUMBER            -> what several letters have in common
//     blob      ID                -> owner (2 + n), bytes

import Envelope

/// What waits.
struct Mailroom {
    /// Ours: letters and bytes for one device, and letters of one account among them: nobody alone can fill it.
    static let boxLimit = 1000
    static let boxBytes = 1 << 20
    static let senderLimit = 250
    /// Ours: registrations of one account that wait.
    static let registrationLimit = 4
    static let registrationBytes = 4096
    /// Ours: bytes of everything that waits, of all devices.
    static let totalBytes = 64 << 20
    /// Ours: devices of one message, bytes of an id, and of one letter's own part.
    static let recipientLimit = 100
    static let idLimit = 128
    static let contentLimit = 64 << 10
    /// Ours: bytes of the part that several devices get.
    static let bodyLimit = 256 << 10
    /// Ours: letters of one answer, and their bytes.
    static let pageLimit = 50
    static let pageBytes = 512 << 10
    /// Ours: after so long nobody fetches it any more. In milliseconds.
    static let life: Int64 = 30 * 86_400_000
    /// Ours: ids that a sender's device has used, remembered so that a repeated call does nothing.
    static let idMemory = 256

    private struct Entry {
        var sequence: UInt64
        var at: Int64
        var size: Int
        var from: AccountID
        var kind: Letter.Kind
        var parcel: UInt64
    }

    private struct Box {
        var last: UInt64 = 0
        var entries: [Entry] = []
        var bytes = 0
    }

    private var boxes: [DeviceID: Box] = [:]
    private var parcels: [UInt64: (count: Int, size: Int)] = [:]
    private var lastParcel: UInt64 = 0
    private var bytes = 0
    private var used: [DeviceID: [String]] = [:]
    private(set) var blobs: BlobShelf

    /// - Throws: ``StoreError/corrupt(_:)``.
    init(store: any Store) throws(StoreError) {
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
            guard let number = UInt64(row.name, radix: 16), parcels[number] != nil else { continue }
            parcels[number]?.size = row.value.count
            bytes += row.value.count
            lastParcel = max(lastParcel, number)
        }
    }

    private static let damaged = StoreError.corrupt(
        "A letter for a device in the store is damaged. Bring back a backup: pawl restore FILE.")

    private static func device(_ name: String) -> DeviceID? { UInt64(name, radix: 16).map(DeviceID.init) }
    private static func name(_ device: DeviceID, _ sequence: UInt64) -> String {
        device.name + " " + DeviceID(sequence).name
    }

    private mutating func add(_ letter: Letter, _ sequence: UInt64, to device: DeviceID) {
        let size = letter.bytes.count
        var box = boxes[device] ?? Box()
        box.entries.append(
            Entry(
                sequence: sequence, at: letter.at, size: size, from: letter.from, kind: letter.kind,
                parcel: letter.parcel))
        box.bytes += size
        box.last = max(box.last, sequence)
        boxes[device] = box
        bytes += size
        if letter.parcel != 0 { parcels[letter.parcel, default: (0, 0)].count += 1 }
    }

    // MARK: In

    /// Whether a device of the sender has used this id lately; notes it.
    mutating func isRepeated(_ id: String, by device: DeviceID) -> Bool {
        guard used[device]?.contains(id) != true else { return true }
        if used.count > 100_000 { used.removeAll() }
        used[device, default: []].append(id)
        if used[device]?.count ?? 0 > Self.idMemory { used[device]?.removeFirst() }
        return false
    }

    mutating func forget(_ id: String, by device: DeviceID) { used[device]?.removeAll { $0 == id } }

    /// Puts a letter into each box, or into none.
    ///
    /// - Parameter body: what they have in common; often nothing.
    mutating func post(
        _ letters: [(device: DeviceID, letter: Letter)], body: [UInt8], _ changes: inout [StoreChange]
    ) throws(MailRefusal) {
        var total = bytes + body.count
        for (device, letter) in letters {
            let box = boxes[device] ?? Box()
            let mine = box.entries.count { $0.from == letter.from && $0.kind == letter.kind }
            let limit = letter.kind == .registration ? Self.registrationLimit : Self.senderLimit
            total += letter.bytes.count
            guard box.entries.count < Self.boxLimit, box.bytes + letter.bytes.count <= Self.boxBytes, mine < limit
            else { throw .full }
        }
        guard total <= Self.totalBytes else { throw .full }
        var parcel: UInt64 = 0
        if !body.isEmpty {
            lastParcel += 1
            parcel = lastParcel
            parcels[parcel] = (0, body.count)
            bytes += body.count
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
    func letters(
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
    mutating func acknowledge(_ through: UInt64, by device: DeviceID, _ changes: inout [StoreChange]) {
        remove(from: device, &changes) { $0.sequence <= through }
    }

    /// Removes what nobody has fetched in time, and what waits for devices that are no more.
    mutating func prune(now: Int64, _ changes: inout [StoreChange], isThere: (DeviceID) -> Bool) {
        for (device, box) in boxes {
            if !isThere(device) {
                remove(from: device, &changes) { _ in true }
                changes.append(.removeRecord(.mailbox, name: device.name))
                boxes[device] = nil
            } else if box.entries.first.map({ $0.at + Self.life < now }) == true {
                remove(from: device, &changes) { $0.at + Self.life < now }
            }
        }
    }

    private mutating func remove(
        from device: DeviceID, _ changes: inout [StoreChange], where isGone: (Entry) -> Bool
    ) {
        guard var box = boxes[device], box.entries.contains(where: isGone) else { return }
        for entry in box.entries where isGone(entry) {
            changes.append(.removeRecord(.letter, name: Self.name(device, entry.sequence)))
            box.bytes -= entry.size
            bytes -= entry.size
            guard entry.parcel != 0, let parcel = parcels[entry.parcel] else { continue }
            parcels[entry.parcel]?.count -= 1
            guard parcel.count == 1 else { continue }
            parcels[entry.parcel] = nil
            bytes -= parcel.size
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

    mutating func withBlobs<Result, Failure: Error>(
        _ body: (inout BlobShelf) throws(Failure) -> Result
    ) throws(Failure) -> Result { try body(&blobs) }
}
