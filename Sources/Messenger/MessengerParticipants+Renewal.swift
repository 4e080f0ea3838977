// A session that one side has lost: its prekey was used up in a later state of a device that was set back to an earlier one,
// or its row cannot be read. The side that cannot open a message begins a new session and says `ready` in it; the other
// side uses it from then on, and says `acknowledge`. Both name the versions of their groups in it, and seal again what
// the other side may lack: texts that nobody has confirmed, and if the person has several devices, those that one of them
// has confirmed; for another device of the same person, the texts of all chats; and the last edit, deletion and reaction
// that this device has made of each message.

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
        switch (error as? OpenError)?.reason {
        // More messages were lost than a session can skip: nothing more can be read in it.
        case .unknownSender, .tooFarAhead: return true
        default: return error is UnreadableInSession
        }
    }

    /// Asks for a new session with the device of an envelope that cannot be opened.
    mutating func renewSession(of bytes: [UInt8], from user: String, _ now: Timestamp, _ unit: inout Unit) {
        guard let envelope = try? Envelope(bytes, in: vault.carrier) else { return }
        renewSession(with: envelope.sender, of: user, now, &unit)
    }

    /// Asks for a new session with a device whose messages were lost: it seals again in it what this device may lack.
    mutating func renewSession(with device: DeviceID, of user: String, _ now: Timestamp, _ unit: inout Unit) {
        guard !introducesItself else { return }
        guard let owner = own.owner(of: device) else { return noteUnknown(device, of: user, now, &unit) }
        guard source(user).accounts == [owner] else { return }
        guard renewals[device].map({ now.monotonic - $0 >= Self.renewalPause }) ?? true else {
            // When the pause is over, and not for each such message.
            return noteLost(device, after: Self.renewalPause / 1_000_000, now, &unit)
        }
        renewals[device] = now.monotonic
        report(.sessionLost(user, device), &unit)
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
        // It may have been removed while the keys were read, and the server may show earlier ones.
        guard let device, knownList(of: person)?.identity(of: device) != nil else { return }
        guard keys.contains(where: { $0.id == device }) else {
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

    /// Names the versions of common groups to a device, and seals again what it may lack of what this device has sealed.
    ///
    /// The server can show an earlier list, and a device that was removed can ask: a device gets nothing unless it is in the
    /// known list, and nothing that was not sealed for it before.
    private mutating func sendAgain(
        to device: DeviceID, of person: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let chat = person == .own ? self.person : person
        guard let box = try own.sessions(with: device, in: vault),
            knownList(of: person)?.identity(of: device) == box.sessions.peerIdentity
        else { return }
        let recent = (resent[device] ?? []).filter { now.monotonic - $0 < Self.renewalPause }
        // It gets them later, in one more session. While other keys are offered, the person has to decide first.
        guard recent.count < Self.resendLimit, person == .own || own.peer(person)?.offered == nil else {
            return noteLost(device, after: Self.renewalPause / 1_000_000, now, &unit)
        }
        resent[device] = recent + [now.monotonic]
        try sealGroups(for: device, of: chat, now, &unit)
        // It may have gone back to before it had the keys of this device.
        if person == .own, device == own.deviceList.master { try register(now, &unit) }
        for message in try messagesLacking(on: device, of: chat) {
            var contents = changes(of: message, now)
            if mayLackText(of: message, chat) { contents.insert((message.content, message.reference.message), at: 0) }
            for (content, id) in contents {
                var content = content
                if let group = message.chat.group {
                    content.group = memory.groups[group].map(reference)
                } else if person == .own {
                    content.recipient = message.chat.name
                }
                try seal(content.body, id, for: [(device, box)], chat, nil, now, &unit)
            }
        }
    }

    /// The messages of which a device may lack what this device has sealed, in their order: those of the chat with its
    /// person, and the last ones of the groups that both are in; of all chats if it is one of the person's own.
    ///
    /// The recipient drops what it has. The person's other devices send theirs again themselves.
    private func messagesLacking(on device: DeviceID, of account: AccountID) throws -> [ChatMessage] {
        let isOwn = account == person
        var found: [ChatMessage] = []
        let shared = summaries.keys.filter { chat in
            guard let group = chat.group else { return isOwn }
            guard let known = memory.groups[group] else { return false }
            return isMember(of: known) && known.content.role(of: account) != nil
        }
        for chat in shared.sorted(by: { summary($0).last > summary($1).last }) {
            // Nothing in the chats that follow is newer.
            if found.count == Self.pageLimit, summary(chat).last < found[0].sequence { break }
            // What programs up to November 2026 have sealed may have been for others.
            found += try sealedMessages(in: chat, account).filter { $0.readers?.contains(device) == true }
            found = found.sorted { $0.sequence < $1.sequence }.suffix(Self.pageLimit)
        }
        guard !isOwn else { return found }
        found += try sealedMessages(in: account, account).filter { $0.readers?.contains(device) != false }
        return found.sorted { $0.sequence < $1.sequence }
    }

    /// The messages among the last ones of a chat of which a person may lack what this device has sealed.
    private func sealedMessages(in chat: AccountID, _ person: AccountID) throws -> [ChatMessage] {
        try messages(with: chat, limit: Self.pageLimit).filter { message in
            message.protection == .device
                && (mayLackText(of: message, person) || message.changes.contains { $0.reference.device == own.id })
        }
    }

    /// Whether a device of a person may lack the text of a message that this device has sealed.
    private func mayLackText(of message: ChatMessage, _ account: AccountID) -> Bool {
        guard message.reference.device == own.id, message.state > .waiting, message.state != .failed,
            !message.isDeleted
        else { return false }
        // A receipt does not name the device that has the message.
        let hasOneDevice = account != person && own.peer(account)?.deviceList.versions.count == 1
        return !(hasOneDevice && message.isConfirmed(by: account))
    }

    /// The last changes of a message by this device, as the message is now.
    ///
    /// Nobody confirms a change, so all are sealed again. Each keeps its id, by which a recipient that has it drops the copy.
    private func changes(of message: ChatMessage, _ now: Timestamp) -> [(content: ChatContent, id: MessageID)] {
        message.changes.filter { $0.reference.device == own.id }.map { change in
            let act: ChatContent.Act =
                switch change.kind {
                case .text: message.isDeleted ? .delete(message.reference) : .edit(message.reference)
                case .reaction: .react(message.reference, with: message.reactions.first(where: \.isOwn)?.characters)
                }
            let text = if case .edit = act { message.text } else { "" }
            return (ChatContent(act, text: text, writtenAt: now.wall), change.reference.message)
        }
    }
}

extension ChatMessage {
    /// Whether a person has confirmed the message with any of their devices.
    fileprivate func isConfirmed(by account: AccountID) -> Bool {
        (chat.group == nil ? state : receipts[account] ?? .sent) >= .received
    }
}
