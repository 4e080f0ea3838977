// Groups: their versions, and messages that are sealed for each device of each member.
//
// A message of a group carries a reference to the version under which it was written. A version that is not known is
// read from the server, or asked for at the device that has sent the message, and the message waits for it in a row. The
// newest known version decides who is a member.

import CommitLoop
import DeviceSessions
import Devices
package import DoubleRatchet
import Envelope
import Protection
import StorePort
import Vault

/// A message that waits for a version of its group.
struct HeldMessage {
    /// The number of its row.
    var sequence: UInt64
    var reference: GroupReference
    /// The device that has sent it. What it sends later waits behind it.
    var device: DeviceID
}

extension MessengerParticipants {
    /// Ours: groups of one person.
    package static var groupLimit: Int { 256 }
    /// Ours: versions that wait to be read, so that a person who names blobs that do not exist costs little. Those that
    /// members of known groups have named do not count.
    package static var wantedGroupLimit: Int { 64 }
    /// Ours: the same for the versions that the messages of one person have named, so that they leave room for those of others.
    package static var wantedSenderLimit: Int { 32 }
    /// Ours: the same for the versions of one group.
    package static var wantedVersionLimit: Int { 8 }
    /// Ours: messages that wait for versions.
    package static var heldLimit: Int { 1000 }
    /// Ours: bytes of all versions of a group where members hand them over in lines: some hundred lines.
    package static var lineGroupLimit: Int { 16_000 }
    /// Ours: recipients of one envelope; together with the longest text they fit into it.
    static var envelopeLimit: Int { 64 }

    var person: AccountID { .services(account) }

    package var groups: [GroupState] { memory.groups.values.sorted { $0.id < $1.id } }

    /// Versions that have to be read.
    package var wantedGroups: [GroupReference] {
        memory.wantedGroups.sorted { $0.value < $1.value }.map(\.key)
    }

    func isMember(of group: GroupState) -> Bool { group.content.role(of: person) != nil }

    func checkMembership(in group: GroupID) throws {
        guard let group = memory.groups[group], isMember(of: group) else { throw MessengerRefusal.unknownGroup }
    }

    // MARK: Rows

    private static func groupName(_ group: GroupID) -> String { "group " + group.text }
    private static func wantName(_ sequence: UInt64) -> String { "want " + DeviceID(sequence).name }
    private static func heldName(_ sequence: UInt64) -> String { "held " + DeviceID(sequence).name }
    private static func noticeName(_ sequence: UInt64) -> String { "notice " + DeviceID(sequence).name }

    mutating func loadGroup(_ row: RecordRow) throws {
        let bytes = try sealer.open(row.value, label: Self.label(row))
        let parts = row.name.split(separator: " ")
        guard parts.count == 2 else { throw EnvelopeError.malformed }
        if parts[0] == "group" {
            let group = try GroupState(bytes)
            memory.groups[group.id] = group
            return
        }
        guard let sequence = UInt64(hexadecimal: parts[1]) else { throw EnvelopeError.malformed }
        noteUsed(sequence)
        switch parts[0] {
        case "want":
            let (reference, owner) = try Self.wanted(bytes)
            (memory.wantedGroups[reference], memory.wanters[sequence]) = (sequence, owner)
        case "held":
            var cursor = ByteCursor(bytes)
            let reference = try GroupReference(try cursor.field())
            let device = DeviceID(try cursor.uint64())
            memory.held.append(HeldMessage(sequence: sequence, reference: reference, device: device))
        case "notice": break
        default: throw EnvelopeError.malformed
        }
    }

    /// Reads the form of a wanted version: `reference (2 B length) | account of the sender`, or the reference alone in rows
    /// that programs up to November 2026 have made.
    private static func wanted(_ bytes: [UInt8]) throws(EnvelopeError) -> (reference: GroupReference, owner: AccountID?)
    {
        // First, because some rows of the form with a sender can be read in the other one.
        var cursor = ByteCursor(bytes)
        if let field = try? cursor.field(), let reference = try? GroupReference(field) {
            let owner = String(decoding: cursor.rest(), as: UTF8.self)
            return (reference, owner.isEmpty ? nil : AccountID(text: owner))
        }
        return (try GroupReference(bytes), nil)
    }

