// The person's own device in a sidecar's vault: its list, its prekeys, and whose devices it knows.

package import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

/// What a vault with custody `device` knows besides sessions.
package struct DeviceKeeper {
    /// Ours: people whose devices are pinned; more are told that there is no room.
    static let peerLimit = 10_000
    /// The name of the record that a gateway in front has taken our keys.
    package static let frontRecord = "front"
    /// The name of the record with the number of the last request for a room, in decimal digits.
    private static let requestRecord = "request"
    /// What the names of records of rooms in which messages were sealed begin with; the folded name follows.
    package static let sealedRecord = "sealed "

    package let device: HostedDevice
    package var chain: DeviceChain
    package var shelf: PreKeyShelf
    package var roomKeys: RoomKeys
    /// Whose list this device is to be taken into, as the person has said.
    package var joining: AccountID?
    private var lastRequest: Int64 = 0
    package private(set) var peers: [AccountID: Peer] = [:]
    /// Whose a device is, as it says itself.
    private var owners: [DeviceID: AccountID] = [:]
    /// The keys of all devices that pinned lists name. What was known stays known until the next start.
    private var identities: [DeviceID: IdentityKey] = [:]
    private let sealer: StorageSealer

    /// Reads what the store holds; makes a list of one device at the first start.
    package init(
        device: HostedDevice, sealer: StorageSealer, store: any Store, _ changes: inout [StoreChange]
    ) throws(StoreError) {
        self.device = device
        self.sealer = sealer
        shelf = try PreKeyShelf(sealer: sealer, rows: try store.records(.preKey))
        roomKeys = try RoomKeys(sealer: sealer, rows: try store.records(.senderKey))
        do {
            if let row = try store.record(.ownDevices, name: "") {
                chain = try DeviceChain(row.value)
            } else {
                chain = DeviceChain(
                    of: ListedDevice(id: device.id, identity: device.identity.publicKey), identity: device.identity)
                changes.append(.putRecord(RecordRow(kind: .ownDevices, name: "", value: chain.bytes)))
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

    /// Takes what the store holds in place of what memory does, after a commit that failed.
    package mutating func reload(_ store: any Store) {
        var none: [StoreChange] = []
        guard var fresh = try? DeviceKeeper(device: device, sealer: sealer, store: store, &none) else { return }
        fresh.joining = joining
        self = fresh
    }

    private mutating func add(_ peer: Peer) {
        peers[peer.name] = peer
        for listed in peer.chain.current {
            identities[listed.id] = listed.identity
            if peer.speaks(listed.id) { owners[listed.id] = peer.name }
        }
    }

    private mutating func disown(_ name: AccountID) {
        for listed in peers[name]?.chain.current ?? [] where owners[listed.id] == name { owners[listed.id] = nil }
    }

    /// Notes what is known of somebody now.
    package mutating func put(_ peer: Peer, _ changes: inout [StoreChange]) {
        disown(peer.name)
        add(peer)
        changes.append(.putRecord(RecordRow(kind: .peer, name: peer.name.text, value: peer.bytes)))
    }

    package mutating func forget(_ name: AccountID, _ changes: inout [StoreChange]) {
        disown(name)
        peers[name] = nil
        changes.append(.removeRecord(.peer, name: name.text))
    }

    package mutating func put(chain new: DeviceChain, _ changes: inout [StoreChange]) {
        chain = new
        changes.append(.putRecord(RecordRow(kind: .ownDevices, name: "", value: new.bytes)))
    }

    /// The number of the next request for a room: the time in milliseconds, and above every one before it.
    package mutating func nextRequest(_ now: Moment, _ changes: inout [StoreChange]) -> Int64 {
        lastRequest = max(now.wall, lastRequest &+ 1)
        let digits = Array(String(lastRequest).utf8)
        changes.append(.putRecord(RecordRow(kind: .ownDevices, name: Self.requestRecord, value: digits)))
        return lastRequest
    }

    /// Whose device this is: a peer's, or another one of the person's own.
    package func owner(of id: DeviceID) -> AccountID? {
        if let owner = owners[id] { return owner }
        return id != device.id && chain.identity(of: id) != nil ? .own : nil
    }

    package func identity(of id: DeviceID) -> IdentityKey? { chain.identity(of: id) ?? identities[id] }

    /// Whether a list gives another key to a device that is known: sessions go by the device, so one of the two would
    /// read what is for the other.
    package func contradicts(_ shown: DeviceChain) -> Bool {
        shown.current.contains { listed in
            let known = identity(of: listed.id)
            return known != nil && known != listed.identity
        }
    }

    // MARK: Meeting

    /// What a list means that somebody shows.
    package enum Meeting {
        /// Nobody was known there; the list is pinned under the first name.
        case new(Peer)
        /// Somebody who is known, perhaps with more devices than before.
        case known(Peer, isRenewed: Bool)
        /// Somebody else's keys under a name that is pinned.
        case changed(Peer)
        /// Another device of the person's own.
        case own(DeviceChain)
        /// A device that its owner has removed, a name that is somebody else's, or no room.
        case refused(OpenFailure)
    }

    /// Judges a list, and changes nothing.
    ///
    /// - Parameter names: whom the line may be from, the best guess first.
    package func meeting(_ shown: DeviceChain, with id: DeviceID, as names: [AccountID], now: Moment) -> Meeting {
        if shown.continues(chain) || chain.continues(shown) {
            return chain.identity(of: id) != nil || shown.continues(chain) ? .own(shown) : .refused(.unknownSender)
        }
        guard !contradicts(shown), shown.root != chain.root, names != [.own] else { return .refused(.wrongSource) }
        let pinned = names.compactMap { peers[$0] }
        let sameList = pinned.first { shown.continues($0.chain) || $0.chain.continues(shown) }
        let elsewhere = pinned.isEmpty ? peers.values.first { shown.continues($0.chain) } : nil
        if var peer = sameList ?? elsewhere {
            let isNewer = shown.continues(peer.chain) && shown != peer.chain
            if isNewer { peer.chain = shown }
            guard peer.chain.identity(of: id) != nil else { return .refused(.unknownSender) }
            return .known(peer, isRenewed: isNewer)
        }
        if var peer = pinned.first {
            // A fork has the safety number of the list that it left: comparing would tell nobody anything.
            guard shown.root != peer.chain.root else { return .refused(.wrongSource) }
            peer.offered = shown
            return .changed(peer)
        }
        if peers.values.contains(where: { $0.chain.root == shown.root }) { return .refused(.wrongSource) }
        guard let name = names.first, peers.count < Self.peerLimit else { return .refused(.unknownSender) }
        return .new(Peer(name: name, chain: shown, since: now.wall))
    }
}
