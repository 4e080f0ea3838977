// Mailboxes of devices, whose entries are numbered and kept until the device acknowledges them, and blobs. The store
// holds the contents; memory holds the counts. A device has a mailbox from its account's list on, also before it has been
// online: a message is stored for all its recipients or for none, and one device that never comes would stop it for all.
// What waits for a device that has been away for days makes room for what comes, the oldest first. An entry in its place
// tells the device how much was dropped.
//
//     mailboxEntry      DEVICE SEQUENCE   -> a mailbox entry     16 hexadecimal digits each, so that rows are in order
//     mailbox           DEVICE            -> the highest number of an emptied mailbox (8)
//     sent              DEVICE            -> the device's last ids, the first bytes of their SHA-256 (8 each)
//     sharedCiphertext  NUMBER            -> the ciphertext that several entries share
//     blob              ID                -> owner (2 + n), bytes

package import Envelope
package import Protection
package import StorePort

/// The mailboxes of all devices, and the blobs.
package struct Mailboxes {
    /// Ours: entries and bytes of one mailbox, and the part of one sender: no single account can fill a mailbox.
    static let boxLimit = 1000
    static let boxBytes = 1 << 20
    static let senderLimit = 250
    static let senderBoxBytes = 256 << 10
    /// Ours: waiting registrations of one account, and bytes of one.
    package static let registrationLimit = 4
    package static let registrationBytes = 4096
    /// Ours: bytes of all mailboxes, and the part of one sender.
    static let totalBytes = 256 << 20
    static let senderBytes = 8 << 20
    /// Ours: recipient devices of one message, bytes of an id, and bytes of one recipient's own part.
    package static let recipientLimit = 100
    package static let idLimit = 128
    package static let contentLimit = 64 << 10
    /// Ours: bytes of the ciphertext that all recipients share.
    package static let bodyLimit = 256 << 10
    /// Ours: entries of one answer, and their bytes.
    static let pageLimit = 50
    static let pageBytes = 512 << 10
    /// Ours: how long an entry is kept; a device away for longer is taken as abandoned. In milliseconds.
    package static let life: Int64 = 30 * 86_400_000
    /// Ours: a device that has left an entry for so long is away, and what waits for it makes room for what comes, the oldest
    /// first. Until then a full mailbox refuses messages, and they wait at their senders. In milliseconds.
    package static let awayTime: Int64 = 3 * 86_400_000
    /// Ours: how long an entry of the kind ``MailboxEntry/Kind/lost`` is kept, in milliseconds, and how many of one mailbox.
    static let lostLife: Int64 = 365 * 86_400_000
    static let lostLimit = 64
    /// Ours: how many of a device's last ids are kept, so that a repeated call has no effect.
    static let idMemory = 128

    /// Ours: how often mailboxes are checked for expired entries, in nanoseconds.
    private static let pruneInterval: Int64 = 60_000_000_000

    private struct Entry {
        package var sequence: UInt64
        package var at: Int64
        package var size: Int
        package var from: AccountID
        package var device: DeviceID
        package var kind: MailboxEntry.Kind
        package var sharedCiphertext: UInt64
        /// See ``MailboxEntry/lostCount``.
        package var lost = 0

        /// Whether it makes room for others.
        var isMovable: Bool { kind != .registration && kind != .lost }
        func isExpired(_ now: Int64) -> Bool { at + (kind == .lost ? Mailboxes.lostLife : Mailboxes.life) < now }
    }

    /// The part of a mailbox that one sender uses.
    private struct Share: Equatable {
        package var entries = 0
        package var registrations = 0
        package var bytes = 0

        package mutating func count(_ entry: Entry, _ sign: Int) {
            if entry.kind == .registration { registrations += sign } else { entries += sign }
            bytes += sign * entry.size
        }
    }

    private struct Box {
        package var last: UInt64 = 0
        package var entries: [Entry] = []
        package var bytes = 0
        package var shares: [AccountID: Share] = [:]

        /// Raises the highest number that was used, to that of a stored row.
        mutating func raise(to row: RecordRow) {
            last = max(last, row.value.reduce(0) { $0 << 8 | UInt64($1) })
        }

        package mutating func add(_ entry: Entry) {
            entries.append(entry)
            last = max(last, entry.sequence)
            count(entry, 1)
        }

        /// When the oldest entry has come; nil if there is none. One that stands for dropped messages has their time.
        var oldest: Int64? { entries.lazy.map(\.at).min() }

        /// The sender with the largest part of a full mailbox that has something to drop.
        func largestSender(isByBytes: Bool) -> AccountID? {
            let movable = Set(entries.lazy.filter(\.isMovable).map(\.from))
            return shares.filter { movable.contains($0.key) }.max { left, right in
                let (one, other) =
                    isByBytes ? (left.value.bytes, right.value.bytes) : (left.value.entries, right.value.entries)
                return (one, right.key) < (other, left.key)
            }?.key
        }

        package mutating func count(_ entry: Entry, _ sign: Int) {
            bytes += sign * entry.size
            shares[entry.from, default: Share()].count(entry, sign)
            if shares[entry.from] == Share() { shares[entry.from] = nil }
        }
    }

    private var boxes: [DeviceID: Box] = [:]
    /// A number that no mailbox has reached; new entries have higher ones.
    private let floor: UInt64
    private var sharedCiphertexts: [UInt64: (count: Int, size: Int, from: AccountID)] = [:]
    private var lastSharedCiphertext: UInt64 = 0
    private var bytes = 0
    /// The bytes of each sender.
    private var sizes: [AccountID: Int] = [:]
    private var sent: [DeviceID: [UInt64]] = [:]
    /// When entries are next checked for their age, in monotonic nanoseconds.
    private var prunesAt: Int64 = 0
    package private(set) var blobs: PublishedBlobs
    package private(set) var pushTokens: PushTokens

    /// - Parameter floor: the store's highest number of a delivery. It leaps when an older state of the store is accepted:
    ///   devices may have fetched entries with numbers that this state does not know, and ask for those behind them only.
    /// - Throws: ``StoreError/corrupt(_:)``.
    package init(store: any Store, above floor: UInt64) throws(StoreError) {
        self.floor = floor
        blobs = try PublishedBlobs(store: store)
        pushTokens = try PushTokens(store: store)
        for row in try store.records(.mailbox) {
            guard let device = Self.device(row.name) else { throw Self.damaged }
            boxes[device, default: Box()].raise(to: row)
        }
        for row in try store.records(.mailboxEntry) {
            guard let (device, sequence) = Self.entry(row.name), let mailboxEntry = try? MailboxEntry(row.value) else {
                throw Self.damaged
            }
            add(mailboxEntry, sequence, to: device)
        }
        for row in try store.records(.sharedCiphertext) {
            guard let number = UInt64(row.name, radix: 16), let sharedCiphertext = sharedCiphertexts[number] else {
                continue
            }
            sharedCiphertexts[number]?.size = row.value.count
            count(row.value.count, of: sharedCiphertext.from)
            lastSharedCiphertext = max(lastSharedCiphertext, number)
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
        "A mailbox entry in the store is damaged. Bring back a backup: pawl restore FILE.")

    static func device(_ name: String) -> DeviceID? { UInt64(name, radix: 16).map(DeviceID.init) }

    /// The parts of ``name(_:_:)``; nil if it is no such name.
    private static func entry(_ name: String) -> (device: DeviceID, sequence: UInt64)? {
        let parts = name.split(separator: " ").map(String.init)
        guard parts.count == 2, let device = device(parts[0]), let sequence = UInt64(parts[1], radix: 16) else {
            return nil
        }
        return (device, sequence)
    }

    private static func name(_ device: DeviceID, _ sequence: UInt64) -> String {
        device.name + " " + DeviceID(sequence).name
    }

    private mutating func add(_ mailboxEntry: MailboxEntry, _ sequence: UInt64, to device: DeviceID) {
        let entry = Entry(
            sequence: sequence, at: mailboxEntry.at, size: mailboxEntry.bytes.count, from: mailboxEntry.from,
            device: mailboxEntry.device, kind: mailboxEntry.kind, sharedCiphertext: mailboxEntry.sharedCiphertext,
            lost: mailboxEntry.lostCount)
        boxes[device, default: Box()].add(entry)
        count(entry.size, of: mailboxEntry.from)
        if mailboxEntry.sharedCiphertext != 0 {
            sharedCiphertexts[mailboxEntry.sharedCiphertext, default: (0, 0, mailboxEntry.from)].count += 1
        }
    }

    private mutating func count(_ size: Int, of account: AccountID) {
        bytes += size
        let left = (sizes[account] ?? 0) + size
        sizes[account] = left == 0 ? nil : left
    }

    // MARK: Rollback

    /// Reloads one record after a change of it was not committed. Reads this record only.
    package mutating func restore(_ kind: RecordKind, name: String, from store: any Store) {
        let row: RecordRow?
        do { row = try store.record(kind, name: name) } catch { return }
        switch kind {
        case .mailboxEntry:
            guard let (device, sequence) = Self.entry(name) else { return }
            takeOut(sequence, of: device)
            if let row, let mailboxEntry = try? MailboxEntry(row.value) { add(mailboxEntry, sequence, to: device) }
            boxes[device]?.entries.sort { $0.sequence < $1.sequence }
        case .sharedCiphertext:
            guard let number = UInt64(name, radix: 16), let sharedCiphertext = sharedCiphertexts[number] else { return }
            count((row?.value.count ?? 0) - sharedCiphertext.size, of: sharedCiphertext.from)
            sharedCiphertexts[number]?.size = row?.value.count ?? 0
        case .sent:
            guard let device = Self.device(name) else { return }
            sent[device] = row.map { Self.digests($0.value) }
        case .blob: blobs.restore(name, row?.value)
        case .pushToken: pushTokens.restore(name, row?.value)
        case .mailbox:
            // Numbers of a mailbox only rise, also if the mailbox was removed from memory.
            if let device = Self.device(name), let row { boxes[device, default: Box()].raise(to: row) }
        default: break
        }
    }

    /// Removes one entry from memory and from the counts.
    private mutating func takeOut(_ sequence: UInt64, of device: DeviceID) {
        guard var box = boxes[device], let index = box.entries.firstIndex(where: { $0.sequence == sequence }) else {
            return
        }
        let entry = box.entries.remove(at: index)
        box.count(entry, -1)
        boxes[device] = box
        _ = uncount(entry)
    }

    /// Takes an entry that its box does not hold any more out of the totals.
    ///
    /// - Returns: whether no entry uses its shared ciphertext any more.
    private mutating func uncount(_ entry: Entry) -> Bool {
        count(-entry.size, of: entry.from)
        guard entry.sharedCiphertext != 0, let sharedCiphertext = sharedCiphertexts[entry.sharedCiphertext] else {
            return false
        }
        sharedCiphertexts[entry.sharedCiphertext]?.count -= 1
        guard sharedCiphertext.count == 1 else { return false }
        sharedCiphertexts[entry.sharedCiphertext] = nil
        count(-sharedCiphertext.size, of: sharedCiphertext.from)
        return true
    }

    // MARK: Posting

    /// Whether a device has used this id lately.
    package func isRepeated(_ id: String, by device: DeviceID) -> Bool {
        sent[device]?.contains(UInt64(digestOf: id)) == true
    }

    /// Stores the id of a call, in the transaction that stores its entries.
    package mutating func note(_ id: String, by device: DeviceID, _ changes: inout [StoreChange]) {
        let ids = (sent[device] ?? []).suffix(Self.idMemory - 1) + [UInt64(digestOf: id)]
        sent[device] = Array(ids)
        var value: [UInt8] = []
        for id in ids { value.append(bigEndian: id) }
        changes.append(.putRecord(RecordRow(kind: .sent, name: device.name, value: value)))
    }

    /// Adds an entry to each mailbox, or to none. A receipt is left out where it would take the place of a message.
    ///
    /// - Parameters:
    ///   - entries: of one sender, each for another device, all with the time that it is now.
    ///   - body: the ciphertext that they share; often empty.
    package mutating func post(
        _ entries: [(device: DeviceID, mailboxEntry: MailboxEntry)], body: [UInt8], _ changes: inout [StoreChange]
    ) throws(MailRefusal) {
        guard let (sender, now) = entries.first.map({ ($0.mailboxEntry.from, $0.mailboxEntry.at) }) else { return }
        // Nothing is dropped for an entry that is refused.
        for (device, mailboxEntry) in entries {
            guard let box = boxes[device], !hasRoom(for: mailboxEntry, in: box) else { continue }
            let registrations = box.shares[sender]?.registrations ?? 0
            guard isAway(box, now), mailboxEntry.kind != .registration || registrations < Self.registrationLimit else {
                throw .full
            }
        }
        let size = entries.reduce(body.count) { $0 + $1.mailboxEntry.bytes.count }
        let (ofSender, ofAll) = ((sizes[sender] ?? 0) + size - Self.senderBytes, bytes + size - Self.totalBytes)
        var dropped = try victims(ofSender, now) { $0.from == sender }
        dropped.merge(try victims(ofAll, now) { _ in true }) { $0.union($1) }
        var accepted: [(device: DeviceID, mailboxEntry: MailboxEntry)] = []
        for (device, mailboxEntry) in entries
        where makeRoom(for: mailboxEntry, in: device, &changes) { accepted.append((device, mailboxEntry)) }
        for (device, sequences) in dropped.sorted(by: { $0.key < $1.key }) {
            drop(from: device, &changes) { sequences.contains($0.sequence) }
        }
        var sharedCiphertext: UInt64 = 0
        if !body.isEmpty, !accepted.isEmpty {
            lastSharedCiphertext += 1
            sharedCiphertext = lastSharedCiphertext
            sharedCiphertexts[sharedCiphertext] = (0, body.count, sender)
            count(body.count, of: sender)
            changes.append(
                .putRecord(RecordRow(kind: .sharedCiphertext, name: DeviceID(sharedCiphertext).name, value: body)))
        }
        for (device, mailboxEntry) in accepted {
            var mailboxEntry = mailboxEntry
            mailboxEntry.sharedCiphertext = sharedCiphertext
            let sequence = max(boxes[device]?.last ?? 0, floor) + 1
            add(mailboxEntry, sequence, to: device)
            changes.append(
                .putRecord(RecordRow(kind: .mailboxEntry, name: Self.name(device, sequence), value: mailboxEntry.bytes))
            )
        }
    }

    // MARK: Room

    private func hasRoom(for mailboxEntry: MailboxEntry, in box: Box) -> Bool {
        let (share, size) = (box.shares[mailboxEntry.from] ?? Share(), mailboxEntry.bytes.count)
        let hasPlace =
            mailboxEntry.kind == .registration
            ? share.registrations < Self.registrationLimit : share.entries < Self.senderLimit
        return hasPlace && box.entries.count < Self.boxLimit && box.bytes + size <= Self.boxBytes
            && share.bytes + size <= Self.senderBoxBytes
    }

    /// Whether a device has not been there for so long that what waits for it makes room.
    private func isAway(_ box: Box, _ now: Int64) -> Bool { box.oldest.map { $0 + Self.awayTime < now } ?? false }

    /// Chooses entries of devices that are away, so that some bytes become free: those of the sender with the most bytes, the
    /// oldest first.
    private func victims(
        _ size: Int, _ now: Int64, where isCandidate: (Entry) -> Bool
    ) throws(MailRefusal) -> [DeviceID: Set<UInt64>] {
        guard size > 0 else { return [:] }
        var candidates: [(share: Int, entry: Entry, device: DeviceID)] = []
        for (device, box) in boxes where isAway(box, now) {
            for entry in box.entries where entry.isMovable && isCandidate(entry) {
                candidates.append((sizes[entry.from] ?? 0, entry, device))
            }
        }
        candidates.sort { ($1.share, $0.entry.at, $0.device) < ($0.share, $1.entry.at, $1.device) }
        var (left, victims, uses) = (size, [DeviceID: Set<UInt64>](), [UInt64: Int]())
        for (_, entry, device) in candidates {
            guard left > 0 else { break }
            victims[device, default: []].insert(entry.sequence)
            left -= entry.size
            // A shared ciphertext goes with the last entry that uses it.
            uses[entry.sharedCiphertext, default: 0] += 1
            if let shared = sharedCiphertexts[entry.sharedCiphertext], shared.count == uses[entry.sharedCiphertext] {
                left -= shared.size
            }
        }
        guard left <= 0 else { throw .full }
        return victims
    }

    /// Drops entries of a mailbox until another one fits: the sender's oldest, or if others fill the mailbox, the oldest of
    /// the sender that has most of it.
    ///
    /// - Returns: whether it fits now.
    private mutating func makeRoom(
        for mailboxEntry: MailboxEntry, in device: DeviceID, _ changes: inout [StoreChange]
    ) -> Bool {
        let sender = mailboxEntry.from
        while let box = boxes[device], !hasRoom(for: mailboxEntry, in: box) {
            let (share, size) = (box.shares[sender] ?? Share(), mailboxEntry.bytes.count)
            let isOwn =
                mailboxEntry.kind != .registration && share.entries >= Self.senderLimit
                || share.bytes + size > Self.senderBoxBytes
            let loser = isOwn ? sender : box.largestSender(isByBytes: box.entries.count < Self.boxLimit)
            let candidates = box.entries.lazy.filter { $0.isMovable && $0.from == loser }
            guard
                let victim = candidates.first(where: \.kind.isReceipt)
                    ?? (mailboxEntry.kind.isReceipt ? nil : candidates.first)
            else {
                return false
            }
            drop(from: device, &changes) { $0.sequence == victim.sequence }
        }
        return true
    }

    /// Removes entries that the device has not had. In place of the last message of each sending device it finds how many
    /// there were.
    private mutating func drop(
        from device: DeviceID, _ changes: inout [StoreChange], where isDropped: (Entry) -> Bool
    ) {
        var notices: [DeviceID: (sequence: UInt64, count: Int, at: Int64, from: AccountID)] = [:]
        var earlier: Set<UInt64> = []
        for entry in boxes[device]?.entries ?? [] where entry.kind == .message && isDropped(entry) {
            let before = notices[entry.device]
            notices[entry.device] = (
                entry.sequence, (before?.count ?? 0) + 1, min(before?.at ?? .max, entry.at), entry.from
            )
        }
        for entry in boxes[device]?.entries ?? [] where entry.kind == .lost {
            guard let notice = notices[entry.device], notice.from == entry.from else { continue }
            notices[entry.device]?.count += entry.lost
            notices[entry.device]?.at = min(notice.at, entry.at)
            notices[entry.device]?.sequence = max(notice.sequence, entry.sequence)
            earlier.insert(entry.sequence)
        }
        remove(from: device, &changes) { isDropped($0) || earlier.contains($0.sequence) }
        for (sender, notice) in notices.sorted(by: { $0.value.sequence < $1.value.sequence }) {
            let lost = MailboxEntry.lost(notice.count, at: notice.at, from: notice.from, device: sender)
            add(lost, notice.sequence, to: device)
            changes.append(
                .putRecord(RecordRow(kind: .mailboxEntry, name: Self.name(device, notice.sequence), value: lost.bytes)))
        }
        boxes[device]?.entries.sort { $0.sequence < $1.sequence }
        let all = boxes[device]?.entries.filter { $0.kind == .lost }.map(\.sequence) ?? []
        if all.count > Self.lostLimit {
            let oldest = Set(all.prefix(all.count - Self.lostLimit))
            remove(from: device, &changes) { oldest.contains($0.sequence) }
        }
    }

    // MARK: Fetching

    /// The entries after a number, in order, up to the first uncommitted one.
    package func entries(
        for device: DeviceID, after: UInt64, _ store: any Store
    ) throws(StoreError) -> (entries: [(sequence: UInt64, mailboxEntry: MailboxEntry, body: [UInt8])], more: Bool) {
        var found: [(sequence: UInt64, mailboxEntry: MailboxEntry, body: [UInt8])] = []
        var size = 0
        for entry in boxes[device]?.entries ?? [] where entry.sequence > after {
            size += entry.size + (sharedCiphertexts[entry.sharedCiphertext]?.size ?? 0)
            guard found.count < Self.pageLimit, size <= Self.pageBytes || found.isEmpty,
                let row = try store.record(.mailboxEntry, name: Self.name(device, entry.sequence)),
                let mailboxEntry = try? MailboxEntry(row.value)
            else { return (found, true) }
            // The row may be that of a message in whose place another entry is being committed.
            guard mailboxEntry.kind == entry.kind else { return (found, true) }
            let body =
                entry.sharedCiphertext == 0
                ? [] : try store.record(.sharedCiphertext, name: DeviceID(entry.sharedCiphertext).name)?.value ?? []
            found.append((entry.sequence, mailboxEntry, body))
        }
        return (found, false)
    }

    /// Removes the entries that a device has acknowledged.
    package mutating func acknowledge(_ through: UInt64, by device: DeviceID, _ changes: inout [StoreChange]) {
        remove(from: device, &changes) { $0.sequence <= through }
    }

    /// Prunes if the last time was a minute ago.
    ///
    /// - Parameter isThere: whether a device is still published, or in the list of its account.
    package mutating func pruneIfDue(
        _ now: Timestamp, _ changes: inout [StoreChange], isThere: (DeviceID) -> Bool
    ) {
        guard now.monotonic >= prunesAt else { return }
        prunesAt = now.monotonic + Self.pruneInterval
        prune(now: now.wall, &changes, isThere: isThere)
    }

    /// Drops expired entries, and removes all entries for devices that no longer exist.
    private mutating func prune(now: Int64, _ changes: inout [StoreChange], isThere: (DeviceID) -> Bool) {
        for (device, box) in boxes {
            if !isThere(device) {
                remove(device, &changes)
            } else if box.entries.contains(where: { $0.isExpired(now) }) {
                remove(from: device, &changes) { $0.kind == .lost && $0.isExpired(now) }
                drop(from: device, &changes) { $0.kind != .lost && $0.isExpired(now) }
            }
        }
        pushTokens.prune(&changes, isThere: isThere)
        for device in sent.keys where !isThere(device) {
            sent[device] = nil
            changes.append(.removeRecord(.sent, name: device.name))
        }
    }

    /// Removes all that waits for a device, its last ids, and its push token.
    package mutating func remove(_ device: DeviceID, _ changes: inout [StoreChange]) {
        if boxes[device] != nil {
            remove(from: device, &changes) { _ in true }
            changes.append(.removeRecord(.mailbox, name: device.name))
            boxes[device] = nil
        }
        if sent.removeValue(forKey: device) != nil { changes.append(.removeRecord(.sent, name: device.name)) }
        pushTokens.set(nil, of: device, &changes)
    }

    private mutating func remove(
        from device: DeviceID, _ changes: inout [StoreChange], where isRemoved: (Entry) -> Bool
    ) {
        guard var box = boxes[device], box.entries.contains(where: isRemoved) else { return }
        for entry in box.entries where isRemoved(entry) {
            changes.append(.removeRecord(.mailboxEntry, name: Self.name(device, entry.sequence)))
            box.count(entry, -1)
            guard uncount(entry) else { continue }
            changes.append(.removeRecord(.sharedCiphertext, name: DeviceID(entry.sharedCiphertext).name))
        }
        box.entries.removeAll(where: isRemoved)
        boxes[device] = box
        guard box.entries.isEmpty else { return }
        // Numbers are never used twice, so the last one is stored when the mailbox is empty.
        var value: [UInt8] = []
        value.append(bigEndian: box.last)
        changes.append(.putRecord(RecordRow(kind: .mailbox, name: device.name, value: value)))
    }

    // MARK: Push tokens

    /// Sets or removes the push token of a device.
    package mutating func setPushToken(_ token: String?, of device: DeviceID, _ changes: inout [StoreChange]) {
        pushTokens.set(token, of: device, &changes)
    }

    /// Devices whose last entry has come at a time or later.
    package func devices(withEntriesSince time: Int64) -> [DeviceID] {
        boxes.filter { ($0.value.entries.last?.at ?? .min) >= time }.keys.sorted()
    }

    // MARK: Blobs

    package mutating func withBlobs<Result, Failure: Error>(
        _ body: (inout PublishedBlobs) throws(Failure) -> Result
    ) throws(Failure) -> Result { try body(&blobs) }
}
