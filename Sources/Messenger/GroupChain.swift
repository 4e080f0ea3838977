// The configuration of a group: all its versions, each signed by the device of a member that was allowed to make it. It
// knows no store and no session.

import Crypto
import Devices
package import DoubleRatchet
package import Envelope
package import Protection

/// What names a group: the first 16 bytes of the digest of its first version.
package struct GroupID: Hashable, Sendable, Comparable {
    package static let byteCount = 16

    /// 32 hexadecimal digits.
    package let text: String

    package var bytes: [UInt8] {
        let parts = [text.prefix(16), text.suffix(16)].compactMap { UInt64(hexadecimal: $0) }
        var output: [UInt8] = []
        for part in parts { output.append(bigEndian: part) }
        return output
    }

    /// - Parameter bytes: 16 bytes, or more of which the first 16 count.
    init(_ bytes: [UInt8]) {
        var cursor = ByteCursor(Array(bytes.prefix(Self.byteCount)))
        let numbers = [(try? cursor.uint64()) ?? 0, (try? cursor.uint64()) ?? 0]
        text = numbers.map { DeviceID($0).name }.joined()
    }

    /// Reads ``text`` and no other form.
    package init?(_ text: String) {
        guard text.utf8.count == 32, UInt64(hexadecimal: text.prefix(16)) != nil,
            UInt64(hexadecimal: text.suffix(16)) != nil
        else { return nil }
        self.text = text
    }

    package static func < (left: GroupID, right: GroupID) -> Bool { left.text < right.text }
}

/// What a member may do.
package enum GroupRole: UInt8, Sendable, CaseIterable {
    /// Writes, and leaves.
    case member = 0
    /// Also renames the group, and adds and removes members that are not moderators.
    case moderator = 1
    /// The person that made the group: also removes and appoints moderators. There is at most one.
    case owner = 2
}

/// A member of a group.
package struct GroupMember: Hashable, Sendable {
    package var account: AccountID
    package var role: GroupRole

    package init(_ account: AccountID, _ role: GroupRole = .member) { (self.account, self.role) = (account, role) }
}

/// What a version of a group says.
package struct GroupContent: Equatable, Sendable {
    /// Ours: every message is sealed for each device of each member.
    package static let memberLimit = 32
    /// Ours: bytes of the group's name.
    package static let nameLimit = 128
    /// Ours: bytes of the app's own data.
    package static let metadataLimit = 1024
    /// Ours: bytes of a member's name.
    package static let memberNameLimit = 255

    package var name: String
    package var metadata: [UInt8]
    /// Sorted by account, each account once.
    package var members: [GroupMember]

    package init(name: String, metadata: [UInt8] = [], members: [GroupMember]) {
        (self.name, self.metadata) = (name, metadata)
        self.members = members.sorted { $0.account < $1.account }
    }

    package func role(of account: AccountID) -> GroupRole? { members.first { $0.account == account }?.role }

    /// Whether all limits hold, each member is there once, and at most one is the owner.
    var isValid: Bool {
        let accounts = members.map(\.account)
        return (1...Self.memberLimit).contains(members.count) && name.utf8.count <= Self.nameLimit
            && metadata.count <= Self.metadataLimit && Set(accounts).count == accounts.count
            && accounts == accounts.sorted()
            && accounts.allSatisfy { (1...Self.memberNameLimit).contains($0.name.utf8.count) }
            && members.count { $0.role == .owner } <= 1
    }

    /// Whether a member of this version may make another one the next.
    func allows(_ next: GroupContent, by signer: AccountID) -> Bool {
        guard next.isValid, let role = role(of: signer) else { return false }
        var left = self
        left.members.removeAll { $0.account == signer }
        // Every member may leave, except the last one.
        if next == left { return true }
        let added = next.members.filter { self.role(of: $0.account) == nil }
        switch role {
        case .member: return false
        case .moderator:
            let others = members.filter { $0.role != .member }
            return added.allSatisfy { $0.role == .member }
                && next.members.allSatisfy { self.role(of: $0.account) ?? .member == $0.role }
                && others.allSatisfy { next.members.contains($0) }
        // The owner stays the owner, and nobody else becomes it.
        case .owner: return next.role(of: signer) == .owner
        }
    }
}

