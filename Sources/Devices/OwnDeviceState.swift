// The person's own device in a sidecar: its device list, its prekeys, and its peers.

package import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

/// The state of the person's own device, apart from sessions.
package struct OwnDeviceState {
    /// Name of the record which says that a front gateway has accepted our keys.
    package static let frontRecord = "front"
    /// Name of the record that holds the number of the last room request, in decimal digits.
    private static let requestRecord = "request"
    /// Prefix of the names of records of rooms in which messages were sealed; the folded room name follows.
    package static let sealedRecord = "sealed "

    package let device: HostedDevice
    private var pins: PinTable
    package var preKeys: PreKeys
    package var roomKeys: RoomKeys
    /// The account whose list is to adopt this device, as the person has chosen.
    package var joining: AccountID?
    private var lastRequest: Int64 = 0
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
                pins = PinTable(device: device.id, deviceList: try DeviceList(row.value))
            } else {
                let list = DeviceList(
                    of: ListedDevice(id: device.id, identity: device.identity.publicKey), identity: device.identity)
                pins = PinTable(device: device.id, deviceList: list)
                changes.append(.putRecord(RecordRow(kind: .ownDevices, name: "", value: list.bytes)))
            }
            if let row = try store.record(.ownDevices, name: Self.requestRecord) {
                lastRequest = Int64(String(decoding: row.value, as: UTF8.self)) ?? 0
            }
            for row in try store.records(.peer) {
                pins.put(try Peer(name: AccountID(text: row.name), bytes: row.value))
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
            pins.remove(account)
            if let row, let peer = try? Peer(name: account, bytes: row.value) { pins.put(peer) }
        case .ownDevices:
            // Numbers of requests only rise.
            if name.isEmpty, let row, let stored = try? DeviceList(row.value) { pins.deviceList = stored }
        case .preKey: preKeys.restore(name, row)
        case .senderKey: roomKeys.restore(name, row)
        default: break
        }
    }

    /// The person's own device list.
    package var deviceList: DeviceList { pins.deviceList }

    /// The pinned peers.
    package var peers: [AccountID: Peer] { pins.peers }

    /// Stores a peer, in place of its earlier state.
    package mutating func put(_ peer: Peer, _ changes: inout [StoreChange]) {
        pins.put(peer)
        changes.append(.putRecord(RecordRow(kind: .peer, name: peer.name.text, value: peer.bytes)))
    }

    package mutating func forget(_ name: AccountID, _ changes: inout [StoreChange]) {
        pins.remove(name)
        changes.append(.removeRecord(.peer, name: name.text))
    }

    package mutating func put(deviceList new: DeviceList, _ changes: inout [StoreChange]) {
        pins.deviceList = new
        changes.append(.putRecord(RecordRow(kind: .ownDevices, name: "", value: new.bytes)))
    }

    /// Returns the number of the next room request: the time in milliseconds, and higher than every earlier number.
    package mutating func nextRequest(_ now: Timestamp, _ changes: inout [StoreChange]) -> Int64 {
        lastRequest = max(now.wall, lastRequest &+ 1)
        let digits = Array(String(lastRequest).utf8)
        changes.append(.putRecord(RecordRow(kind: .ownDevices, name: Self.requestRecord, value: digits)))
        return lastRequest
    }

    /// See ``PinTable/owner(of:)``.
    package func owner(of id: DeviceID) -> AccountID? { pins.owner(of: id) }

    /// See ``PinTable/identity(of:)``.
    package func identity(of id: DeviceID) -> IdentityKey? { pins.identity(of: id) }

    /// See ``PinTable/contradicts(_:)``.
    package func contradicts(_ shown: DeviceList) -> Bool { pins.contradicts(shown) }

    /// What a received device list means, with the failure that a refusal causes.
    package enum ListAssessment {
        case new(Peer)
        case known(Peer, isRenewed: Bool)
        case changed(Peer)
        case forked(Peer, isNew: Bool)
        case own(DeviceList)
        case refused(OpenFailure)
    }

    /// See ``PinTable/assess(_:with:as:at:)``.
    package func assess(_ shown: DeviceList, with id: DeviceID, as names: [AccountID], now: Timestamp) -> ListAssessment
    {
        switch pins.assess(shown, with: id, as: names, at: now.wall) {
        case .new(let peer): .new(peer)
        case .known(let peer, let isRenewed): .known(peer, isRenewed: isRenewed)
        case .changed(let peer): .changed(peer)
        case .forked(let peer, let isNew): .forked(peer, isNew: isNew)
        case .own(let list): .own(list)
        case .refused(.notListed): .refused(.unknownSender)
        case .refused(.tooMany): .refused(.tooManyPeers)
        case .refused(.belongsElsewhere): .refused(.wrongSource)
        case .refused(.forksOwnList): .refused(.ownListForked)
        }
    }
}
