// The directory's jobs: requests of capable clients, and operators' acts.
//
// The directory runs on the commit thread: published devices are rows of the store, and a request is acknowledged only
// after the commit.

package import CommitLoop
package import Devices
package import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

/// A request to the directory.
package struct DirectoryJob: Sendable {
    package enum Request: Sendable {
        case publish(DeviceList, PublishedDevice, signature: [UInt8], nonce: [UInt8])
        /// The keys of an account to begin sessions with; ``DirectoryJob/account`` asks for them.
        case find(AccountID, connections: [ConnectionID])
        /// The list of an account alone; no prekey is used up.
        case show(AccountID)
        case replenish([OneTimePreKey.Public], DeviceID)
        case list(DeviceList)
        /// An operator's acts.
        case block(AccountID, Bool)
        case remove(AccountID, DeviceID?)
    }

    package var connection: ConnectionID
    /// The client's number for its request.
    package var id: UInt32
    /// The account that the connection has logged in to at the backend.
    package var account: AccountID
    package var request: Request

    package init(connection: ConnectionID, id: UInt32, account: AccountID, request: Request) {
        (self.connection, self.id, self.account, self.request) = (connection, id, account, request)
    }

    /// The account whose rows the job reads and writes; nil if a device may move from another account.
    ///
    /// A published device that another account had is removed there with the new row, as one id has one account. In a
    /// store with several owners this divides into two units: the earlier account's shard removes the device, then the
    /// new account's adds it. In between the device is published nowhere, which is refused and not wrong.
    package var owner: AccountID? {
        switch request {
        case .publish: nil
        case .replenish, .list: account
        case .find(let account, _), .show(let account), .block(let account, _), .remove(let account, _): account
        }
    }
}

/// Replies of the directory, which the replies of a chat protocol contain.
package protocol DirectoryReply: Sendable {
    /// A message of the directory, as the answer to the client's request of this number; 0 if the gateway sends it unasked.
    static func directory(id: UInt32, _ message: DirectoryMessage) -> Self
    /// The device that the connection has proven.
    static func proven(id: UInt32, _ device: DeviceID, oneTime: Int) -> Self
}

/// Participants whose gateway may have a directory.
package protocol DirectoryHolding: Participants where Reply: DirectoryReply {
    /// Whether an id belongs to a device hosted here; such an id cannot be published.
    func isHosted(_ device: DeviceID) -> Bool
}

extension DirectoryHolding {
    /// Sends a connection a fresh nonce to sign.
    package func challenge(_ connection: ConnectionID, nonce: [UInt8], _ unit: inout Unit) {
        unit.reply = (connection, .directory(id: 0, .challenge(nonce: nonce, account: "")))
    }

    /// The reply to a job that is not committed.
    package func failure(of job: DirectoryJob) -> AddressedReply<Reply> {
        AddressedReply(
            connection: job.connection,
            reply: .directory(id: job.id, .refused("the gateway could not store it; try again later")))
    }

    /// Carries out a job of the directory. Nothing of a refused job stays.
    package mutating func perform(
        _ job: DirectoryJob, in directory: GatewayDirectory, _ now: Timestamp, _ unit: inout Unit
    ) {
        let failure = failure(of: job)
        unit.failure = (failure.connection, failure.reply)
        do throws(Directory.Refusal) {
            unit.reply = (job.connection, try directory.answer(job, isHosted: { isHosted($0) }, now, &unit))
        } catch {
            unit.cancel(in: &self, now: now)
            if error.isFork { directory.recordFork(of: job.account, now, &unit) }
            unit.reply = (job.connection, .directory(id: job.id, .refused(error.reason)))
        }
    }
}

