// A device that goes on from an earlier copy of its store. Its ratchets are behind what it has sent since, and the other
// sides have taken steps that it does not know. So it drops all sessions before it sends anything, begins new ones, and
// changes nothing of its account before it has read the published list again.

import CommitLoop
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Outbox
import Protection
import RequestQueue
import StorePort
import Vault

extension MessengerParticipants {
    static let restoredRecord = "restored"
    static let lostRecord = "lost"
    /// Ours: the pauses before new sessions are asked for again, doubled each time, in milliseconds.
    private static let (lostPause, longestLostPause): (Int64, Int64) = (60_000, 86_400_000)

    /// Devices that are listed and have not been told of a new session, with their people.
    private var lostSessions: [(user: String, device: DeviceID)] {
        memory.lost.sorted().compactMap { device in
            if own.deviceList.identity(of: device) != nil { return (account, device) }
            guard let owner = own.owner(of: device), owner != .own else { return nil }
            return (owner.name, device)
        }
    }

    private mutating func putLost(_ unit: inout Unit) {
        var bytes: [UInt8] = []
        for device in memory.lost.sorted() { bytes.append(bigEndian: device.value) }
        append(
            bytes.isEmpty
                ? .removeRecord(.ownDevices, name: Self.lostRecord)
                : .putRecord(RecordRow(kind: .ownDevices, name: Self.lostRecord, value: bytes)), &unit)
    }

    /// Reads the devices of the record.
    static func devices(_ bytes: [UInt8]) throws(EnvelopeError) -> Set<DeviceID> {
        var cursor = ByteCursor(bytes)
        var devices: Set<DeviceID> = []
        while !cursor.isAtEnd { devices.insert(DeviceID(try cursor.uint64())) }
        return devices
    }

    /// A device was told of a new session: the message waits in the queue.
    mutating func noteRenewed(_ device: DeviceID, _ unit: inout Unit) {
        if memory.lost.remove(device) != nil { putLost(&unit) }
    }

    /// A new session with a device is to be begun later.
    ///
    /// - Parameter pause: in milliseconds. If others are asked for earlier, this one is, too.
    mutating func noteLost(_ device: DeviceID, after pause: Int64, _ now: Timestamp, _ unit: inout Unit) {
        let due = nextLostWake
        guard memory.lost.insert(device).inserted else { return }
        putLost(&unit)
        let at = now.queueTime.uptime
        if due.map({ at + pause < $0 }) ?? true { lostAsked = (at, pause) }
    }

    /// When new sessions are asked for, in milliseconds of uptime; nil if none are.
    var nextLostWake: Int64? {
        lostSessions.isEmpty ? nil : lostAsked.map { $0.at + $0.pause } ?? 0
    }

    /// Asks for new sessions, again if they have not begun.
    mutating func askForLost(_ now: Timestamp, _ unit: inout Unit) {
        guard let at = nextLostWake, now.queueTime.uptime >= at else { return }
        let pause = lostAsked.map { min(max($0.pause * 2, Self.lostPause), Self.longestLostPause) } ?? Self.lostPause
        lostAsked = (now.queueTime.uptime, pause)
        for (user, device) in lostSessions { report(.sessionLost(user, device), &unit) }
    }

    /// Notes that the store is an earlier copy. The first job of the process.
    mutating func restored(_ now: Timestamp, _ unit: inout Unit) throws {
        append(.putRecord(RecordRow(kind: .ownDevices, name: Self.restoredRecord, value: [])), &unit)
        memory.isRestored = true
        let lists = [own.deviceList] + own.peers.values.map(\.deviceList)
        let devices = Set(lists.flatMap(\.versions).flatMap(\.devices).map(\.id)).subtracting([own.id])
        vault.drop(devices.map { own.session(with: $0) })
        unit.changes.append(.removeSessions(device: own.id))
        // With keys in band, each side introduces itself when it is there.
        if !introducesItself { memory.lost = devices.filter { own.owner(of: $0) != nil } }
        putLost(&unit)
        memory.checked = [:]
        // What has come since the copy was made comes again from the master device.
        if isAdopted, !isMaster { try put(HistoryState(), &unit) }
        want(keysOf: account, &unit)
    }

    /// Notes the person's other devices that this device did not know when its store was copied. They have a session
    /// with it, and are told of the one that begins now.
    mutating func noteUntold(_ now: Timestamp, _ unit: inout Unit) throws {
        for listed in own.deviceList.current where listed.id != own.id {
            guard try own.sessions(with: listed.id, in: vault) == nil else { continue }
            noteLost(listed.id, after: 0, now, &unit)
        }
    }

    /// Takes the published keys of the account: from now on this device may change them again.
    mutating func endRestore(_ keys: PublishedKeys, _ now: Timestamp, _ unit: inout Unit) throws {
        guard memory.isRestored else { return }
        memory.isRestored = false
        append(.removeRecord(.ownDevices, name: Self.restoredRecord), &unit)
        guard isMaster else {
            // What was asked for before there was a session has had no answer.
            historyAsked = nil
            return
        }
        // They have the devices that were added since, and prekeys that this device does not have any more.
        if keys.deviceList == own.deviceList { try store(keys, &unit) }
        try found(now, &unit)
    }
}
