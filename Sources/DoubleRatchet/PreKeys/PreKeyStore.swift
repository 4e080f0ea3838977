/// The private prekeys of one device (PQXDH, sections 3.2 and 3.4): signed, last-resort KEM and one-time prekeys.
///
/// It has no clock, randomness or file. Times are arguments, in milliseconds of a clock that does not run backwards
/// over restarts. Every step appends its changes to the caller's list. The caller stores the list in one transaction
/// before a public key is published, or together with the session that a first message has started.
///
/// It is a value, so that the caller can restore the earlier one if a transaction fails. Using both would accept a
/// one-time prekey twice.
public struct PreKeyStore: Sendable {
    // The keys cannot be copied; copies of the store share them.

    final class Signed: Sendable {
        package let key: SignedPreKey
        let madeAt: Int64

        init(_ key: consuming SignedPreKey, madeAt: Int64) {
            self.key = key
            self.madeAt = madeAt
        }
    }

    final class KEM: Sendable {
        package let key: KEMPreKey
        let madeAt: Int64

        init(_ key: consuming KEMPreKey, madeAt: Int64) {
            self.key = key
            self.madeAt = madeAt
        }
    }

    final class OneTime: Sendable {
        /// Never nil; optional because a session takes an optional key.
        package let key: OneTimePreKey?
        package let publicKey: OneTimePreKey.Public
        let madeAt: Int64

        init(_ key: consuming OneTimePreKey, madeAt: Int64) {
            publicKey = key.publicKey
            self.key = consume key
            self.madeAt = madeAt
        }

        package func serialize(into output: inout [UInt8]) {
            switch key {
            case .some(let key): key.serialize(into: &output)
            case .none: break
            }
        }
    }

    /// A session that started without any one-time key.
    struct Begun: Sendable {
        package let session: Bytes32
        let madeAt: Int64
    }

    /// The limits passed to the initializer.
    public let limits: PreKeyLimits
    private(set) var signed: [UInt32: Signed] = [:]
    private(set) var kem: [UInt32: KEM] = [:]
    private(set) var oneTime: [UInt32: OneTime] = [:]
    private(set) var begun: [UInt32: Begun] = [:]
    private var lastID: UInt32 = 0

    /// Makes a store from stored records, in any order; a new device has none.
    public init(limits: PreKeyLimits = PreKeyLimits(), records: some Sequence<PreKeyRecord> = []) {
        self.limits = limits
        for record in records { insert(record) }
    }

    private mutating func insert(_ record: PreKeyRecord) {
        lastID = max(lastID, record.name.number)
        switch record.content {
        case .signed(let key): signed[record.name.id] = key
        case .kem(let key): kem[record.name.id] = key
        case .oneTime(let key): oneTime[record.name.id] = key
        case .begun(let session): begun[record.name.id] = Begun(session: session, madeAt: record.madeAt)
        }
    }

    /// Makes one record agree with stored state after a change of it could not be stored. Ids are not reused.
    ///
    /// - Parameters:
    ///   - name: the name of the record.
    ///   - record: the stored record; nil if nothing is stored under this name.
    public mutating func restore(_ name: PreKeyRecord.Name, to record: PreKeyRecord?) {
        switch name.kind {
        case .signed: signed[name.id] = nil
        case .kem: kem[name.id] = nil
        case .oneTime: oneTime[name.id] = nil
        case .begun: begun[name.id] = nil
        }
        if let record { insert(record) }
    }

    /// The number of unused one-time prekeys.
    public var oneTimeCount: Int { oneTime.count }

    /// The number of unused one-time KEM prekeys.
    public var oneTimeKEMCount: Int { kem.values.count { !$0.key.publicKey.isLastResort } }

    // MARK: Rotation

    /// Whether a new signed prekey or last-resort KEM prekey is due at `now`.
    public func isRotationDue(at now: Int64) -> Bool { newestSigned(at: now) == nil || lastResort(at: now) == nil }

    /// Makes a signed prekey and a last-resort KEM prekey if the newest ones are too old to be published.
    ///
    /// Then it also drops expired signed and KEM prekeys and marks. If none is due, nothing changes.
    ///
    /// - Parameters:
    ///   - identity: signs the new prekeys.
    ///   - now: the caller's time, in milliseconds.
    ///   - random: 32 bytes are taken for a signed prekey, 64 for a KEM prekey.
    ///   - changes: the changes to store are appended.
    /// - Returns: whether there are new prekeys to publish.
    public mutating func rotate(
        identity: borrowing IdentityKeyPair, at now: Int64, random: inout some RandomSource,
        _ changes: inout [PreKeyChange]
    ) -> Bool {
        guard isRotationDue(at: now) else { return false }
        let old = (
            signed.filter { now - $0.value.madeAt >= limits.lifetime }.keys.sorted(),
            kem.filter { now - $0.value.madeAt >= limits.lifetime }.keys.sorted(),
            begun.filter { now - $0.value.madeAt >= limits.lifetime }.keys.sorted()
        )
        for id in old.0 { remove(.init(.signed, id), &changes) }
        for id in old.1 { remove(.init(.kem, id), &changes) }
        for id in old.2 { remove(.init(.begun, id), &changes) }
        if newestSigned(at: now) == nil {
            let key = SignedPreKey(id: nextID(), identity: identity, random: &random)
            let id = key.publicKey.id
            put(
                PreKeyRecord(name: .init(.signed, id), madeAt: now, content: .signed(Signed(key, madeAt: now))),
                &changes)
        }
        if lastResort(at: now) == nil { _ = makeKEM(isLastResort: true, identity: identity, now, &random, &changes) }
        return true
    }