/// One version, with its signature.
///
///     name (2 B length) | metadata (2 B length) | members (1 B) | each: role (1 B), name (2 B length) |
///     random (8 B) | signer (2 B length) | device (8 B) | signature (64 B)
///
/// The device's identity key signs the digest of the version before (32 zeros for the first) and all before the
/// signature; context `pawl group version`. The digest of a version: SHA-256 of the digest before and the version.
package struct GroupVersion: Equatable, Sendable {
    fileprivate static let context = "pawl group version"
    fileprivate static let digestSize = 32

    package let content: GroupContent
    /// Makes groups with the same first version differ.
    let random: UInt64
    /// The name of the member that has made it.
    package let signer: AccountID
    package let device: DeviceID
    let signature: [UInt8]
    /// Of this version and all before it: SHA-256, 32 bytes.
    package let digest: [UInt8]

    init(
        _ content: GroupContent, after previous: [UInt8], random: UInt64, by signer: AccountID, _ device: DeviceID,
        _ identity: borrowing IdentityKeyPair
    ) {
        (self.content, self.random, self.signer, self.device) = (content, random, signer, device)
        let signed = Self.signed(content, random, signer, device)
        signature = identity.sign((previous + signed).span, context: Self.context)
        digest = Array(SHA256.hash(data: previous + signed + signature))
    }

    func isSigned(by identity: IdentityKey, after previous: [UInt8]) -> Bool {
        let signed = previous + Self.signed(content, random, signer, device)
        return identity.isValidSignature(signature.span, of: signed.span, context: Self.context)
    }

    private static func signed(
        _ content: GroupContent, _ random: UInt64, _ signer: AccountID, _ device: DeviceID
    ) -> [UInt8] {
        var output: [UInt8] = []
        output.append(field: Array(content.name.utf8))
        output.append(field: content.metadata)
        output.append(UInt8(content.members.count))
        for member in content.members {
            output.append(member.role.rawValue)
            output.append(field: Array(member.account.name.utf8))
        }
        output.append(bigEndian: random)
        output.append(field: Array(signer.name.utf8))
        output.append(bigEndian: device.value)
        return output
    }

    fileprivate var bytes: [UInt8] { Self.signed(content, random, signer, device) + signature }

    fileprivate init(_ cursor: inout ByteCursor, after previous: [UInt8]) throws(EnvelopeError) {
        func text() throws(EnvelopeError) -> String {
            guard let text = String(validating: try cursor.field(), as: UTF8.self) else { throw .malformed }
            return text
        }
        let name = try text()
        let metadata = try cursor.field()
        var members: [GroupMember] = []
        for _ in 0..<(try cursor.byte()) {
            guard let role = GroupRole(rawValue: try cursor.byte()) else { throw .malformed }
            members.append(GroupMember(.services(try text()), role))
        }
        let content = GroupContent(name: name, metadata: metadata, members: members)
        guard content.members == members, content.isValid else { throw .malformed }
        self.content = content
        random = try cursor.uint64()
        signer = .services(try text())
        device = DeviceID(try cursor.uint64())
        signature = try cursor.take(64)
        digest = Array(SHA256.hash(data: previous + Self.signed(content, random, signer, device) + signature))
    }
}

