// The judgement about device lists that peers show: pinned at first use, continued, changed, or refused.

public import DoubleRatchet
public import Envelope
public import Protection

/// A person's own device list, and the pinned lists of their peers. It stores nothing.
///
/// The caller stores each ``Peer`` that it puts here, and its own list, and makes the table of them at the next start.
public struct PinTable: Sendable {
    /// Ours: pinned peers. The list of one more peer is refused.
    public static let peerLimit = 10_000

    /// This device.
    public let device: DeviceID
    /// The person's own list.
    public var deviceList: DeviceList
    /// The pinned peers, by name.
    public private(set) var peers: [AccountID: Peer] = [:]
    /// The owner of each device that has confirmed its list itself.
    private var owners: [DeviceID: AccountID] = [:]
    /// The keys of all devices in pinned lists. Entries stay until the peer is removed, or the next start.
    private var identities: [DeviceID: IdentityKey] = [:]

    /// Makes a table of the person's own list and the stored peers.
    public init(device: DeviceID, deviceList: DeviceList, peers: [Peer] = []) {
        (self.device, self.deviceList) = (device, deviceList)
        for peer in peers { put(peer) }
    }

    /// Adds a peer, in place of its earlier state.
    public mutating func put(_ peer: Peer) {
        removeOwner(peer.name)
        peers[peer.name] = peer
        for listed in peer.deviceList.current {
            identities[listed.id] = listed.identity
            if peer.hasConfirmed(listed.id) { owners[listed.id] = peer.name }
        }
    }

    /// Removes a peer: the next list under the name is pinned as a new one. Keys that only this peer has shown for its
    /// devices keep no other list from being pinned.
    public mutating func remove(_ name: AccountID) {
        removeOwner(name)
        guard let removed = peers.removeValue(forKey: name) else { return }
        for version in removed.deviceList.versions {
            for listed in version.devices where identities[listed.id] == listed.identity { identities[listed.id] = nil }
        }
        // Another list may have one of these devices too.
        for peer in peers.values {
            for listed in peer.deviceList.current { identities[listed.id] = listed.identity }
        }
    }

    private mutating func removeOwner(_ name: AccountID) {
        for listed in peers[name]?.deviceList.current ?? [] where owners[listed.id] == name { owners[listed.id] = nil }
    }

    /// The owner of a device: a peer, or `own` for another device of the person's own; nil if unknown.
    public func owner(of id: DeviceID) -> AccountID? {
        if let owner = owners[id] { return owner }
        return id != device && deviceList.identity(of: id) != nil ? .own : nil
    }

    /// The key of a device in the person's own list or in a pinned list; nil if unknown.
    public func identity(of id: DeviceID) -> IdentityKey? { deviceList.identity(of: id) ?? identities[id] }

    /// Returns whether a list has another key for a known device. Sessions are found by the device's id, so one of the
    /// two devices would read the other's messages.
    public func contradicts(_ shown: DeviceList) -> Bool {
        shown.current.contains { listed in
            let known = identity(of: listed.id)
            return known != nil && known != listed.identity
        }
    }

    /// The devices of a peer for which messages are encrypted; none while other keys are offered, or if unknown.
    public func devices(of name: AccountID) -> [ListedDevice] {
        guard let peer = peers[name], peer.offered == nil else { return [] }
        return peer.deviceList.current
    }

    // MARK: What a person decides

    /// Pins the list that a peer has offered in place of the former one; it is not verified.
    ///
    /// The caller stores the peer, and ends its sessions with the returned devices.
    ///
    /// - Returns: the former devices; nil if nothing is offered, or the list has another key for a known device.
    public mutating func accept(_ name: AccountID) -> [ListedDevice]? {
        guard var peer = peers[name], let offered = peer.offered, !contradicts(offered) else { return nil }
        let former = peer.deviceList.current
        peer.acceptOffered()
        put(peer)
        return former
    }

    /// Keeps the pinned list of a peer that shows another one, as the person has decided. If that was a fork, other lists
    /// that leave the pinned one within its present versions are refused from now on. Other keys are offered again if they
    /// are shown again.
    ///
    /// - Returns: the peer to store; nil if it is unknown, or shows no other list.
    public mutating func keep(_ name: AccountID) -> Peer? {
        guard var peer = peers[name], peer.offered != nil else { return nil }
        peer.keepPinned()
        put(peer)
        return peer
    }