    private mutating func put(_ group: GroupState, _ unit: inout Unit) throws {
        memory.groups[group.id] = group
        append(try sealed(.chatGroup, Self.groupName(group.id), group.bytes), &unit)
        report(.group(group), &unit)
    }

    // MARK: The person's changes

    /// Makes a version to be published. Nothing changes.
    mutating func propose(_ change: GroupChange, of base: GroupID?) throws -> GroupProposal {
        let chain: GroupChain?
        let random = vault.randomNumber()
        if let base {
            try checkMembership(in: base)
            guard let known = memory.groups[base] else { throw MessengerRefusal.unknownGroup }
            let content = try content(after: known.content, change)
            guard content.isValid, known.chain.versions.count < GroupChain.versionLimit else {
                throw MessengerRefusal.groupLimit
            }
            guard change == .confirm || content != known.content, known.content.allows(content, by: person) else {
                throw MessengerRefusal.notAllowed
            }
            chain = known.chain.adding(content, random: random, by: person, own.id, own.device.identity)
        } else {
            guard case .create(let name, let metadata, let members) = change, isAdopted else {
                throw MessengerRefusal.notAllowed
            }
            let others = Set(members.map { AccountID.services($0) }).subtracting([person])
            let content = GroupContent(
                name: name, metadata: metadata, members: others.map { GroupMember($0) } + [GroupMember(person, .owner)])
            guard memory.groups.count < Self.groupLimit else { throw MessengerRefusal.groupLimit }
            chain = GroupChain(content, random: random, by: person, own.id, own.device.identity)
        }
        guard let chain, !introducesItself || chain.bytes.count <= Self.lineGroupLimit else {
            throw MessengerRefusal.groupLimit
        }
        var key = [UInt8](repeating: 0, count: GroupReference.keySize)
        key.withUnsafeMutableBytes { vault.random.fill($0) }
        let blob = try GroupReference.seal(chain, key: key, random: &vault.random)
        return GroupProposal(chain: chain, key: key, blob: blob)
    }

    private func content(after base: GroupContent, _ change: GroupChange) throws -> GroupContent {
        var members = base.members
        var (name, metadata) = (base.name, base.metadata)
        switch change {
        case .create: throw MessengerRefusal.notAllowed
        case .confirm: break
        case .rename(let new): name = new
        case .metadata(let new): metadata = new
        case .add(let names):
            let new = Set(names.map { AccountID.services($0) }).subtracting(members.map(\.account))
            members += new.map { GroupMember($0) }
        case .remove(let names):
            let lost = Set(names.map { AccountID.services($0) })
            members.removeAll { lost.contains($0.account) }
        case .moderator(let user, let isModerator):
            guard let place = members.firstIndex(where: { $0.account == .services(user) }),
                members[place].role != .owner
            else { throw MessengerRefusal.notAllowed }
            members[place].role = isModerator ? .moderator : .member
        }
        return GroupContent(name: name, metadata: metadata, members: members)
    }

    /// Takes a published version, and sends its reference to all members, those included that it removes.
    mutating func published(
        _ proposal: GroupProposal, _ blob: String, _ now: Timestamp, _ unit: inout Unit
    ) throws -> GroupState {
        guard (1...GroupReference.blobLimit).contains(blob.utf8.count) else { throw MessengerRefusal.groupLimit }
        let chain = proposal.chain
        let reference = GroupReference(
            group: chain.id, digest: chain.last.digest, key: proposal.key, blob: blob)
        let group = GroupState(chain: chain, reference: reference)
        var members = Set(group.content.members.map(\.account))
        if let known = memory.groups[chain.id] {
            guard chain.continues(known.chain), chain.versions.count == known.chain.versions.count + 1 else {
                throw MessengerRefusal.groupChanged
            }
            members.formUnion(known.content.members.map(\.account))
        } else {
            guard chain.versions.count == 1, memory.groups.count < Self.groupLimit else {
                throw MessengerRefusal.groupChanged
            }
        }
        try put(group, &unit)
        try announce(group, to: members.union([person]).sorted(), now, &unit)
        return group
    }

