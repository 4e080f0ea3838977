// A peer's devices: the list pinned when first seen, and a later list that does not continue it.

public import Envelope
public import Protection
import RequestQueue
import Synchronization

/// A person whose devices are known.
public struct Peer: Equatable, Sendable {
    /// A services account, or a nick.
    public var name: AccountID
    /// The pinned list.
    public var deviceList: DeviceList
    /// A list that does not continue ``deviceList``: other keys, or a fork of the list; see ``isForked``. Nothing is sent
    /// until a person has decided.
    public var offered: DeviceList?
    /// Whether a person has compared the safety number.
    public var isVerified = false
    /// When ``deviceList`` was pinned, in milliseconds since 1970.
    public var since: Int64
    /// Whether an end-to-end message has come from this peer. From then on plain text under its name is not trusted.
    public var isEstablished = false
    /// The number of versions in the person's own list when it was last sent to this peer.
    package var sentVersions = 0
    /// Devices that have shown the list themselves, with the time of their last introduction, by the peer's clock. Zero
    /// if they have shown it only inside a session.
    package var introduced: [DeviceID: Int64] = [:]
    /// The number of each device's last room request; see `RoomRequest.number`.
    package var requests: [DeviceID: Int64] = [:]

    /// The number of first versions of ``deviceList`` that a person has chosen when another list forked from it. A list
    /// that does not share them is refused. Zero before.
    package var settledVersions = 0

    /// Whether ``offered`` is a fork of ``deviceList``. Both have the same safety number, so a comparison does not show
    /// which one is right: the person has to ask which devices are the peer's.
    public var isForked: Bool { offered?.root == deviceList.root }

    /// Pins a list under a name.
    public init(name: AccountID, deviceList: DeviceList, since: Int64) {
        (self.name, self.deviceList, self.since) = (name, deviceList, since)
    }

    /// Records that a device has shown the list, in an introduction or inside a session. Removes devices that no list
    /// contains any more, so that the row cannot grow without bound.
    package mutating func note(_ device: DeviceID, introducedAt time: Int64? = nil) {
        introduced[device] = time ?? introduced[device] ?? 0
        introduced = introduced.filter {
            deviceList.identity(of: $0.key) != nil || offered?.identity(of: $0.key) != nil
        }
    }

    /// Records the number of a room request from a device of this person.
    ///
    /// - Returns: false if the number is not higher than the last one: the request is a copy.
    package mutating func takes(request number: Int64, of device: DeviceID) -> Bool {
        guard number > requests[device] ?? Int64.min else { return false }
        requests[device] = number
        requests = requests.filter { deviceList.identity(of: $0.key) != nil }
        return true
    }

    /// Records an introduction from a device of this person.
    ///
    /// - Returns: false if it is not newer than the device's last one: it is a copy.
    public mutating func takes(_ introduction: Introduction) -> Bool {
        if let last = introduced[introduction.device], last >= introduction.time { return false }
        note(introduction.device, introducedAt: introduction.time)
        return true
    }

    /// Pins the offered list in place of the former one, as a person has decided. It is not verified yet.
    ///
    /// See ``PinTable/accept(_:)``.
    package mutating func acceptOffered() {
        guard let list = offered else { return }
        settledVersions = isForked ? list.versions.count : 0
        (deviceList, offered, isVerified, introduced) = (list, nil, false, [:])
    }

    /// Keeps the pinned list and drops the list that was offered, as a person has decided.
    ///
    /// See ``PinTable/keep(_:)``.
    package mutating func keepPinned() {
        if isForked { settledVersions = deviceList.versions.count }
        offered = nil
    }

    /// Returns whether the device itself has confirmed that it belongs to this list: by signing a version or by showing
    /// it. Being listed is not enough, because the signer of a list can add another person's device to it.
    public func hasConfirmed(_ device: DeviceID) -> Bool {
        guard deviceList.identity(of: device) != nil else { return false }
        return introduced[device] != nil || deviceList.versions.contains { $0.signer == device }
    }

    /// Whether a device that has shown the list under this name is no longer in it. Only of a peer that is another device
    /// of the person: a peer who shows a shorter list has shown that the others are gone.
    package var hasRemovedDevice: Bool { introduced.keys.contains { deviceList.identity(of: $0) == nil } }

    // MARK: Bytes