/// All versions of a group.
///
///     form 1 (1 B) | versions (1 B) | each: see ``GroupVersion``
///
/// Reading it checks that each version was allowed by the one before, and not the signatures: see ``isSigned(_:by:)``.
package struct GroupChain: Equatable, Sendable {
    /// Ours: versions of one group. A group with more changes has to be made anew.
    package static let versionLimit = 200
    /// Ours: bytes of the form. It has to fit into a row and into the blobs of a server.
    package static let maximumLength = 60_000
    private static let form: UInt8 = 1

    package private(set) var versions: [GroupVersion]

    package var id: GroupID { GroupID(versions[0].digest) }
    package var last: GroupVersion { versions[versions.count - 1] }
    package var content: GroupContent { last.content }

    /// A new group, whose maker owns it.
    ///
    /// - Returns: nil if a limit does not hold.
    init?(
        _ content: GroupContent, random: UInt64, by owner: AccountID, _ device: DeviceID,
        _ identity: borrowing IdentityKeyPair
    ) {
        guard content.isValid, content.role(of: owner) == .owner else { return nil }
        versions = [
            GroupVersion(
                content, after: [UInt8](repeating: 0, count: GroupVersion.digestSize), random: random, by: owner,
                device, identity)
        ]
    }

    /// The group with one version more.
    ///
    /// - Returns: nil if the signer may not make it, or if a limit is reached.
    package func adding(
        _ content: GroupContent, random: UInt64, by signer: AccountID, _ device: DeviceID,
        _ identity: borrowing IdentityKeyPair
    ) -> GroupChain? {
        guard versions.count < Self.versionLimit, self.content.allows(content, by: signer) else { return nil }
        var longer = self
        longer.versions.append(
            GroupVersion(content, after: last.digest, random: random, by: signer, device, identity))
        return longer.bytes.count <= Self.maximumLength ? longer : nil
    }

    /// Whether this is the same group as another one, or a later version of it.
    package func continues(_ other: GroupChain) -> Bool { versions.starts(with: other.versions) }

    /// The number of versions with which both begin.
    func common(with other: GroupChain) -> Int { zip(versions, other.versions).prefix { $0.0 == $0.1 }.count }

    /// Whether a version has this digest.
    package func has(_ digest: [UInt8]) -> Bool { versions.contains { $0.digest == digest } }

    /// The group as it was in a version; nil if none has this digest.
    func version(_ digest: [UInt8]) -> GroupChain? {
        guard let place = versions.firstIndex(where: { $0.digest == digest }) else { return nil }
        var earlier = self
        earlier.versions = Array(versions[...place])
        return earlier
    }

    /// Whether a version is signed by a key.
    func isSigned(_ number: Int, by identity: IdentityKey) -> Bool {
        let previous =
            number == 0 ? [UInt8](repeating: 0, count: GroupVersion.digestSize) : versions[number - 1].digest
        return versions[number].isSigned(by: identity, after: previous)
    }

    /// How two chains of one group that do not continue each other are decided.
    enum Fork: Equatable {
        /// The other one counts.
        case taken
        /// This one counts.
        case kept
        /// Neither: only the owner can decide, by one more version.
        case undecided
    }

    /// Decides between versions that were made at the same time, so that all members come to the same result.
    ///
    /// A branch with a version of the owner goes before one without. If both have one, the owner has used two devices:
    /// the branch with more versions of the owner counts, then the smaller digest of the first ones. What a removed device
    /// has made does not count unless a listed one has gone on from it: the owner may never have got it. If only such
    /// versions of the owner are there, it is undecided: those whom they have removed could bring an earlier version back.
    /// If neither branch has one of the owner, and each has a single version, that of a listed device counts, then the
    /// smaller digest. Longer branches of moderators are undecided: one of them could rewrite what was long agreed.
    ///
    /// - Parameter isListed: false if the device that has made a version was removed from its person's list.
    func fork(with other: GroupChain, isListed: (GroupVersion) -> Bool) -> Fork {
        let common = common(with: other)
        guard common > 0 else { return .undecided }
        let (own, theirs) = (versions[common...], other.versions[common...])
        guard let mine = own.first, let their = theirs.first else { return own.isEmpty ? .taken : .kept }
        let digests: (mine: [UInt8], their: [UInt8])
        let owned = (mine: ownerVersions(from: common), their: other.ownerVersions(from: common))
        let counts = (Self.count(owned.mine, isListed), Self.count(owned.their, isListed))
        guard counts.0 == counts.1 else { return counts.0 < counts.1 ? .taken : .kept }
        if counts.0 > 0 {
            digests = (owned.mine[0].digest, owned.their[0].digest)
        } else {
            guard owned.mine.isEmpty, owned.their.isEmpty, own.count == 1, theirs.count == 1 else { return .undecided }
            guard isListed(mine) == isListed(their) else { return isListed(mine) ? .kept : .taken }
            digests = (mine.digest, their.digest)
        }
        return digests.their.lexicographicallyPrecedes(digests.mine) ? .taken : .kept
    }

    /// The versions from a number on, at least 1, that the owner has made.
    private func ownerVersions(from number: Int) -> [GroupVersion] {
        versions.indices.dropFirst(number)
            .filter { place in versions[place - 1].content.role(of: versions[place].signer) == .owner }
            .map { versions[$0] }
    }

    /// How many of the owner's versions there are up to the last one of a listed device.
    private static func count(_ versions: [GroupVersion], _ isListed: (GroupVersion) -> Bool) -> Int {
        versions.lastIndex(where: isListed).map { $0 + 1 } ?? 0
    }

    /// The versions from a number on, at least 1, that a removed device has made, and that do not count: no listed device
    /// of a member that had at least the signer's role before them has gone on from them.
    ///
    /// - Parameter isListed: false if the device that has made a version was removed from its person's list.
    func unconfirmed(from number: Int, isListed: (GroupVersion) -> Bool) -> [GroupVersion] {
        let listed = versions.indices.filter { $0 >= number && isListed(versions[$0]) }
        return versions.indices.dropFirst(number).filter { place in
            let before = versions[place - 1].content
            func rank(_ version: GroupVersion) -> Int { before.role(of: version.signer).map { Int($0.rawValue) } ?? -1 }
            let isConfirmed = listed.contains { $0 >= place && rank(versions[$0]) >= rank(versions[place]) }
            return !isConfirmed
        }
        .map { versions[$0] }
    }

    package var bytes: [UInt8] {
        [Self.form, UInt8(versions.count)] + versions.flatMap(\.bytes)
    }

    /// Reads the form above, and checks that each version was allowed by the one before.
    ///
    /// - Throws: ``EnvelopeError``
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        guard bytes.count <= Self.maximumLength else { throw .malformed }
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        guard form == Self.form else { throw .unsupportedVersion(form) }
        let count = Int(try cursor.byte())
        guard (1...Self.versionLimit).contains(count) else { throw .malformed }
        versions = []
        for _ in 0..<count {
            let previous = versions.last?.digest ?? [UInt8](repeating: 0, count: GroupVersion.digestSize)
            let version = try GroupVersion(&cursor, after: previous)
            if let last = versions.last {
                guard last.content.allows(version.content, by: version.signer) else { throw .malformed }
            } else {
                guard version.content.role(of: version.signer) == .owner else { throw .malformed }
            }
            versions.append(version)
        }
        // Names of accounts are compared without case: only the form that was signed is read.
        guard cursor.isAtEnd, self.bytes == bytes else { throw .malformed }
    }
}

