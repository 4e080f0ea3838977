// The directory of a front gateway: the public keys of people's own devices. It belongs to the commit thread; what
// connections see of it is ``DirectoryCache``.

package import Devices
package import DoubleRatchet
package import Envelope
package import Protection
package import StorePort
import Synchronization

/// The published devices of one account.
package struct DirectoryAccount {
    package var deviceList: DeviceList
    package var devices: [DeviceID: PublishedDevice] = [:]
    /// The one-time prekeys of the devices that were handed out last.
    var handOuts: [DeviceID: HandOuts] = [:]
    /// Whether an operator has blocked the account's devices.
    package var isBlocked = false
    /// Whether a device has tried to publish a fork of the list. The first list stays until an operator has removed it.
    package var isForked = false
    /// When a client last proved a device, in milliseconds since 1970.
    package var provenAt: Int64
}

extension DirectoryAccount {
    /// Whether a list has the first key of the account's list, and is neither an earlier nor a later version of it.
    fileprivate func isFork(_ list: DeviceList) -> Bool {
        list.root == deviceList.root && !list.continues(deviceList) && !deviceList.continues(list)
    }

    fileprivate mutating func removeDevice(_ id: DeviceID) {
        devices[id] = nil
        handOuts[id] = nil
    }

    /// Reads a row of ``RecordKind/directoryAccount``: blocked (bit 0) and forked (bit 1), proven at (8), device list.
    fileprivate init(row: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(row)
        let flags = try cursor.byte()
        (isBlocked, isForked) = (flags & 1 != 0, flags & 2 != 0)
        provenAt = Int64(bitPattern: try cursor.uint64())
        deviceList = try DeviceList(cursor.rest())
    }
}