    /// The form in which a peer is stored. Form 2 has the settled versions after the first three bytes.
    public var bytes: [UInt8] {
        let flags: UInt8 = (isVerified ? 1 : 0) | (isEstablished ? 2 : 0)
        var output: [UInt8] = [settledVersions == 0 ? 1 : 2, flags, UInt8(clamping: sentVersions)]
        if settledVersions != 0 { output.append(UInt8(clamping: settledVersions)) }
        output.append(bigEndian: UInt64(bitPattern: since))
        output.append(field: deviceList.bytes)
        output.append(field: offered?.bytes ?? [])
        output.append(UInt8(introduced.count))
        for (device, time) in introduced.sorted(by: { $0.key < $1.key }) {
            output.append(bigEndian: device.value)
            output.append(bigEndian: UInt64(bitPattern: time))
        }
        for (device, number) in requests.sorted(by: { $0.key < $1.key }) {
            output.append(bigEndian: device.value)
            output.append(bigEndian: UInt64(bitPattern: number))
        }
        return output
    }

    /// Reads a stored peer.
    ///
    /// - Throws: `EnvelopeError` if the row is damaged.
    public init(name: AccountID, bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        guard form == 1 || form == 2 else { throw .unsupportedVersion(form) }
        self.name = name
        let flags = try cursor.byte()
        (isVerified, isEstablished) = (flags & 1 != 0, flags & 2 != 0)
        sentVersions = Int(try cursor.byte())
        if form == 2 { settledVersions = Int(try cursor.byte()) }
        since = Int64(bitPattern: try cursor.uint64())
        deviceList = try DeviceList(try cursor.field())
        let other = try cursor.field()
        offered = other.isEmpty ? nil : try DeviceList(other)
        for _ in 0..<(try cursor.byte()) {
            introduced[DeviceID(try cursor.uint64())] = Int64(bitPattern: try cursor.uint64())
        }
        while !cursor.isAtEnd {
            requests[DeviceID(try cursor.uint64())] = Int64(bitPattern: try cursor.uint64())
        }
    }
}

/// The person's own devices.
package struct OwnDevices: Equatable, Sendable {
    package var deviceList: DeviceList
    /// The device that this vault holds.
    package var device: DeviceID

    package init(deviceList: DeviceList, device: DeviceID) {
        self.deviceList = deviceList
        self.device = device
    }
}

/// The peers, shared by all connections of a sidecar. The vault updates it after each commit.
package final class PeerCache: Sendable {
    private let state = Mutex<[AccountID: Peer]>([:])
    private let ownDevices = Mutex<OwnDevices?>(nil)
    private let front = Mutex(false)
    private let rooms = Mutex<Set<ExactText>>([])

    package init() {}

    /// Folded names of rooms in which messages were sealed and the person has sent no plain text since.
    var sealedRooms: Set<ExactText> {
        get { rooms.withLock { $0 } }
        set { rooms.withLock { $0 = newValue } }
    }

    package func isSealed(room: String) -> Bool { rooms.withLock { $0.contains(ExactText(room)) } }

    /// Adds a room to the sealed rooms, or removes it.
    ///
    /// - Returns: whether this changed the set.
    package func setSealed(_ isSealed: Bool, room: String) -> Bool {
        rooms.withLock { rooms in
            isSealed ? rooms.insert(ExactText(room)).inserted : rooms.remove(ExactText(room)) != nil
        }
    }

    /// The person's own devices; nil until the vault has loaded them.
    package var own: OwnDevices? {
        get { ownDevices.withLock { $0 } }
        set { ownDevices.withLock { $0 = newValue } }
    }

    /// Whether a front gateway has ever accepted the person's keys.
    package var hasHadFront: Bool {
        get { front.withLock { $0 } }
        set { front.withLock { $0 = newValue } }
    }

    package subscript(name: AccountID) -> Peer? {
        get { state.withLock { $0[name] } }
        set { state.withLock { $0[name] = newValue } }
    }

    package var all: [Peer] { state.withLock { $0.values.sorted { $0.name < $1.name } } }

    package func replace(_ peers: [AccountID: Peer]) { state.withLock { $0 = peers } }
}

extension AccountID {
    /// The person whose device a sidecar holds, whatever name the network has for them.
    public static let own = AccountID(text: "own device")

    /// A person known by a nick only.
    package static func nick(_ foldedNick: String) -> AccountID { AccountID(text: "nick " + foldedNick) }

    /// The name shown to people.
    package var displayName: String { text.hasPrefix("nick ") ? String(text.dropFirst(5)) : name }
}