    /// The signed prekey to publish. One without the mark for padded headers was made by an earlier version of this
    /// library: it starts sessions until it expires, and is not published any more.
    private func newestSigned(at now: Int64) -> Signed? {
        signed.filter { now - $0.value.madeAt < limits.rotation && $0.value.key.publicKey.version == .paddedHeader }
            .max { $0.key < $1.key }?.value
    }

    private func lastResort(at now: Int64) -> KEM? {
        kem.filter { $0.value.key.publicKey.isLastResort && now - $0.value.madeAt < limits.rotation }
            .max { $0.key < $1.key }?.value
    }

    // MARK: One-time keys

    /// The number of one-time keys to make and publish if a directory has `left`: zero from the low watermark on.
    public func replenishment(left: Int) -> Int { left < limits.lowWatermark ? max(0, limits.published - left) : 0 }

    /// Makes one-time prekeys. Beyond the limit the oldest unused ones are dropped. Takes 32 bytes of `random` for
    /// each.
    public mutating func makeOneTimeKeys(
        _ count: Int, at now: Int64, random: inout some RandomSource, _ changes: inout [PreKeyChange]
    ) -> [OneTimePreKey.Public] {
        (0..<count).map { _ in
            if oneTime.count >= limits.oneTime, let oldest = oneTime.keys.min() {
                remove(.init(.oneTime, oldest), &changes)
            }
            let key = OneTime(OneTimePreKey(id: nextID(), random: &random), madeAt: now)
            put(
                PreKeyRecord(name: .init(.oneTime, key.publicKey.id), madeAt: now, content: .oneTime(key)), &changes)
            return key.publicKey
        }
    }

    /// Makes one-time KEM prekeys. Beyond the limit the oldest unused ones are dropped. Takes 64 bytes of `random` for
    /// each.
    public mutating func makeOneTimeKEMKeys(
        _ count: Int, identity: borrowing IdentityKeyPair, at now: Int64, random: inout some RandomSource,
        _ changes: inout [PreKeyChange]
    ) -> [KEMPreKey.Public] {
        var made: [KEMPreKey.Public] = []
        for _ in 0..<count {
            let waiting = kem.filter { !$0.value.key.publicKey.isLastResort }
            if waiting.count >= limits.oneTimeKEM, let oldest = waiting.keys.min() {
                remove(.init(.kem, oldest), &changes)
            }
            made.append(makeKEM(isLastResort: false, identity: identity, now, &random, &changes))
        }
        return made
    }

    private mutating func makeKEM(
        isLastResort: Bool, identity: borrowing IdentityKeyPair, _ now: Int64, _ random: inout some RandomSource,
        _ changes: inout [PreKeyChange]
    ) -> KEMPreKey.Public {
        let made = KEM(
            KEMPreKey(id: nextID(), isLastResort: isLastResort, identity: identity, random: &random), madeAt: now)
        let publicKey = made.key.publicKey
        put(PreKeyRecord(name: .init(.kem, publicKey.id), madeAt: now, content: .kem(made)), &changes)
        return publicKey
    }

    // MARK: Bundles

    /// The bundle that a directory publishes besides one-time keys. Rotates if that is due.
    public mutating func bundle(
        identity: borrowing IdentityKeyPair, at now: Int64, random: inout some RandomSource,
        _ changes: inout [PreKeyChange]
    ) -> PreKeyBundle {
        _ = rotate(identity: identity, at: now, random: &random, &changes)
        guard let newest = newestSigned(at: now), let lastResort = lastResort(at: now) else {
            preconditionFailure("what was due has just been made")
        }
        return PreKeyBundle(
            identity: identity.publicKey, signedPreKey: newest.key.publicKey, kemPreKey: lastResort.key.publicKey,
            oneTimePreKey: nil)
    }

    /// Makes a bundle for one reader only, with a one-time prekey of its own, and a one-time KEM prekey if `withKEM` is
    /// true.
    public mutating func bundleForOne(
        identity: borrowing IdentityKeyPair, withKEM: Bool = false, at now: Int64, random: inout some RandomSource,
        _ changes: inout [PreKeyChange]
    ) -> PreKeyBundle {
        let shared = bundle(identity: identity, at: now, random: &random, &changes)
        let once = makeOneTimeKeys(1, at: now, random: &random, &changes).first
        let kem =
            withKEM ? makeOneTimeKEMKeys(1, identity: identity, at: now, random: &random, &changes).first : nil
        return PreKeyBundle(
            identity: shared.identity, signedPreKey: shared.signedPreKey, kemPreKey: kem ?? shared.kemPreKey,
            oneTimePreKey: once)
    }

    // MARK: Rows

    private mutating func nextID() -> UInt32 {
        lastID &+= 1
        return lastID
    }

    private mutating func put(_ record: PreKeyRecord, _ changes: inout [PreKeyChange]) {
        switch record.content {
        case .signed(let key): signed[record.name.id] = key
        case .kem(let key): kem[record.name.id] = key
        case .oneTime(let key): oneTime[record.name.id] = key
        case .begun(let session): begun[record.name.id] = Begun(session: session, madeAt: record.madeAt)
        }
        changes.append(.put(record))
    }

    mutating func remember(session: Bytes32, at now: Int64, _ changes: inout [PreKeyChange]) {
        put(
            PreKeyRecord(name: .init(.begun, nextID()), madeAt: now, content: .begun(session: session)), &changes)
    }

    package mutating func remove(_ name: PreKeyRecord.Name, _ changes: inout [PreKeyChange]) {
        switch name.kind {
        case .signed: signed[name.id] = nil
        case .kem: kem[name.id] = nil
        case .oneTime: oneTime[name.id] = nil
        case .begun: begun[name.id] = nil
        }
        changes.append(.remove(name))
    }
}