/// What a gateway knows of published devices.
package struct Directory {
    /// Ours: accounts with devices; some 8 KB each.
    static let accountLimit = 50_000

    package private(set) var accounts: [AccountID: DirectoryAccount] = [:]
    /// The account of each published device, blocked accounts included.
    private var owners: [DeviceID: AccountID] = [:]
    /// The account with a login whose list has a device, also before the device has proven itself.
    private var listers: [DeviceID: AccountID] = [:]

    /// - Throws: ``StoreError/corrupt(_:)``.
    package init(store: any Store) throws(StoreError) {
        do {
            for row in try store.records(.directoryAccount) {
                replace(AccountID(text: row.name), by: try DirectoryAccount(row: row.value))
            }
            for row in try store.records(.directoryDevice) {
                let (account, device, handOuts) = try Self.published(row)
                guard accounts[account] != nil else { continue }
                accounts[account]?.devices[device.id] = device
                accounts[account]?.handOuts[device.id] = handOuts
                owners[device.id] = account
            }
        } catch let error as StoreError {
            throw error
        } catch {
            throw .corrupt("A published device in the store is damaged. Bring back a backup: pawl restore FILE.")
        }
    }

    /// Reloads an account after a change of it was not committed. Reads the rows of this account only.
    ///
    /// - Parameter kind: the kind of the record that was to be changed: an account or a device.
    package mutating func restore(_ kind: RecordKind, name: String, from store: any Store) {
        let account: AccountID
        if kind == .directoryAccount {
            account = AccountID(text: name)
        } else {
            guard let id = UInt64(name, radix: 16), let owner = owners[DeviceID(id)] else { return }
            account = owner
        }
        let row: RecordRow?
        do { row = try store.record(.directoryAccount, name: account.text) } catch { return }
        guard let row, var entry = try? DirectoryAccount(row: row.value) else { return replace(account, by: nil) }
        // Every published device is in the device list of its account.
        for listed in entry.deviceList.current {
            guard let stored = try? store.record(.directoryDevice, name: Self.name(listed.id)),
                let (owner, device, handOuts) = try? Self.published(stored), owner == account
            else { continue }
            entry.devices[device.id] = device
            entry.handOuts[device.id] = handOuts
        }
        replace(account, by: entry)
    }

    /// Why the directory refuses a request, as a text for the person.
    package struct Refusal: Error {
        package var reason: String
        /// Whether it is ``fork``.
        package private(set) var isFork = false
        package init(_ reason: String) { self.reason = reason }

        /// A list that is neither an earlier nor a later version of the account's, and has the same first key.
        package static let fork = {
            var fork = Refusal(
                "another device of this account has published another version of its device list, and neither continues "
                    + "the other: one of the devices may be stolen. Ask the operator to remove the published devices "
                    + "(pawl devices revoke), and publish from your own device first")
            fork.isFork = true
            return fork
        }()
    }

    /// Notes that a device has tried to publish a fork of its account's list.
    ///
    /// - Returns: false if that was noted before.
    package mutating func noteFork(of account: AccountID, _ changes: inout [StoreChange]) -> Bool {
        guard var entry = accounts[account], !entry.isForked else { return false }
        entry.isForked = true
        put(entry, account, &changes)
        return true
    }

    /// Publishes a proven device. The caller has checked that the id is not that of a hosted device.
    ///
    /// - Returns: whether the list replaces an unrelated one: the person has started again.
    package mutating func publish(
        _ deviceList: DeviceList, _ device: PublishedDevice, of account: AccountID, now: Timestamp,
        _ changes: inout [StoreChange]
    ) throws(Refusal) -> Bool {
        var startsAgain = false
        var entry = accounts[account]
        if let known = entry {
            guard !known.isBlocked else { throw Refusal("an operator has blocked the devices of this account") }
            if deviceList.continues(known.deviceList) {
                entry?.deviceList = deviceList
            } else if !known.deviceList.continues(deviceList) {
                guard !known.isFork(deviceList) else { throw Refusal.fork }
                // Only the account's login authorises this; its peers see that the keys have changed.
                entry = nil
                startsAgain = true
                for id in known.devices.keys { changes.append(.removeRecord(.directoryDevice, name: Self.name(id))) }
                changes.append(PublishedConfigs.removal(of: account))
            }
        } else if accounts.count >= Self.accountLimit {
            throw Refusal("the directory of this gateway is full")
        }
        var new = entry ?? DirectoryAccount(deviceList: deviceList, provenAt: now.wall)
        guard new.deviceList.identity(of: device.id) != nil else {
            throw Refusal("this device has been removed from the list of its account")
        }
        try demandOwnDevices(added(by: deviceList, to: account) + [device.id], of: account)
        if let owner = owner(of: device.id), owner != account {
            // An owner without a login is the same connection before it logged in. A blocked account loses the id.
            remove(owner.isVerified ? device.id : nil, of: owner, &changes)
        }
        for id in new.devices.keys where new.deviceList.identity(of: id) == nil {
            new.removeDevice(id)
            changes.append(.removeRecord(.directoryDevice, name: Self.name(id)))
        }
        new.provenAt = now.wall
        var device = device
        // A device that proves itself again keeps its prekeys here, and brings back none that was handed out.
        if device.oneTime.isEmpty { device.oneTime = new.devices[device.id]?.oneTime ?? [] }
        if let handOuts = new.handOuts[device.id] { device.oneTime.removeAll { handOuts.contains($0) } }
        new.devices[device.id] = device
        put(new, account, &changes)
        changes.append(row(device, account))
        return startsAgain
    }

    private func added(by list: DeviceList, to account: AccountID) -> [DeviceID] {
        list.current.map(\.id).filter { accounts[account]?.deviceList.identity(of: $0) == nil }
    }

    /// - Throws: ``Refusal`` if one of the devices is another account's: the account could take over its mailbox. Devices of
    ///   blocked accounts and of accounts without a login can be taken.
    private func demandOwnDevices(_ devices: [DeviceID], of account: AccountID) throws(Refusal) {
        let isForeign = devices.contains { device in
            guard let owner = lister(of: device), owner != account else { return false }
            return owner.isVerified && accounts[owner]?.isBlocked != true
        }
        guard !isForeign else { throw Refusal("this device belongs to another account") }
    }

    /// The account that has published a device or has it in its list, also if it is blocked.
    package func lister(of id: DeviceID) -> AccountID? { owners[id] ?? listers[id] }

    /// The account that has published a device, also if it is blocked.
    package func owner(of id: DeviceID) -> AccountID? { owners[id] }

    /// Whether an account that is not blocked has published a device.
    package func isInUse(_ id: DeviceID) -> Bool { owners[id].map { accounts[$0]?.isBlocked == false } ?? false }

    /// Adds one-time prekeys.
    ///
    /// - Returns: how many there are then.
    package mutating func replenish(
        _ keys: [OneTimePreKey.Public], of id: DeviceID, _ account: AccountID, _ changes: inout [StoreChange]
    ) throws(Refusal) -> Int {
        guard var device = accounts[account]?.devices[id] else { throw Refusal("this device is not published") }
        // A call that is repeated because its answer was lost brings back no prekey that was handed out meanwhile.
        let handOuts = accounts[account]?.handOuts[id] ?? HandOuts()
        let new = keys.filter { !handOuts.contains($0) }
        // Of two prekeys with one number the device has the later one: it was set back to an earlier state.
        let numbers = Set(new.map(\.id))
        device.oneTime.removeAll { numbers.contains($0.id) }
        device.oneTime += new
        device.oneTime = Array(device.oneTime.suffix(PublishedDevice.oneTimeLimit))
        accounts[account]?.devices[id] = device
        changes.append(row(device, account))
        return device.oneTime.count
    }

    /// Stores a later version of an account's list.
    package mutating func update(
        _ deviceList: DeviceList, of account: AccountID, _ changes: inout [StoreChange]
    ) throws(Refusal) {
        guard var entry = accounts[account], deviceList.continues(entry.deviceList) else {
            if accounts[account]?.isFork(deviceList) == true { throw Refusal.fork }
            throw Refusal("this is not a later version of the account's list")
        }
        try demandOwnDevices(added(by: deviceList, to: account), of: account)
        entry.deviceList = deviceList
        for id in entry.devices.keys where deviceList.identity(of: id) == nil {
            entry.removeDevice(id)
            changes.append(.removeRecord(.directoryDevice, name: Self.name(id)))
        }
        put(entry, account, &changes)
    }

    /// The keys to begin sessions with. One one-time prekey of each device is used up, unless the asking account has had
    /// its share of them; see ``HandOuts``.
    ///
    /// - Returns: nil if the account has no usable devices; else its entry, and the devices that need more prekeys.
    package mutating func bundles(
        of account: AccountID, for asker: AccountID, now: Timestamp, _ changes: inout [StoreChange]
    ) -> (entry: DirectoryEntry, low: [DeviceID])? {
        guard let entry = accounts[account], !entry.isBlocked, !entry.devices.isEmpty else { return nil }
        var handedOut: [PublishedDevice] = []
        var low: [DeviceID] = []
        for listed in entry.deviceList.current {
            guard var device = entry.devices[listed.id] else { continue }
            var handOuts = entry.handOuts[listed.id] ?? HandOuts()
            var one: [OneTimePreKey.Public] = []
            if !device.oneTime.isEmpty, handOuts.allows(asker, now) {
                let key = device.oneTime.removeFirst()
                handOuts.append(key, for: asker, now)
                accounts[account]?.devices[listed.id] = device
                accounts[account]?.handOuts[listed.id] = handOuts
                changes.append(row(device, account))
                one = [key]
            }
            if device.oneTime.count < PublishedDevice.lowWatermark { low.append(listed.id) }
            handedOut.append(PublishedDevice(id: listed.id, bundle: device.bundle, oneTime: one))
        }
        return (.capable(account: account.name, entry.deviceList, handedOut), low)
    }

    // MARK: Operator's acts

    package mutating func setBlocked(_ isBlocked: Bool, _ account: AccountID, _ changes: inout [StoreChange]) {
        guard var entry = accounts[account] else { return }
        entry.isBlocked = isBlocked
        put(entry, account, &changes)
    }

    /// Removes a device, or all of an account, from the directory. The account's own list still has it.
    package mutating func remove(_ id: DeviceID?, of account: AccountID, _ changes: inout [StoreChange]) {
        guard var entry = accounts[account] else { return }
        for device in entry.devices.keys where id == nil || id == device {
            entry.removeDevice(device)
            changes.append(.removeRecord(.directoryDevice, name: Self.name(device)))
        }
        guard entry.devices.isEmpty, !entry.isBlocked else { return put(entry, account, &changes) }
        replace(account, by: nil)
        changes.append(.removeRecord(.directoryAccount, name: account.text))
        changes.append(PublishedConfigs.removal(of: account))
    }

    // MARK: Rows

    private mutating func replace(_ account: AccountID, by entry: DirectoryAccount?) {
        for id in accounts[account]?.devices.keys ?? [:].keys where owners[id] == account { owners[id] = nil }
        for device in accounts[account]?.deviceList.current ?? [] where listers[device.id] == account {
            listers[device.id] = nil
        }
        accounts[account] = entry
        for id in entry?.devices.keys ?? [:].keys { owners[id] = account }
        guard account.isVerified else { return }
        for device in entry?.deviceList.current ?? [] where listers[device.id] == nil { listers[device.id] = account }
    }

    private mutating func put(_ entry: DirectoryAccount, _ account: AccountID, _ changes: inout [StoreChange]) {
        replace(account, by: entry)
        var value: [UInt8] = [(entry.isBlocked ? 1 : 0) | (entry.isForked ? 2 : 0)]
        value.append(bigEndian: UInt64(bitPattern: entry.provenAt))
        value += entry.deviceList.bytes
        changes.append(.putRecord(RecordRow(kind: .directoryAccount, name: account.text, value: value)))
    }

    private func row(_ device: PublishedDevice, _ account: AccountID) -> StoreChange {
        var value: [UInt8] = []
        value.append(field: Array(account.text.utf8))
        value += device.bytes
        value += accounts[account]?.handOuts[device.id]?.bytes ?? []
        return .putRecord(RecordRow(kind: .directoryDevice, name: Self.name(device.id), value: value))
    }

    /// Reads a row of ``RecordKind/directoryDevice``: account (2 + n), device, ``HandOuts``.
    private static func published(_ row: RecordRow) throws(EnvelopeError) -> (
        account: AccountID, device: PublishedDevice, handOuts: HandOuts
    ) {
        var cursor = ByteCursor(row.value)
        let account = AccountID(text: String(decoding: try cursor.field(), as: UTF8.self))
        return (account, try PublishedDevice(&cursor), try HandOuts(&cursor))
    }

    package static func name(_ id: DeviceID) -> String { String(id.value, radix: 16) }
}