    private mutating func announce(
        _ group: GroupState, to accounts: [AccountID], _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let id = MessageID(ids.next(in: .only, at: now))
        let content = ChatContent(.group, writtenAt: now.wall)
        let missing = try seal(content, id, in: group, to: accounts, nil, now, &unit)
        guard !missing.isEmpty else { return }
        append(try sealed(.chatGroup, Self.noticeName(id.value), Array(group.id.text.utf8)), &unit)
        for account in missing { wait(id.value, for: account, &unit) }
    }

    /// Sends the current version of a group to a person whose keys have come.
    mutating func sealNotice(
        _ sequence: UInt64, for account: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let name = Self.noticeName(sequence)
        guard let row = try record(.chatGroup, name) else { return }
        if !memory.waiting.values.contains(where: { $0.contains(sequence) }) {
            append(.removeRecord(.chatGroup, name: name), &unit)
        }
        let text = String(decoding: try sealer.open(row.value, label: Self.label(row)), as: UTF8.self)
        guard let group = GroupID(text).flatMap({ memory.groups[$0] }), group.content.role(of: account) != nil else {
            return
        }
        let id = MessageID(ids.next(in: .only, at: now))
        _ = try seal(
            ChatContent(.group, writtenAt: now.wall), id, in: group, to: [account], nil, isNext: true, now, &unit)
    }

    /// Sends the versions of all common groups to a device that may know none of them: it was added to the account, or it
    /// was set back.
    mutating func sealGroups(
        for device: DeviceID, of account: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let recipients = try recipients(in: account).filter { $0.device == device }
        guard !recipients.isEmpty else { return }
        for group in groups where isMember(of: group) && group.content.role(of: account) != nil {
            var content = ChatContent(.group, writtenAt: now.wall)
            content.group = reference(to: group)
            let id = MessageID(ids.next(in: .only, at: now))
            try seal(content.body, id, for: recipients, account, nil, now, &unit)
        }
    }

    /// Takes a group that the master device hands over, unless this device has that version or another one after it.
    mutating func take(handedOver group: GroupState, _ now: Timestamp, _ unit: inout Unit) throws {
        let known = memory.groups[group.id]
        guard known.map({ group.chain != $0.chain && group.chain.continues($0.chain) }) ?? true,
            known != nil || memory.groups.count < Self.groupLimit
        else { return }
        try put(group, &unit)
        try settle(group, now, &unit)
    }

    // MARK: Versions that no server keeps

    /// What messages of this device say about a version. In band, their readers ask this device.
    func reference(to group: GroupState) -> GroupReference {
        var reference = group.reference
        if introducesItself { reference.blob = GroupReference.blob(at: own.id) }
        return reference
    }

    /// The sealed form of a version for a person who has its reference, as a server would have it.
    ///
    /// - Returns: nil if this device does not have it, or if the person was a member neither in it nor right before it.
    package func blob(
        of reference: GroupReference, for user: String, random: inout some RandomSource
    ) throws -> [UInt8]? {
        guard let chain = memory.groups[reference.group]?.chain.version(reference.digest),
            chain.versions.suffix(2).contains(where: { $0.content.role(of: .services(user)) != nil })
        else { return nil }
        return try GroupReference.seal(chain, key: reference.key, random: &random)
    }

    // MARK: Sealing

    /// Seals content for the devices of members; for the person's other devices if the person is among them.
    ///
    /// - Parameters:
    ///   - sequence: the place of the message whose state depends on the requests; nil for none.
    ///   - isNext: whether it goes before all that waits for the members.
    /// - Returns: members for whom it cannot be sealed now.
    private mutating func seal(
        _ content: ChatContent, _ id: MessageID, in group: GroupState, to accounts: [AccountID], _ sequence: UInt64?,
        isNext: Bool = false, _ now: Timestamp, _ unit: inout Unit
    ) throws -> [AccountID] {
        var content = content
        content.group = reference(to: group)
        var recipients: [(recipient: OwnDevice.Recipient, name: Attempt.Recipient)] = []
        var missing: [AccountID] = []
        for account in accounts {
            guard isNext || memory.waiting[account] == nil, try isReady(account) else {
                missing.append(account)
                continue
            }
            let devices = try self.recipients(in: account)
            try sealNews(for: account, devices, now, &unit)
            if introducesItself {
                // In lines, nobody gets what is sealed for others.
                if account != person { try seal(content.body, id, for: devices, account, sequence, now, &unit) }
                try raiseLatch(account, now, &unit)
                continue
            }
            for device in devices
            where account == person || own.deviceList.identity(of: device.device) == nil {
                recipients.append((device, Attempt.Recipient(user: account.name, device: device.device)))
            }
            try raiseLatch(account, now, &unit)
        }
        let body = content.body
        let padded = body.bytes(paddedTo: Content.paddedLength(of: body.length))
        let size = sendsSeveral ? Self.envelopeLimit : 1
        for start in stride(from: 0, to: recipients.count, by: size) {
            let part = recipients[start..<min(start + size, recipients.count)]
            try seal(padded, id, for: part, sequence, now, &unit)
        }
        return missing
    }

