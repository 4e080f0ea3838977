/// The private prekeys of one device (PQXDH, sections 3.2 and 3.4): signed ones, KEM prekeys of the last resort, and those for
/// one session only.
///
/// It has no clock, no randomness and no file. Times are arguments, in milliseconds of any clock that does not run
/// backwards over restarts; every step appends what it changes to the caller's list, and the caller stores the list in one
/// transaction before a public key leaves the device, or together with the session that a first message has begun.
///
/// It is a value, so that a transaction that fails can put back what was before it. Whoever goes on with both would accept a
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
        /// Always there; a session asks for a value that may be missing.
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

    /// A session that began without any one-time key.
    struct Begun: Sendable {
        package let session: Bytes32
        let madeAt: Int64
    }

    /// Ages and numbers, as they were given.
    public let limits: PreKeyLimits
    private(set) var signed: [UInt32: Signed] = [:]
    private(set) var kem: [UInt32: KEM] = [:]
    private(set) var oneTime: [UInt32: OneTime] = [:]
    private(set) var begun: [UInt32: Begun] = [:]
    private var lastID: UInt32 = 0

    /// A store with what was stored before, in any order; a new device has nothing.
    public init(limits: PreKeyLimits = PreKeyLimits(), records: some Sequence<PreKeyRecord> = []) {
        self.limits = limits
        for record in records {
            lastID = max(lastID, record.name.id)
            switch record.content {
            case .signed(let key): signed[record.name.id] = key
            case .kem(let key): kem[record.name.id] = key
            case .oneTime(let key): oneTime[record.name.id] = key
            case .begun(let session): begun[record.name.id] = Begun(session: session, madeAt: record.madeAt)
            }
        }
    }

    /// How many one-time prekeys wait to be used.
    public var oneTimeCount: Int { oneTime.count }

    /// How many one-time KEM prekeys wait to be used.
    public var oneTimeKEMCount: Int { kem.values.count { !$0.key.publicKey.isLastResort } }

    // MARK: Rotation

    /// Whether a signed prekey or a last-resort KEM prekey is due, at a time.
    public func isRotationDue(at now: Int64) -> Bool { newestSigned(at: now) == nil || lastResort(at: now) == nil }

    /// Makes a signed prekey and a last-resort KEM prekey where there is none young enough to be handed out, and drops
    /// those whose life has ended, with what they remember. Changes nothing while they are young.
    ///
    /// - Parameters:
    ///   - identity: signs what is made.
    ///   - now: the caller's time, in milliseconds.
    ///   - random: 32 and 64 bytes are taken for what is made.
    ///   - changes: what is to be stored is appended.
    /// - Returns: whether there is something new to publish.
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

    private func newestSigned(at now: Int64) -> Signed? {
        signed.filter { now - $0.value.madeAt < limits.rotation }.max { $0.key < $1.key }?.value
    }

    private func lastResort(at now: Int64) -> KEM? {
        kem.filter { $0.value.key.publicKey.isLastResort && now - $0.value.madeAt < limits.rotation }
            .max { $0.key < $1.key }?.value
    }

    // MARK: One-time keys

    /// How many one-time keys to make and publish where a directory has `left`: none above the low watermark.
    public func replenishment(left: Int) -> Int { left < limits.lowWatermark ? max(0, limits.published - left) : 0 }

    /// Makes one-time prekeys; beyond the limit the oldest that wait go. Takes 32 bytes of `random` for each.
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

    /// Makes one-time KEM prekeys; beyond the limit the oldest that wait go. Takes 64 bytes of `random` for each.
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

    /// What a directory publishes beside one-time keys. Rotates where that is due.
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

    /// A bundle for one reader and nobody else, with a one-time prekey of its own; with a KEM prekey of its own as well where
    /// that is asked for.
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
