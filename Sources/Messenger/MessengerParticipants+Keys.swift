// Keys: those that people have published, those of this account, and the person's decisions about them.

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
    // MARK: Keys that were read

    /// Takes the keys that a person has published. The server is not trusted: the list has to be the pinned one or a
    /// later version of it, and each device has to have signed its entry.
    ///
    /// - Parameter oneTime: one-time prekeys for the sessions that begin. Nobody has signed them: a wrong one makes its
    ///   session fail.
    mutating func take(
        _ bytes: [UInt8]?, of user: String, _ sessions: NewSessions, _ oneTime: [DeviceID: OneTimePreKey.Public],
        _ ticket: UInt64, _ now: Timestamp, _ unit: inout Unit
    ) {
        unit.failure = (ConnectionID(ticket), .refused(.notCommitted))
        let before = checkpoint()
        do {
            guard let bytes else {
                // What has keys by other ways goes on without these.
                if let list = own.peer(.services(user))?.deviceList {
                    memory.checked[.services(user)] = list.versions.count
                    try sealWaiting(.services(user), now, &unit)
                }
                return unit.reply = (ConnectionID(ticket), .refused(.keysMissing))
            }
            let keys = try PublishedKeys(bytes)
            let isOwn = user.utf8.elementsEqual(account.utf8)
            if isOwn {
                try takeOwn(keys, sessions, oneTime, now, &unit)
            } else {
                try take(keys, of: user, sessions, oneTime, now, &unit)
            }
            let isIncomplete = try sessions.begins && lacksDevices(keys, of: isOwn ? .own : .services(user))
            unit.reply = (ConnectionID(ticket), isIncomplete ? .refused(.keysMissing) : .done)
        } catch {
            goBack(to: before, now, &unit)
            let refusal = error is StoreError ? MessengerRefusal.notCommitted : .notAuthentic
            unit.reply = (ConnectionID(ticket), .refused(refusal))
            if let error = error as? OpenError, error.reason == .ownListForked, !hasReportedOwnFork {
                hasReportedOwnFork = true
                report(.peer(.forked(.own, isNew: true)), &unit)
            }
        }
    }

    /// Whether keys that were read begin sessions, for which one-time prekeys are of use.
    package func beginsSessions(with bytes: [UInt8], of user: String, _ sessions: NewSessions) -> Bool {
        guard let keys = try? PublishedKeys(bytes) else { return false }
        guard sessions.renewing == nil else { return true }
        let isOwn = user.utf8.elementsEqual(account.utf8)
        guard isOwn || sessions.begins || memory.waiting[.services(user)] != nil else { return false }
        return keys.confirmed(for: user).contains { keys in
            guard keys.id != own.id, let box = try? own.sessions(with: keys.id, in: vault) else {
                return keys.id != own.id
            }
            return box.sessions.peerIdentity != keys.bundle.identity
        }
    }

    /// Whether keys are from before the known list has changed, and do not have all of its devices. They are read again.
    private func lacksDevices(_ keys: PublishedKeys, of account: AccountID) throws -> Bool {
        guard let known = knownList(of: account), known != keys.deviceList, known.continues(keys.deviceList) else {
            return false
        }
        return try !hasSessions(account, known)
    }

    func knownList(of account: AccountID) -> DeviceList? {
        account == .own ? own.deviceList : own.peer(account)?.deviceList
    }

    /// Notes that the keys of a list were read; those of an earlier list say nothing about later devices.
    private mutating func noteChecked(_ list: DeviceList, of account: AccountID) {
        memory.checked[account] = max(memory.checked[account] ?? 0, list.versions.count)
    }

    private mutating func take(
        _ keys: PublishedKeys, of user: String, _ sessions: NewSessions, _ oneTime: [DeviceID: OneTimePreKey.Public],
        _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let confirmed = keys.confirmed(for: user)
        guard let first = keys.deviceList.current.first, !confirmed.isEmpty else {
            throw MessengerRefusal.notAuthentic
        }
        let (judged, event) = try own.judge(keys.deviceList, by: first.id, from: source(user), now)
        guard var peer = judged, peer.name == .services(user) else { throw MessengerRefusal.notAuthentic }
        if let event, event.awaitsDecision {
            own.put(peer, &unit)
            return reportUndecided(event, &unit)
        }
        for device in confirmed { peer.note(device.id) }
        own.put(peer, &unit)
        if let event { report(.peer(event), &unit) }
        guard sessions.begins || memory.waiting[peer.name] != nil else { return }
        try begin(with: confirmed, oneTime, sessions.renewing, in: peer.deviceList, &unit)
        try announceRenewal(with: sessions.renewing, in: confirmed, of: peer.name, now, &unit)
        noteChecked(keys.deviceList, of: peer.name)
        try sealWaiting(peer.name, now, &unit)
    }

    /// Begins sessions with devices of a list that have none.
    private mutating func begin(
        with devices: [DeviceKeys], _ oneTime: [DeviceID: OneTimePreKey.Public] = [:],
        _ renewing: DeviceID? = nil, in list: DeviceList, _ unit: inout Unit
    ) throws {
        for keys in devices where keys.id != own.id {
            guard let identity = list.identity(of: keys.id) else { continue }
            if keys.id != renewing, let box = try own.sessions(with: keys.id, in: vault),
                box.sessions.peerIdentity == identity
            {
                continue
            }
            let bundle = PreKeyBundle(
                identity: keys.bundle.identity, signedPreKey: keys.bundle.signedPreKey,
                kemPreKey: keys.bundle.kemPreKey, oneTimePreKey: oneTime[keys.id])
            do {
                try own.begin(with: bundle, of: keys.id, expecting: identity, in: vault, &unit)
            } catch RatchetError.invalidKey where bundle.oneTimePreKey != nil {
                // The server has invented it.
                try own.begin(with: keys.bundle, of: keys.id, expecting: identity, in: vault, &unit)
            }
        }
    }

    /// Seals the messages to a person that have waited for keys.
    mutating func sealWaiting(_ chat: AccountID, _ now: Timestamp, _ unit: inout Unit) throws {
        guard let sequences = memory.waiting[chat], try isReady(chat) else { return }
        for sequence in sequences {
            stopWaiting(sequence, for: chat, &unit)
            let reference = MessageReference(device: own.id, message: MessageID(sequence))
            guard var message = try message(reference) else {
                try sealNotice(sequence, for: chat, now, &unit)
                continue
            }
            if message.chat.group != nil {
                try sealWaiting(message, for: chat, now, &unit)
                continue
            }
            do {
                if !message.isDeleted {
                    message.isVerified = own.peer(chat)?.isVerified ?? false
                    try seal(&message, now, &unit)
                }
                // It may have been confirmed already, if this device was set back to before it has sent it.
                if message.state == .waiting { message.state = memory.open[sequence] == nil ? .sent : .queued }
            } catch MessengerRefusal.tooLong {
                message.state = .failed
            }
            try put(message, &unit)
            report(.changed(message), &unit)
        }
    }

    // MARK: This account

    private mutating func takeOwn(
        _ keys: PublishedKeys, _ sessions: NewSessions, _ oneTime: [DeviceID: OneTimePreKey.Public], _ now: Timestamp,
        _ unit: inout Unit
    ) throws {
        if let root = memory.joining {
            guard own.join(keys.deviceList, root: root, &unit) else { return }
            memory.joining = nil
            append(.removeRecord(.ownDevices, name: Self.joiningRecord), &unit)
            try put(HistoryState(), &unit)
            report(.ownDevices(keys.deviceList), &unit)
        } else if keys.deviceList.continues(own.deviceList) {
            if keys.deviceList != own.deviceList {
                own.take(keys.deviceList, &unit)
                report(.ownDevices(keys.deviceList), &unit)
            }
        } else {
            // An older version of the list, a fork of it, or another list.
            guard own.deviceList.continues(keys.deviceList) else {
                guard own.deviceList.root == keys.deviceList.root else { throw MessengerRefusal.notAuthentic }
                throw OpenError(reason: .ownListForked)
            }
        }
        let confirmed = keys.confirmed(for: account)
        if !isMaster { try store(keys, &unit) }
        if memory.isRestored { try noteUntold(now, &unit) }
        try begin(with: confirmed, oneTime, sessions.renewing, in: own.deviceList, &unit)
        try announceRenewal(with: sessions.renewing, in: confirmed, of: .own, now, &unit)
        noteChecked(keys.deviceList, of: .own)
        try endRestore(keys, now, &unit)
        try registerAgain(keys, now, &unit)
        // The answer may come in the session that the master device had before.
        if let renewed = sessions.renewing, renewed == own.deviceList.master { historyAsked = nil }
        if historyAsked == nil { try askForHistory(now, &unit) }
        for chat in memory.waiting.keys.sorted() { try sealWaiting(chat, now, &unit) }
    }

    mutating func store(_ keys: PublishedKeys, _ unit: inout Unit) throws {
        memory.published = keys
        append(
            .putRecord(RecordRow(kind: .ownDevices, name: Self.publishedRecord, value: keys.bytes)), &unit)
    }

    /// The keys of this device, for a list.
    private mutating func ownKeys(root: IdentityKey, _ now: Timestamp, _ unit: inout Unit) throws -> DeviceKeys {
        let bundle = try own.bundle(now, random: &vault.random, &unit.changes)
        return DeviceKeys(bundle, of: own.id, root: root, account: account, signedBy: own.device.identity)
    }

    /// Publishes the keys of a new account, or fresh ones of this device.
    mutating func found(_ now: Timestamp, _ unit: inout Unit) throws {
        guard isMaster, !memory.isRestored else { return }
        let keys = try ownKeys(root: own.deviceList.root, now, &unit)
        let others = memory.published?.devices.filter { $0.id != own.id } ?? []
        try publish([keys] + others, now, &unit)
    }

    private mutating func publish(_ devices: [DeviceKeys], _ now: Timestamp, _ unit: inout Unit) throws {
        let listed = devices.filter { own.deviceList.identity(of: $0.id) == $0.bundle.identity }
        let keys = PublishedKeys(deviceList: own.deviceList, devices: listed)
        guard keys != memory.published else { return }
        try store(keys, &unit)
        try enqueue(.publish, now, &unit)
    }

    /// Asks the account's master device to add this one.
    mutating func join(_ bytes: [UInt8], _ now: Timestamp, _ unit: inout Unit) throws {
        guard let keys = try? PublishedKeys(bytes) else { throw MessengerRefusal.notAuthentic }
        let root = keys.deviceList.root
        guard root != own.deviceList.root else { return }
        guard memory.joining == nil || memory.joining == root else { throw MessengerRefusal.notAuthentic }
        memory.joining = root
        append(.putRecord(RecordRow(kind: .ownDevices, name: Self.joiningRecord, value: root.bytes)), &unit)
        let request = DeviceRequest(root: root, keys: try ownKeys(root: root, now, &unit))
        try enqueue(.register(request.bytes), now, &unit)
    }

    /// Asks for its keys to be published again, if the list has this device and what is published has not: the master
    /// device went back to before it had published that.
    private mutating func registerAgain(_ keys: PublishedKeys, _ now: Timestamp, _ unit: inout Unit) throws {
        let list = own.deviceList
        guard isAdopted, !isMaster, registered != list.versions.count, list.identity(of: own.id) != nil,
            !keys.devices.contains(where: { $0.id == own.id })
        else { return }
        registered = list.versions.count
        try register(now, &unit)
    }

    /// Gives the master device the keys of this device, which it has added.
    mutating func register(_ now: Timestamp, _ unit: inout Unit) throws {
        guard isAdopted, !isMaster else { return }
        let root = own.deviceList.root
        let request = DeviceRequest(root: root, keys: try ownKeys(root: root, now, &unit))
        try enqueue(.register(request.bytes), now, &unit)
    }

    /// Whether a request is that of a device which the person has added already, and whether its keys are published.
    package func isAdded(_ request: [UInt8]) -> (isAdded: Bool, hasKeys: Bool) {
        guard let keys = (try? DeviceRequest(request))?.keys,
            own.deviceList.identity(of: keys.id) == keys.bundle.identity
        else { return (false, false) }
        return (true, memory.published?.devices.contains { $0.id == keys.id } == true)
    }

    /// Ours: the pauses before this device asks again to be added, doubled each time, in milliseconds.
    private static let (joinPause, longestJoinPause): (Int64, Int64) = (600_000, 86_400_000)

    /// When this device asks again to be added, in milliseconds of uptime; nil if it has not asked, or was added.
    var nextJoinWake: Int64? { memory.joining == nil ? nil : joinAsked.map { $0.at + $0.pause } ?? 0 }

    /// Asks again to be added to the account: the master device may have lost the request, or that it has added this one.
    mutating func askAgainToJoin(_ now: Timestamp, _ unit: inout Unit) {
        guard let at = nextJoinWake, let root = memory.joining, now.queueTime.uptime >= at else { return }
        guard let asked = joinAsked else { return joinAsked = (now.queueTime.uptime, Self.joinPause) }
        joinAsked = (now.queueTime.uptime, min(asked.pause * 2, Self.longestJoinPause))
        want(keysOf: account, &unit)
        let waits = queue.requests.contains { QueuedCall($0)?.isRegistration == true }
        guard !waits, let keys = try? ownKeys(root: root, now, &unit) else { return }
        try? enqueue(.register(DeviceRequest(root: root, keys: keys).bytes), now, &unit)
    }

    /// Whether this device may change the account's list now.
    private mutating func checkIsMaster(_ unit: inout Unit) throws(MessengerRefusal) {
        guard isMaster else { throw .notMaster }
        guard memory.isRestored else { return }
        // Its list may be an earlier version of the published one.
        want(keysOf: account, &unit)
        throw .keysMissing
    }

    /// Adds another device of the person to the account's list.
    mutating func adopt(_ bytes: [UInt8], _ now: Timestamp, _ unit: inout Unit) throws {
        try checkIsMaster(&unit)
        guard let request = try? DeviceRequest(bytes), request.root == own.deviceList.root,
            request.keys.isConfirmed(root: request.root, account: account)
        else { throw MessengerRefusal.notAuthentic }
        let keys = request.keys
        if own.deviceList.identity(of: keys.id) == nil {
            let device = ListedDevice(id: keys.id, identity: keys.bundle.identity)
            guard own.add(device, &unit) else { throw MessengerRefusal.noSuchDevice }
            report(.ownDevices(own.deviceList), &unit)
        }
        try publish((memory.published?.devices ?? []).filter { $0.id != keys.id } + [keys], now, &unit)
        try begin(with: [keys], in: own.deviceList, &unit)
        memory.checked[.own] = own.deviceList.versions.count
        try announce(now, &unit)
        try sealGroups(for: keys.id, of: person, now, &unit)
    }

    /// Removes a lost device from the account's list.
    mutating func revoke(_ device: DeviceID, _ now: Timestamp, _ unit: inout Unit) throws {
        try checkIsMaster(&unit)
        guard own.revoke(device, &unit) else { throw MessengerRefusal.noSuchDevice }
        end([device], &unit)
        memory.checked[.own] = own.deviceList.versions.count
        try publish(memory.published?.devices ?? [], now, &unit)
        report(.ownDevices(own.deviceList), &unit)
        try announce(now, &unit)
    }

    /// Sends the changed list to the person's other devices and to all people with a session.
    private mutating func announce(_ now: Timestamp, _ unit: inout Unit) throws {
        let body = ControlMessage.acknowledge(own.deviceList).body
        let id = MessageID(ids.next(in: .only, at: now))
        for listed in own.deviceList.current where listed.id != own.id {
            guard let box = try own.sessions(with: listed.id, in: vault) else { continue }
            try seal(body, id, for: [(listed.id, box)], .services(account), nil, now, &unit)
        }
        for chat in memory.latched.sorted() {
            guard let news = own.news(for: chat, &unit.changes) else { continue }
            for recipient in try own.recipients(of: chat, in: vault)
            where own.deviceList.identity(of: recipient.device) == nil {
                try seal(news.body, id, for: [recipient], chat, nil, now, &unit)
            }
        }
    }

    /// Reports that nothing is sent to a person until the keys that they show are accepted; of a fork once.
    mutating func reportUndecided(_ event: PeerEvent, _ unit: inout Unit) {
        if case .forked(_, isNew: false) = event { return }
        report(.peer(event), &unit)
    }

    // MARK: Decisions

    mutating func decide(
        _ user: String, _ decision: PeerDecision, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let chat = AccountID.services(user)
        guard own.peer(chat) != nil else { throw MessengerRefusal.unknownUser }
        // Elsewhere devices are added through the server.
        if decision == .adopt || decision == .join, !introducesItself { throw MessengerRefusal.notAllowed }
        end(own.decide(chat, decision, &unit), &unit)
        if decision == .adopt, introducesItself { try sendOwnList(to: chat, now, &unit) }
        if decision == .accept || decision == .keep || decision == .forget {
            memory.checked[chat] = nil
            want(keysOf: user, &unit)
        }
    }

    private mutating func end(_ devices: [DeviceID], _ unit: inout Unit) {
        vault.drop(devices.map { own.session(with: $0) })
        unit.changes += devices.map { .removeSessions(device: $0) }
    }
}