    /// Seals a new text for all members. It waits for those whose keys are missing.
    mutating func seal(
        _ message: inout ChatMessage, in id: GroupID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        guard let group = memory.groups[id] else { throw MessengerRefusal.unknownGroup }
        let accounts = group.content.members.map(\.account)
        message.isVerified = accounts.allSatisfy { $0 == person || own.peer($0)?.isVerified == true }
        let missing = try seal(
            message.content, message.reference.message, in: group, to: accounts, message.sequence, now, &unit)
        for account in missing { wait(message.sequence, for: account, &unit) }
        noteReaders(of: accounts.filter { !missing.contains($0) }, in: &message)
        guard memory.open[message.sequence] == nil else { return }
        message.state = missing.allSatisfy { $0 == person } ? .sent : .waiting
    }

    /// Seals a text for a member whose keys have come. It is sent as it is now, under the newest version.
    mutating func sealWaiting(
        _ original: ChatMessage, for account: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        var message = original
        guard let group = message.chat.group.flatMap({ memory.groups[$0] }), !message.isDeleted,
            group.content.role(of: account) != nil, isMember(of: group)
        else { return try noteUnsealed(message, &unit) }
        let missing = try seal(
            message.content, message.reference.message, in: group, to: [account], message.sequence, isNext: true, now,
            &unit)
        if missing.isEmpty { noteReaders(of: [account], in: &message) }
        message.isVerified = message.isVerified && (account == person || own.peer(account)?.isVerified == true)
        if message.state == .waiting { message.state = memory.open[message.sequence] == nil ? .sent : .queued }
        guard message != original else { return }
        try put(message, &unit)
        if message.state != original.state || message.isVerified != original.isVerified {
            report(.changed(message), &unit)
        }
    }

    /// Notes that a text that has waited is not sealed: it was deleted, or its reader is no member any more.
    private mutating func noteUnsealed(_ original: ChatMessage, _ unit: inout Unit) throws {
        let sequence = original.sequence
        guard original.state == .waiting, memory.open[sequence] == nil,
            !memory.waiting.values.contains(where: { $0.contains(sequence) })
        else { return }
        var message = original
        message.state = .sent
        try put(message, &unit)
        report(.changed(message), &unit)
    }

    /// The members that have a message of a group. Those who wait for its text get the text as it is then.
    func accounts(having message: ChatMessage) -> [AccountID] {
        guard let group = message.chat.group.flatMap({ memory.groups[$0] }) else { return [] }
        return group.content.members.map(\.account).filter {
            memory.waiting[$0]?.contains(message.sequence) != true
        }
    }

    /// Seals a change of a message for the members that have the message.
    mutating func seal(
        _ content: ChatContent, _ id: MessageID, about message: ChatMessage, in group: GroupID, _ now: Timestamp,
        _ unit: inout Unit
    ) throws {
        guard let group = memory.groups[group] else { throw MessengerRefusal.unknownGroup }
        let accounts = accounts(having: message)
        let missing = try seal(content, id, in: group, to: accounts, nil, now, &unit)
        for account in missing { want(keysOf: account.name, &unit) }
        let others = accounts.filter { $0 != person }
        guard others.isEmpty || !Set(others).isSubset(of: missing) else { throw MessengerRefusal.keysMissing }
    }

    // MARK: Receiving