extension RecordRow {
    /// The row of a published device without its one-time prekeys, for a store that was restored to an older state:
    /// some of the prekeys have been used since.
    ///
    /// - Returns: nil if this is no readable row of a published device.
    package var withoutOneTimeKeys: RecordRow? {
        guard kind == .directoryDevice else { return nil }
        var cursor = ByteCursor(value)
        guard let account = try? cursor.field(), var device = try? PublishedDevice(&cursor) else { return nil }
        device.oneTime = []
        var output: [UInt8] = []
        output.append(field: account)
        return RecordRow(kind: kind, name: name, value: output + device.bytes + cursor.rest())
    }
}

/// The view of the directory for connections. Safe from any thread.
package final class DirectoryCache: Sendable {
    /// The devices of one account.
    package struct Entry: Sendable, Equatable {
        package var devices: [ListedDevice]
        package var published: Set<DeviceID>
        package var isBlocked: Bool
        /// See ``DirectoryAccount/isForked``.
        package var isForked: Bool
        package var provenAt: Int64
        package var oneTime: [DeviceID: Int]
    }

    private struct State {
        package var accounts: [AccountID: Entry] = [:]
        package var owners: [DeviceID: AccountID] = [:]
    }

    private let state = Mutex(State())
    private let counter = Atomic<Int>(0)

    package init() {}

    /// Whether no account is in the directory; costs one atomic load.
    package var isEmpty: Bool { counter.load(ordering: .relaxed) == 0 }

    /// Whether an account has published a device. True for a blocked account too: its history stays readable.
    ///
    /// The device id in an envelope is public and can be copied. So callers do not look up the owner of a device, but
    /// check
    /// whether the account that the backend names as sender has published it. All other envelopes are for the vault.
    ///
    /// - Parameter account: nil if the backend does not name the sender; then any account counts.
    package func publishes(_ device: DeviceID, by account: AccountID?) -> Bool {
        guard !isEmpty else { return false }
        return state.withLock { state in
            guard let account else { return state.owners[device] != nil }
            return state.accounts[account]?.published.contains(device) == true
        }
    }

    package subscript(account: AccountID) -> Entry? { state.withLock { $0.accounts[account] } }

    package var all: [(account: AccountID, entry: Entry)] {
        state.withLock { $0.accounts.map { ($0.key, $0.value) } }.sorted { $0.0 < $1.0 }
    }

    package func put(_ account: AccountID, _ known: DirectoryAccount?) {
        state.withLock { state in
            for id in state.accounts[account]?.published ?? [] where state.owners[id] == account {
                state.owners[id] = nil
            }
            guard let known else {
                state.accounts[account] = nil
                return counter.store(state.accounts.count, ordering: .relaxed)
            }
            state.accounts[account] = Entry(
                devices: known.deviceList.current, published: Set(known.devices.keys), isBlocked: known.isBlocked,
                isForked: known.isForked, provenAt: known.provenAt, oneTime: known.devices.mapValues(\.oneTime.count))
            for id in known.devices.keys { state.owners[id] = account }
            counter.store(state.accounts.count, ordering: .relaxed)
        }
    }
}
