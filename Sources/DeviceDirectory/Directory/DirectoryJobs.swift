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

/// Participants that contain a directory.
package protocol DirectoryHolding: Participants where Reply: DirectoryReply {
    /// Nil in a sidecar, which uses the directory of the gateway in front.
    var directory: Directory? { get set }
    /// The view of ``directory`` for connections.
    var directoryCache: DirectoryCache { get }
    /// Whether an id belongs to a device hosted here; such an id cannot be published.
    func isHosted(_ device: DeviceID) -> Bool
}

extension DirectoryHolding {
    /// Opens the directory, after the hosted devices were loaded.
    ///
    /// A published device with the id of a hosted one is removed; the hosted one stays with its sessions.
    ///
    /// - Returns: warnings for the operator.
    package mutating func openDirectory(
        _ store: any Store, _ now: Timestamp, _ changes: inout [StoreChange]
    ) throws(StoreError) -> [String] {
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
        directory = opened
        for (account, entry) in opened.accounts { directoryCache.put(account, entry) }
        return warnings
    }

    /// Whether a published device has an id, whatever its account's state; hosted devices get other ids.
    package var isPublished: (DeviceID) -> Bool {
        let published = directory
        return { published?.owner(of: $0) != nil }
    }

    /// Publishes the devices of an account to connections after the commit.
    package func show(published account: AccountID, _ unit: inout Unit) {
        unit.onCommit { state, _, _ in state.directoryCache.put(account, state.directory?.accounts[account]) }
    }

    /// Whether a device is published by an account that is not blocked, and so is not hosted in this vault.
    package func isElsewhere(_ device: DeviceID) -> Bool { directory?.isInUse(device) ?? false }

    /// Sends a connection a fresh nonce to sign.
    package func challenge(_ connection: ConnectionID, nonce: [UInt8], _ unit: inout Unit) {
        unit.reply = (connection, .directory(id: 0, .challenge(nonce: nonce, account: "")))
    }

    package mutating func directory(_ job: DirectoryJob, _ now: Timestamp, _ unit: inout Unit) {
        unit.failure = (
            job.connection, .directory(id: job.id, .refused("the gateway could not store it; try again later"))
        )
        do throws(Directory.Refusal) {
            unit.reply = (job.connection, try answer(job, now, &unit))
        } catch {
            unit.cancel(in: &self, now: now)
            unit.reply = (job.connection, .directory(id: job.id, .refused(error.reason)))
        }
    }

    private mutating func answer(
        _ job: DirectoryJob, _ now: Timestamp, _ unit: inout Unit
    ) throws(Directory.Refusal) -> Reply {
        switch job.request {
        case .publish(let deviceList, let device, let signature, let nonce):
            guard
                DirectoryMessage.isProof(signature, nonce: nonce, account: job.account.name, deviceList, device)
            else { throw .init("the proof does not hold for \(job.account.name)") }
            // The id of a hosted device is in the clear in each of its envelopes.
            guard !isHosted(device.id) else {
                throw .init("a device of this gateway has this id already; make a device with a new id")
            }
            show(published: job.account, &unit)
            if let owner = directory?.owner(of: device.id) { show(published: owner, &unit) }
            let startsAgain =
                try directory?.publish(deviceList, device, of: job.account, now: now, &unit.changes) ?? false
            if startsAgain {
                unit.changes.append(
                    .audit(
                        AuditRow(
                            at: now.wall, actor: job.account.name, action: "devices",
                            detail: "started again: the keys are not those of before")))
            }
            return .proven(id: job.id, device.id, oneTime: device.oneTime.count)
        case .find(let account, let connections):
            show(published: account, &unit)
            guard let (entry, low) = directory?.bundles(of: account, &unit.changes) else {
                return .directory(id: job.id, .found(.legacy))
            }
            if !low.isEmpty {
                unit.onCommit { _, replies, _ in
                    replies += connections.map { AddressedReply(connection: $0, reply: .directory(id: 0, .low)) }
                }
            }
            return .directory(id: job.id, .found(entry))
        case .show(let account):
            guard let entry = directory?.accounts[account], !entry.isBlocked else {
                return .directory(id: job.id, .found(.legacy))
            }
            return .directory(id: job.id, .found(.capable(account: account.name, entry.deviceList, [])))
        case .replenish(let keys, let device):
            show(published: job.account, &unit)
            let count = try directory?.replenish(keys, of: device, job.account, &unit.changes) ?? 0
            return .directory(id: job.id, .done(oneTime: count))
        case .list(let deviceList):
            show(published: job.account, &unit)
            try directory?.update(deviceList, of: job.account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: 0))
        case .block(let account, let isBlocked):
            show(published: account, &unit)
            directory?.setBlocked(isBlocked, account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: 0))
        case .remove(let account, let device):
            show(published: account, &unit)
            directory?.remove(device, of: account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: 0))
        }
    }
}
