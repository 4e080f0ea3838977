// A session that one side has lost: its prekey was used up in a later state of a device that was set back to an earlier one,
// or its row cannot be read. The side that cannot open a message begins a new session and says `ready` in it; the other
// side uses it from then on, and says `acknowledge`. Both name the versions of their groups in it, and seal again what
// the other side may lack: what nobody has confirmed, and if the person has several devices, what one of them has
// confirmed.

import CommitLoop
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import Vault

/// An envelope names a session that this device has, and cannot be opened in it.
struct UnreadableInSession: Error {}

extension MessengerParticipants {
    /// Ours: the pause between two new sessions with one device, in nanoseconds. Anybody at the server can forge a message
    /// that seems to use a lost session, and a new session uses up a prekey of the device.
    static let renewalPause: Int64 = 300_000_000_000
    /// Ours: how often messages are sent again to the same device in such a time. More than once, because a device that
    /// was restarted does not know the pause.
    private static let resendLimit = 3

    /// Ours: unknown devices that are remembered because their messages were dropped. Anybody at the server can name
    /// devices that do not exist. One more takes the place of another one.
    static let unknownDeviceLimit = 64
    /// Ours: the pause before a new session is begun with such a device, in milliseconds.
    private static let unknownPause: Int64 = 60_000

    /// Whether an error means that the sender uses a session that this device does not have, or has in another state: a
    /// device that was set back can begin the same session once more.
    static func isLostSession(_ error: any Error) -> Bool {
        switch error {
        case RatchetError.unknownPreKey, RatchetError.diverged: return true
        default: break
        }
        return error is UnreadableInSession || (error as? OpenError)?.reason == .unknownSender
    }

    /// Asks for a new session with the device of an envelope that cannot be opened.
    mutating func renewSession(of bytes: [UInt8], from user: String, _ now: Timestamp, _ unit: inout Unit) {
        guard !introducesItself, let envelope = try? Envelope(bytes, in: vault.carrier) else { return }
        guard let owner = own.owner(of: envelope.sender) else {
            return noteUnknown(envelope.sender, of: user, now, &unit)
        }
        guard source(user).accounts == [owner] else { return }
        guard renewals[envelope.sender].map({ now.monotonic - $0 >= Self.renewalPause }) ?? true else {
            // When the pause is over, and not for each such message.
            return noteLost(envelope.sender, after: Self.renewalPause / 1_000_000, now, &unit)
        }
        renewals[envelope.sender] = now.monotonic
        report(.sessionLost(user, envelope.sender), &unit)
    }

    /// Notes a device whose message was dropped because the list that was read for it does not have the device.
    ///
    /// A server may show an earlier list. When the device is known, a new session is begun with it, and it sends again
    /// what this device may lack.
    private mutating func noteUnknown(_ device: DeviceID, of user: String, _ now: Timestamp, _ unit: inout Unit) {
        let person = source(user).accounts == [.own] ? AccountID.own : .services(user)
        let list = knownList(of: person)
        // A listed device whose own signature was not read yet is unknown, too: the server has shown earlier keys.
        let isRemoved = list.map { list in
            list.identity(of: device) == nil && list.versions.contains { $0.devices.contains { $0.id == device } }
        }
        guard isRemoved != true, !memory.lost.contains(device) else { return }
        let unknown = memory.lost.filter { own.owner(of: $0) == nil }
        if unknown.count >= Self.unknownDeviceLimit, let first = unknown.min() { memory.lost.remove(first) }
        noteLost(device, after: Self.unknownPause, now, &unit)
    }

    /// Tells a device that a new session with it was begun, and sends it again what it may lack.
    ///
    /// - Parameter keys: the keys with which sessions have begun. Those of an earlier list may lack the device's.
    mutating func announceRenewal(
        with device: DeviceID?, in keys: [DeviceKeys], of person: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        guard let device else { return }
        guard keys.contains(where: { $0.id == device }) else {
            guard knownList(of: person)?.identity(of: device) != nil else { return }
            return noteLost(device, after: Self.unknownPause, now, &unit)
        }
        try answer(
            .ready(own.deviceList), to: device, of: person == .own ? .services(account) : person, now, &unit)
        noteRenewed(device, &unit)
        try sendAgain(to: device, of: person, now, &unit)
    }

    /// Goes on in the session that another device has begun because it could not open what came in the last one.
    ///
    /// - Parameter list: the list that the device has shown.
    mutating func takeRenewal(
        by device: DeviceID, _ list: DeviceList, of person: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let chat = person == .own ? .services(account) : person
        try answer(.acknowledge(own.deviceList), to: device, of: chat, now, &unit)
        // It was set back, perhaps to before it had published the later version.
        if let known = own.peer(person)?.deviceList, known != list, known.continues(list) {
            try answer(.adopted(known), to: device, of: chat, now, &unit)
        }
        try sendAgain(to: device, of: person, now, &unit)
    }

    /// Names the versions of common groups to a device, and seals again what it may lack of the texts of this device.
    private mutating func sendAgain(
        to device: DeviceID, of person: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let chat = person == .own ? .services(account) : person
        let recent = (resent[device] ?? []).filter { now.monotonic - $0 < Self.renewalPause }
        guard let box = try own.sessions(with: device, in: vault), recent.count < Self.resendLimit else { return }
        resent[device] = recent + [now.monotonic]
        try sealGroups(for: device, of: chat, now, &unit)
        guard person != .own else {
            // It may have gone back to before it had the keys of this device.
            if device == own.deviceList.master { try register(now, &unit) }
            return
        }
        // A receipt does not name the device that has the message. The recipient drops what it has.
        let hasOneDevice = own.peer(person)?.deviceList.versions.count == 1
        let states: Set<DeliveryState> = hasOneDevice ? [.queued, .sent] : [.queued, .sent, .received, .read]
        // The person's other devices send their messages again themselves.
        for message in try messages(with: chat, limit: Self.pageLimit)
        where message.reference.device == own.id && states.contains(message.state) && message.protection == .device
            && !message.isDeleted
        {
            try seal(message.content.body, message.reference.message, for: [(device, box)], chat, nil, now, &unit)
        }
    }
}