    /// Takes a message of a group, or holds it until its version is known and what its device has sent before is taken.
    mutating func receive(
        _ content: ChatContent, in reference: GroupReference, _ message: MessageReference, from owner: AccountID,
        _ now: Timestamp, _ unit: inout Unit
    ) throws {
        guard !introducesItself || reference.holder == message.device else { throw OpenError(reason: .malformed) }
        let isBehind = memory.held.contains { $0.reference.group == reference.group && $0.device == message.device }
        if let group = memory.groups[reference.group], group.chain.has(reference.digest) {
            guard isBehind else { return try take(content, message, in: group, from: owner, now, &unit) }
        } else if try want(reference, by: owner, now, &unit) {
            guard content.act != .group else { return }
        } else if !memory.wantedGroups.keys.contains(where: { $0.group == reference.group }) {
            return report(.groupRefused(reference, .limit), &unit)
        }
        // Beyond the limit of versions that are read at once, the version is read after those.
        guard memory.held.count < Self.heldLimit else { return report(.groupRefused(reference, .limit), &unit) }
        let sequence = ids.next(in: .only, at: now)
        var bytes: [UInt8] = []
        bytes.append(field: reference.bytes)
        bytes.append(bigEndian: message.device.value)
        bytes.append(bigEndian: message.message.value)
        bytes.append(field: Array(owner.text.utf8))
        bytes += content.body.bytes(paddedTo: 0)
        append(try sealed(.chatGroup, Self.heldName(sequence), bytes), &unit)
        memory.held.append(HeldMessage(sequence: sequence, reference: reference, device: message.device))
    }

    /// Takes a message of a group whose version is known. Only members write, as the newest known version has them.
    private mutating func take(
        _ content: ChatContent, _ message: MessageReference, in group: GroupState, from owner: AccountID,
        _ now: Timestamp, _ unit: inout Unit
    ) throws {
        guard isMember(of: group), group.content.role(of: owner == .own ? person : owner) != nil else {
            throw OpenError(reason: .notInRoom)
        }
        try receive(content, message, in: group.id.chat, from: owner, now, &unit)
    }

    /// Whether a person is a member of a group that this device knows.
    private func isMember(_ owner: AccountID?, of group: GroupID) -> Bool {
        guard let owner, let group = memory.groups[group] else { return false }
        return group.content.role(of: owner == .own ? person : owner) != nil
    }