/// The directory of a gateway in front, and the view of it for connections. One thread at a time uses it.
package final class GatewayDirectory {
    private var directory: Directory
    private let cache: DirectoryCache
    /// Warnings for the operator, found when the directory was opened.
    package let warnings: [String]

    /// Opens the directory, after the hosted devices were loaded.
    ///
    /// A published device with the id of a hosted one is removed; the hosted one stays with its sessions.
    ///
    /// - Throws: ``StoreError`` if the store cannot be read or a row is damaged.
    package init(
        store: any Store, cache: DirectoryCache, isHosted: (DeviceID) -> Bool, _ now: Timestamp,
        _ changes: inout [StoreChange]
    ) throws(StoreError) {
        var warnings: [String] = []
        var opened = try Directory(store: store)
        for (account, entry) in opened.accounts.sorted(by: { $0.key < $1.key }) {
            for id in entry.devices.keys.sorted() where isHosted(id) {
                opened.remove(id, of: account, &changes)
                let detail = "removed \(Directory.name(id)) of \(account.name): it has the id of a hosted device"
                changes.append(
                    .audit(AuditRow(at: now.wall, actor: "gateway", action: "devices", detail: detail)))
                warnings.append("Directory: \(detail). Its owner has to publish under a new id.")
            }
        }
        // Connections without a login ended with the earlier process.
        for account in opened.accounts.keys where !account.isVerified { opened.remove(nil, of: account, &changes) }
        for (account, entry) in opened.accounts { cache.put(account, entry) }
        (directory, self.cache, self.warnings) = (opened, cache, warnings)
    }

    /// The published devices of an account, also if it is blocked; nil if there are none.
    package subscript(account: AccountID) -> DirectoryAccount? { directory.accounts[account] }

    /// Whether an account that is not blocked has published a device, which then is not hosted in this vault.
    package func isInUse(_ device: DeviceID) -> Bool { directory.isInUse(device) }

    /// Whether a published device has an id, whatever its account's state; hosted devices get other ids.
    package func isPublished(_ device: DeviceID) -> Bool { directory.owner(of: device) != nil }

    /// Whether a device is published, or in the list of an account with a login and still to prove itself. Such devices have
    /// mailboxes.
    package func isListed(_ device: DeviceID) -> Bool { directory.lister(of: device) != nil }

    /// Whether an account that is not blocked has a device in its list, and no other account has it.
    package func isListed(_ device: DeviceID, by account: AccountID) -> Bool {
        guard let entry = directory.accounts[account], !entry.isBlocked else { return false }
        return entry.deviceList.identity(of: device) != nil && directory.lister(of: device) == account
    }

    /// The account that has published a device or has it in its list, also if it is blocked; nil if there is none.
    package func account(of device: DeviceID) -> AccountID? { directory.lister(of: device) }

    /// The devices that a job may take from their accounts, with these accounts.
    package func devices(atRiskBy job: DirectoryJob) -> [DeviceID: AccountID] {
        let account: AccountID
        var devices: [DeviceID] = []
        switch job.request {
        case .publish(let deviceList, _, _, _):
            account = job.account
            devices = deviceList.current.map(\.id)
        case .list: account = job.account
        case .remove(let other, _): account = other
        case .find, .show, .replenish, .block: return [:]
        }
        devices += directory.accounts[account]?.deviceList.current.map(\.id) ?? []
        return Dictionary(devices.compactMap { id in directory.lister(of: id).map { (id, $0) } }) { first, _ in first }
    }

    /// Removes all devices of an account that has ended.
    package func remove(_ account: AccountID, _ unit: inout UnitOfWork<some Participants>) {
        directory.remove(nil, of: account, &unit.changes)
        show(account, &unit)
    }

    /// Makes memory agree with one record of the store after a change of it was not committed.
    package func restore(_ kind: RecordKind, name: String, from store: any Store) {
        directory.restore(kind, name: name, from: store)
    }

    /// Records for the operator, once, that a device has tried to publish a fork of its account's list.
    fileprivate func recordFork(of account: AccountID, _ now: Timestamp, _ unit: inout UnitOfWork<some Participants>) {
        guard directory.noteFork(of: account, &unit.changes) else { return }
        show(account, &unit)
        unit.changes.append(
            .audit(
                AuditRow(
                    at: now.wall, actor: account.name, action: "devices",
                    detail: "refused a second version of the device list: one of the devices may be stolen")))
    }

    /// Publishes the devices of an account to connections after the commit.
    private func show(_ account: AccountID, _ unit: inout UnitOfWork<some Participants>) {
        unit.onCommit { [self] _, _, _ in cache.put(account, directory.accounts[account]) }
    }

    fileprivate func answer<State: DirectoryHolding>(
        _ job: DirectoryJob, isHosted: (DeviceID) -> Bool, _ now: Timestamp, _ unit: inout UnitOfWork<State>
    ) throws(Directory.Refusal) -> State.Reply {
        switch job.request {
        case .publish(let deviceList, let device, let signature, let nonce):
            guard
                DirectoryMessage.isProof(signature, nonce: nonce, account: job.account.name, deviceList, device)
            else { throw .init("the proof does not hold for \(job.account.name)") }
            // The id of a hosted device is in the clear in each of its envelopes.
            guard !isHosted(device.id) else {
                throw .init("a device of this gateway has this id already; make a device with a new id")
            }
            show(job.account, &unit)
            if let owner = directory.owner(of: device.id) { show(owner, &unit) }
            if try directory.publish(deviceList, device, of: job.account, now: now, &unit.changes) {
                unit.changes.append(
                    .audit(
                        AuditRow(
                            at: now.wall, actor: job.account.name, action: "devices",
                            detail: "started again: the keys are not those of before")))
            }
            let stored = directory.accounts[job.account]?.devices[device.id]
            return .proven(id: job.id, device.id, oneTime: stored?.oneTime.count ?? 0)
        case .find(let account, let connections):
            show(account, &unit)
            guard
                let (entry, low) = directory.bundles(of: account, for: job.account, now: now, &unit.changes)
            else {
                return .directory(id: job.id, .found(.legacy))
            }
            if !low.isEmpty {
                unit.onCommit { _, replies, _ in
                    replies += connections.map { AddressedReply(connection: $0, reply: .directory(id: 0, .low)) }
                }
            }
            return .directory(id: job.id, .found(entry))
        case .show(let account):
            guard let entry = directory.accounts[account], !entry.isBlocked else {
                return .directory(id: job.id, .found(.legacy))
            }
            return .directory(id: job.id, .found(.capable(account: account.name, entry.deviceList, [])))
        case .replenish(let keys, let device):
            show(job.account, &unit)
            let count = try directory.replenish(keys, of: device, job.account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: count))
        case .list(let deviceList):
            show(job.account, &unit)
            try directory.update(deviceList, of: job.account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: 0))
        case .block(let account, let isBlocked):
            show(account, &unit)
            directory.setBlocked(isBlocked, account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: 0))
        case .remove(let account, let device):
            show(account, &unit)
            directory.remove(device, of: account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: 0))
        }
    }
}