/// Where a version of a group is published, and the key of the blob. Every message of a group has one, so each message
/// suffices to learn the version under which it was written.
///
///     group (16 B) | digest of the version (32 B) | key (32 B) | id of the blob (1 B length)
///
/// Where no server keeps blobs, the id names the device that has sealed the message: see ``holder``.
package struct GroupReference: Hashable, Sendable {
    static let keySize = 32
    /// Ours: bytes of the id that the server has chosen for the blob.
    package static let blobLimit = 128

    package var group: GroupID
    package var digest: [UInt8]
    var key: [UInt8]
    package var blob: String

    init(group: GroupID, digest: [UInt8], key: [UInt8], blob: String) {
        (self.group, self.digest, self.key, self.blob) = (group, digest, key, blob)
    }

    package var bytes: [UInt8] {
        group.bytes + digest + key + [UInt8(blob.utf8.count)] + Array(blob.utf8)
    }

    /// - Throws: ``EnvelopeError``
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        group = GroupID(try cursor.take(GroupID.byteCount))
        digest = try cursor.take(GroupVersion.digestSize)
        key = try cursor.take(Self.keySize)
        let blob = try cursor.take(Int(try cursor.byte()))
        guard cursor.isAtEnd, (1...Self.blobLimit).contains(blob.count),
            let text = String(validating: blob, as: UTF8.self)
        else { throw .malformed }
        self.blob = text
    }

    /// What stands in place of the id of a blob where no server keeps any: `member DEVICE`.
    ///
    /// - Parameter device: the one that hands the version over to those who ask for it.
    package static func blob(at device: DeviceID) -> String { "member \(device.name)" }

    /// The device to ask for the version; nil if the id is one of a server.
    package var holder: DeviceID? {
        let parts = blob.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0] == "member" else { return nil }
        return UInt64(hexadecimal: parts[1]).map { DeviceID($0) }
    }

    private static let label = "pawl group blob"

    /// The sealed form of a group for a server: AES-256-GCM-SIV under the key, which is used for nothing else.
    package static func seal(_ chain: GroupChain, key: [UInt8], random: inout some RandomSource) throws -> [UInt8] {
        try StorageSealer(key: key).seal(chain.bytes, label: label, random: &random)
    }

    /// The group in a blob.
    ///
    /// - Throws: an error unless it is the version that this reference names.
    func open(_ blob: [UInt8]) throws -> GroupChain {
        guard blob.count <= GroupChain.maximumLength + 64 else { throw EnvelopeError.malformed }
        let chain = try GroupChain(StorageSealer(key: key).open(blob, label: Self.label))
        guard chain.id == group, chain.last.digest == digest else { throw EnvelopeError.malformed }
        return chain
    }
}

/// A group as this device knows it.
package struct GroupState: Equatable, Sendable {
    package var chain: GroupChain
    /// Where the last version is published.
    package var reference: GroupReference

    package var id: GroupID { reference.group }
    package var content: GroupContent { chain.content }

    /// The form of a row, before it is sealed: `1 | reference (2 B length) | chain (2 B length)`.
    var bytes: [UInt8] {
        var output: [UInt8] = [1]
        output.append(field: reference.bytes)
        output.append(field: chain.bytes)
        return output
    }

    init(chain: GroupChain, reference: GroupReference) { (self.chain, self.reference) = (chain, reference) }

    init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        guard form == 1 else { throw .unsupportedVersion(form) }
        reference = try GroupReference(try cursor.field())
        chain = try GroupChain(try cursor.field())
        guard cursor.isAtEnd, chain.id == reference.group else { throw .malformed }
    }
}