    /// Asks for a version to be read.
    ///
    /// - Parameter owner: the person whose message has named it; nil if that is not known.
    /// - Returns: false if a limit is reached.
    private mutating func want(
        _ reference: GroupReference, by owner: AccountID?, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Bool {
        guard memory.wantedGroups[reference] == nil else { return true }
        let rows = Set(memory.wantedGroups.values)
        memory.wanters = memory.wanters.filter { rows.contains($0.key) }
        // Members of a group that is known can name only so many versions as there are groups and `wantedVersionLimit`
        // allow. The master device of an owner makes one in each of its groups when it removes a device.
        let others = memory.wantedGroups.filter { !isMember(memory.wanters[$0.value], of: $0.key.group) }
        let hasRoom =
            others.count < Self.wantedGroupLimit
            && (owner == nil || owner == .own
                || others.values.count(where: { memory.wanters[$0] == owner }) < Self.wantedSenderLimit)
        guard hasRoom || isMember(owner, of: reference.group),
            memory.wantedGroups.keys.count(where: { $0.group == reference.group }) < Self.wantedVersionLimit
        else { return false }
        let sequence = ids.next(in: .only, at: now)
        (memory.wantedGroups[reference], memory.wanters[sequence]) = (sequence, owner)
        var bytes: [UInt8] = []
        bytes.append(field: reference.bytes)
        bytes += Array((owner?.text ?? "").utf8)
        append(try sealed(.chatGroup, Self.wantName(sequence), bytes), &unit)
        report(.groupWanted(reference), &unit)
        return true
    }

    /// Takes a version that was read. The server is not trusted: the version has to be the one that a member has named,
    /// and to be signed by members that were allowed to make it.
    mutating func read(
        _ reference: GroupReference, _ bytes: [UInt8]?, _ hasKeys: Bool, _ now: Timestamp, _ unit: inout Unit
    ) throws -> MessengerReply {
        guard memory.wantedGroups[reference] != nil else { return .done }
        guard let bytes, let chain = try? reference.open(bytes) else {
            try refuse(reference, .unavailable, now, &unit)
            return .done
        }
        let known = memory.groups[reference.group]
        // An earlier version was read after a later one.
        if let known, known.chain.continues(chain) {
            try settle(known, now, &unit)
            return .done
        }
        if let known, !chain.continues(known.chain) {
            let fork = known.chain.fork(with: chain, isListed: isListed)
            guard fork == .taken else {
                try refuse(reference, fork == .kept ? .fork : .undecidedFork, now, &unit)
                return .done
            }
        }
        if known == nil {
            guard chain.content.role(of: person) != nil else {
                try refuse(reference, .notMember, now, &unit)
                return .done
            }
            guard memory.groups.count < Self.groupLimit else {
                try refuse(reference, .limit, now, &unit)
                return .done
            }
        }
        switch signatures(of: chain, after: known?.chain) {
        case .missing(let people) where !hasKeys: return .keysNeeded(people.map(\.name))
        case .missing, .wrong:
            try refuse(reference, .notAuthentic, now, &unit)
            return .done
        case .right: break
        }
        // A thief of a device goes on signing after the person has removed it.
        if let known, !chain.unconfirmed(from: chain.common(with: known.chain), isListed: isListed).isEmpty {
            try refuse(reference, .fork, now, &unit)
            return .done
        }
        let group = GroupState(chain: chain, reference: reference)
        try put(group, &unit)
        if let known, !isMember(of: known), known.chain.last.signer == person, isMember(of: group),
            !chain.continues(known.chain)
        {
            report(.leaveAgain(group.id), &unit)
        }
        try settle(group, now, &unit)
        return .done
    }

    /// Whether the device that has made a version was not removed, as far as it is known.
    ///
    /// A device that is in no known list may have been added since. Its version counts only with a valid signature, for
    /// which the list of its person is read.
    private func isListed(_ version: GroupVersion) -> Bool {
        let list = version.signer == person ? own.deviceList : own.peer(version.signer)?.deviceList
        guard let list, list.identity(of: version.device) == nil else { return true }
        return !list.versions.contains { $0.devices.contains { $0.id == version.device } }
    }

    /// Groups in which this device, the account's master device, makes one more version after it has removed another one,
    /// so that a version of the removed device counts for all if this device has it, and for nobody else.
    ///
    /// - Parameter isNow: whether it has just removed one; else only those in which a version of one does not count yet.
    package func unconfirmedGroups(isNow: Bool) -> [GroupID] {
        guard isMaster, own.deviceList.hasRemovals else { return [] }
        return groups.filter { group in
            guard let role = group.content.role(of: person), role != .member else { return false }
            return isNow && role == .owner
                || group.chain.unconfirmed(from: 1, isListed: isListed).contains { $0.signer == person }
        }
        .map(\.id)
    }

    private enum Signatures {
        case right
        case wrong
        /// The keys of these people are not known.
        case missing([AccountID])
    }

    /// Checks the signatures of versions that are new here.
    ///
    /// In a group that is not known yet, the last one counts: its signer is a member that vouches for all before it,
    /// whose signers may have left the server. Those whose keys are known are checked.
    private func signatures(of chain: GroupChain, after known: GroupChain?) -> Signatures {
        let common = known.map { chain.common(with: $0) } ?? 0
        var missing: [AccountID] = []
        for number in common..<chain.versions.count {
            let version = chain.versions[number]
            guard let identity = identity(of: version.device, by: version.signer) else {
                if known != nil || number == chain.versions.count - 1 { missing.append(version.signer) }
                continue
            }
            guard chain.isSigned(number, by: identity) else { return .wrong }
        }
        return missing.isEmpty ? .right : .missing(Array(Set(missing)).sorted())
    }

    /// The key of a device that is or was in a person's list.
    private func identity(of device: DeviceID, by signer: AccountID) -> IdentityKey? {
        let list = signer == person ? own.deviceList : own.peer(signer)?.deviceList
        let listed = list?.versions.reversed().lazy.flatMap(\.devices)
        return listed?.first { $0.id == device }?.identity
    }

    /// Takes the messages that have waited for a version of a group.
    private mutating func settle(_ group: GroupState, _ now: Timestamp, _ unit: inout Unit) throws {
        for (reference, sequence) in memory.wantedGroups
        where reference.group == group.id && group.chain.has(reference.digest) {
            memory.wantedGroups[reference] = nil
            append(.removeRecord(.chatGroup, name: Self.wantName(sequence)), &unit)
        }
        try releaseKnown(group, now, &unit)
        try wantHeld(of: group.id, now, &unit)
    }

    /// Asks for the versions of held messages that were not asked for at their time.
    private mutating func wantHeld(of group: GroupID, _ now: Timestamp, _ unit: inout Unit) throws {
        // Others may have room where one sender has none.
        var refused: Set<AccountID?> = []
        for held in memory.held where held.reference.group == group {
            let owner = own.owner(of: held.device)
            guard !refused.contains(owner) else { continue }
            if try !want(held.reference, by: owner, now, &unit) { refused.insert(owner) }
        }
    }

    /// Gives a version up. Messages under it are shown if the newest known version has their writer.
    private mutating func refuse(
        _ reference: GroupReference, _ refusal: GroupRefusal, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        if let sequence = memory.wantedGroups.removeValue(forKey: reference) {
            append(.removeRecord(.chatGroup, name: Self.wantName(sequence)), &unit)
        }
        report(.groupRefused(reference, refusal), &unit)
        // A member that has been asked in vain has taken another version meanwhile.
        let isFork = refusal == .fork || refusal == .undecidedFork || introducesItself && refusal == .unavailable
        try release(isFork ? memory.groups[reference.group] : nil, now, &unit) { $0.reference == reference }
        if let group = memory.groups[reference.group] { try releaseKnown(group, now, &unit) }
        try wantHeld(of: reference.group, now, &unit)
    }

    /// Takes the held messages of known versions, up to the first of each device whose version is not known.
    private mutating func releaseKnown(_ group: GroupState, _ now: Timestamp, _ unit: inout Unit) throws {
        var (released, blocked): (Set<UInt64>, Set<DeviceID>) = ([], [])
        for held in memory.held where held.reference.group == group.id {
            if group.chain.has(held.reference.digest), !blocked.contains(held.device) {
                released.insert(held.sequence)
            } else {
                blocked.insert(held.device)
            }
        }
        try release(group, now, &unit) { released.contains($0.sequence) }
    }

    /// Takes held messages, or drops them if there is no group.
    private mutating func release(
        _ group: GroupState?, _ now: Timestamp, _ unit: inout Unit, _ isReleased: (HeldMessage) -> Bool
    ) throws {
        for held in memory.held where held.reference.group == group?.id ?? held.reference.group {
            guard isReleased(held) else { continue }
            memory.held.removeAll { $0.sequence == held.sequence }
            let name = Self.heldName(held.sequence)
            guard let row = try record(.chatGroup, name) else { continue }
            append(.removeRecord(.chatGroup, name: name), &unit)
            guard let group else { continue }
            var cursor = ByteCursor(try sealer.open(row.value, label: Self.label(row)))
            _ = try cursor.field()
            let device = DeviceID(try cursor.uint64())
            let message = MessageReference(device: device, message: MessageID(try cursor.uint64()))
            let owner = AccountID(text: String(decoding: try cursor.field(), as: UTF8.self))
            let user = owner == .own ? account : owner.name
            // Whatever is wrong with a message, its version counts.
            do {
                let content = try ChatContent(stored: try Body(cursor.rest()))
                try take(content, message, in: group, from: owner, now, &unit)
            } catch let error as OpenError {
                // It was sealed again for a new session while it was held.
                if error.reason != .copy { report(.unreadable(user, error.reason), &unit) }
            } catch let error as EnvelopeError {
                report(.unreadable(user, OpenFailure(error)), &unit)
            }
        }
    }

    // MARK: Receipts

    /// Notes what a person has confirmed of an own message. In a group it counts when all members have confirmed it.
    ///
    /// - Returns: whether that changes the message.
    func note(_ state: DeliveryState, of person: AccountID, on message: inout ChatMessage) -> Bool {
        guard let id = message.chat.group else {
            guard message.chat == person, message.state < state else { return false }
            message.state = state
            return true
        }
        guard let group = memory.groups[id], group.content.role(of: person) != nil,
            message.receipts[person] ?? .sent < state
        else { return false }
        message.note(state, of: person) { group.content.role(of: $0) != nil }
        let others = group.content.members.map(\.account).filter { $0 != self.person }
        let common = others.map { message.receipts[$0] ?? .sent }.min() ?? .sent
        if common > .sent { message.state = max(message.state, common) }
        return true
    }
}