    /// Records that a person has compared the safety number of the pinned list.
    ///
    /// - Returns: the peer to store; nil if it is unknown, or other keys are offered.
    public mutating func verify(_ name: AccountID) -> Peer? {
        guard var peer = peers[name], peer.offered == nil else { return nil }
        peer.isVerified = true
        put(peer)
        return peer
    }

    // MARK: Lists of other devices

    /// What a received device list means.
    public enum Assessment: Sendable {
        /// No list was pinned under any of the names; this one is to be pinned under the first name.
        case new(Peer)
        /// The list of a known peer, perhaps with a later version.
        case known(Peer, isRenewed: Bool)
        /// Other keys under a name that has a pinned list. Nothing is sent until a person has accepted them.
        case changed(Peer)
        /// A list that leaves the pinned one after a common first version: two devices of one account disagree, and one
        /// of them may be stolen. Nothing is sent until a person has accepted it or kept the pinned one. `isNew` is false
        /// if the peer is known to show a fork.
        case forked(Peer, isNew: Bool)
        /// The list of another device of the person's own.
        case own(DeviceList)
        /// Nothing is pinned and nothing changes.
        case refused(Refusal)
    }

    /// Why a list is refused.
    public enum Refusal: Sendable {
        /// The list does not contain the device that showed it, its owner has removed the device, or the list came without
        /// a name.
        case notListed
        /// The list belongs to another name, has another key for a known device, or is a fork about which a person has
        /// decided already.
        case belongsElsewhere
        /// The list is a fork of the person's own list. One of their devices may be stolen.
        case forksOwnList
        /// ``PinTable/peerLimit`` peers are pinned.
        case tooMany
    }

    /// Judges a list without changing anything. The caller puts and stores the peer of the result.
    ///
    /// - Parameters:
    ///   - shown: the list, parsed and so verified.
    ///   - id: the device that has shown it.
    ///   - names: accounts that the list may come from, the most likely first.
    ///   - now: the time, in milliseconds since 1970.
    public func assess(_ shown: DeviceList, with id: DeviceID, as names: [AccountID], at now: Int64) -> Assessment {
        if shown.continues(deviceList) || deviceList.continues(shown) {
            return deviceList.identity(of: id) != nil || shown.continues(deviceList)
                ? .own(shown) : .refused(.notListed)
        }
        guard shown.root != deviceList.root else { return .refused(.forksOwnList) }
        guard names != [.own] else { return .refused(.belongsElsewhere) }
        let pinned = names.compactMap { peers[$0] }
        if let peer = forked(by: shown, pinned) {
            // The person has decided about the versions that both lists would have to share.
            guard peer.deviceList.commonVersions(with: shown) >= peer.settledVersions else {
                return .refused(.belongsElsewhere)
            }
            var changed = peer
            changed.offered = shown
            return .forked(changed, isNew: !peer.isForked)
        }
        guard !contradicts(shown) else { return .refused(.belongsElsewhere) }
        let sameList = pinned.first { shown.continues($0.deviceList) || $0.deviceList.continues(shown) }
        let elsewhere = pinned.isEmpty ? peers.values.first { shown.continues($0.deviceList) } : nil
        if var peer = sameList ?? elsewhere {
            let isNewer = shown.continues(peer.deviceList) && shown != peer.deviceList
            if isNewer { peer.deviceList = shown }
            guard peer.deviceList.identity(of: id) != nil else { return .refused(.notListed) }
            return .known(peer, isRenewed: isNewer)
        }
        if var peer = pinned.first {
            peer.offered = shown
            return .changed(peer)
        }
        if peers.values.contains(where: { $0.deviceList.root == shown.root }) { return .refused(.belongsElsewhere) }
        guard let name = names.first else { return .refused(.notListed) }
        guard peers.count < Self.peerLimit else { return .refused(.tooMany) }
        return .new(Peer(name: name, deviceList: shown, since: now))
    }

    /// The peer whose pinned list has the same first key as a list that is neither a later nor an earlier version of it;
    /// nil if there is none, or if another of the peers has the list. If no peer has the name, all peers are compared.
    private func forked(by shown: DeviceList, _ pinned: [Peer]) -> Peer? {
        func isSame(_ peer: Peer) -> Bool {
            shown.continues(peer.deviceList) || peer.deviceList.continues(shown)
        }
        guard pinned.isEmpty else {
            return pinned.contains(where: isSame) ? nil : pinned.first { $0.deviceList.root == shown.root }
        }
        let all = peers.values.filter { $0.deviceList.root == shown.root }
        return all.contains(where: isSame) ? nil : all.min { $0.name < $1.name }
    }
}
