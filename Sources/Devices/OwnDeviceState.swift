// The person's own device in a sidecar: its device list, its prekeys, and its peers.

package import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

/// The state of the person's own device, apart from sessions.
package struct OwnDeviceState {
    /// Ours: pinned peers. The list of one more peer is refused.
    static let peerLimit = 10_000
    /// Name of the record which says that a front gateway has accepted our keys.
    package static let frontRecord = "front"
    /// Name of the record that holds the number of the last room request, in decimal digits.
    private static let requestRecord = "request"
    /// Prefix of the names of records of rooms in which messages were sealed; the folded room name follows.
    package static let sealedRecord = "sealed "

    package let device: HostedDevice
    package var deviceList: DeviceList
    package var preKeys: PreKeys
    package var roomKeys: RoomKeys
    /// The account whose list is to adopt this device, as the person has chosen.
    package var joining: AccountID?
    private var lastRequest: Int64 = 0
    package private(set) var peers: [AccountID: Peer] = [:]
    /// The owner of each device that has confirmed its list itself.
    private var owners: [DeviceID: AccountID] = [:]
    /// The keys of all devices in pinned lists. Entries are removed only at the next start.
    private var identities: [DeviceID: IdentityKey] = [:]
    private let sealer: StorageSealer

    /// Reads the state from the store; creates a list of one device at the first start.
    package init(
        device: HostedDevice, sealer: StorageSealer, store: any Store, _ changes: inout [StoreChange]
    ) throws(StoreError) {
        self.device = device
        self.sealer = sealer
        preKeys = try PreKeys(sealer: sealer, rows: try store.records(.preKey))
        roomKeys = try RoomKeys(sealer: sealer, rows: try store.records(.senderKey))
        do {
            if let row = try store.record(.ownDevices, name: "") {
                deviceList = try DeviceList(row.value)
            } else {
                deviceList = DeviceList(
                    of: ListedDevice(id: device.id, identity: device.identity.publicKey), identity: device.identity)
                changes.append(.putRecord(RecordRow(kind: .ownDevices, name: "", value: deviceList.bytes)))
            }
            if let row = try store.record(.ownDevices, name: Self.requestRecord) {
                lastRequest = Int64(String(decoding: row.value, as: UTF8.self)) ?? 0
            }
            for row in try store.records(.peer) {
                add(try Peer(name: AccountID(text: row.name), bytes: row.value))
            }
        } catch let error as StoreError {
            throw error
        } catch {
            throw .corrupt("A list of devices in the store is damaged. Bring back a backup: pawl restore FILE.")
        }
    }

    /// Makes memory agree with one record of the store after a change of it was not committed. Reads this record only.
    package mutating func restore(_ kind: RecordKind, name: String, from store: any Store) {
        let row: RecordRow?
        do { row = try store.record(kind, name: name) } catch { return }
        switch kind {
        case .peer:
            let account = AccountID(text: name)
            removeOwner(account)
            peers[account] = nil
            if let row, let peer = try? Peer(name: account, bytes: row.value) { add(peer) }
        case .ownDevices:
            // Numbers of requests only rise.
            if name.isEmpty, let row, let stored = try? DeviceList(row.value) { deviceList = stored }
        case .preKey: preKeys.restore(name, row)
        case .senderKey: roomKeys.restore(name, row)
        default: break
        }
    }

    private mutating func add(_ peer: Peer) {
        peers[peer.name] = peer
        for listed in peer.deviceList.current {
            identities[listed.id] = listed.identity
            if peer.hasConfirmed(listed.id) { owners[listed.id] = peer.name }
        }
    }

    private mutating func removeOwner(_ name: AccountID) {
        for listed in peers[name]?.deviceList.current ?? [] where owners[listed.id] == name { owners[listed.id] = nil }
    }

    /// Stores a peer, in place of its earlier state.
    package mutating func put(_ peer: Peer, _ changes: inout [StoreChange]) {
        removeOwner(peer.name)
        add(peer)
        changes.append(.putRecord(RecordRow(kind: .peer, name: peer.name.text, value: peer.bytes)))
    }

    package mutating func forget(_ name: AccountID, _ changes: inout [StoreChange]) {
        removeOwner(name)
        peers[name] = nil
        changes.append(.removeRecord(.peer, name: name.text))
    }

    package mutating func put(deviceList new: DeviceList, _ changes: inout [StoreChange]) {
        deviceList = new
        changes.append(.putRecord(RecordRow(kind: .ownDevices, name: "", value: new.bytes)))
    }

    /// Returns the number of the next room request: the time in milliseconds, and higher than every earlier number.
    package mutating func nextRequest(_ now: Timestamp, _ changes: inout [StoreChange]) -> Int64 {
        lastRequest = max(now.wall, lastRequest &+ 1)
        let digits = Array(String(lastRequest).utf8)
        changes.append(.putRecord(RecordRow(kind: .ownDevices, name: Self.requestRecord, value: digits)))
        return lastRequest
    }

    /// The owner of a device: a peer, or the person for another device of their own; nil if unknown.
    package func owner(of id: DeviceID) -> AccountID? {
        if let owner = owners[id] { return owner }
        return id != device.id && deviceList.identity(of: id) != nil ? .own : nil
    }

    package func identity(of id: DeviceID) -> IdentityKey? { deviceList.identity(of: id) ?? identities[id] }

    /// Returns whether a list has another key for a known device. Sessions are found by the device's id, so one of the
    /// two devices would read the other's messages.
    package func contradicts(_ shown: DeviceList) -> Bool {
        shown.current.contains { listed in
            let known = identity(of: listed.id)
            return known != nil && known != listed.identity
        }
    }

    // MARK: Lists of other devices

    /// What a received device list means.
    package enum ListAssessment {
        /// No list was pinned under any of the names; this one is to be pinned under the first name.
        case new(Peer)
        /// The list of a known peer, perhaps with a later version.
        case known(Peer, isRenewed: Bool)
        /// Other keys under a name that has a pinned list.
        case changed(Peer)
        /// The list of another device of the person's own.
        case own(DeviceList)
        /// A device that its owner has removed, a list that belongs to another name, or too many peers.
        case refused(OpenFailure)
    }

    /// Judges a list without changing anything.
    ///
    /// - Parameter names: accounts that the line may come from, the most likely first.
    package func assess(_ shown: DeviceList, with id: DeviceID, as names: [AccountID], now: Timestamp) -> ListAssessment
    {
        if shown.continues(deviceList) || deviceList.continues(shown) {
            return deviceList.identity(of: id) != nil || shown.continues(deviceList)
                ? .own(shown) : .refused(.unknownSender)
        }
        guard !contradicts(shown), shown.root != deviceList.root, names != [.own] else { return .refused(.wrongSource) }
        let pinned = names.compactMap { peers[$0] }
        let sameList = pinned.first { shown.continues($0.deviceList) || $0.deviceList.continues(shown) }
        let elsewhere = pinned.isEmpty ? peers.values.first { shown.continues($0.deviceList) } : nil
        if var peer = sameList ?? elsewhere {
            let isNewer = shown.continues(peer.deviceList) && shown != peer.deviceList
            if isNewer { peer.deviceList = shown }
            guard peer.deviceList.identity(of: id) != nil else { return .refused(.unknownSender) }
            return .known(peer, isRenewed: isNewer)
        }
        if var peer = pinned.first {
            // A fork has the same safety number as the list that it left: a comparison would not show the difference.
            guard shown.root != peer.deviceList.root else { return .refused(.wrongSource) }
            peer.offered = shown
            return .changed(peer)
        }
        if peers.values.contains(where: { $0.deviceList.root == shown.root }) { return .refused(.wrongSource) }
        guard let name = names.first, peers.count < Self.peerLimit else { return .refused(.unknownSender) }
        return .new(Peer(name: name, deviceList: shown, since: now.wall))
    }
}
