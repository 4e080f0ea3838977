// The private prekeys of a device in this vault. Each is a sealed row, made when it is needed and gone when it was used or
// is old.

import DoubleRatchet
import Envelope

/// Signed, KEM and one-time prekeys.
struct PreKeyShelf {
    /// Ours: how long a signed prekey is handed out, and how long it can still be used. In milliseconds.
    static let rotation: Int64 = 7 * 86_400_000
    static let lifetime: Int64 = 30 * 86_400_000
    /// Ours: one-time prekeys that were handed out and not yet used; the oldest go first.
    static let oneTimeLimit = 500

    final class Signed {
        let key: SignedPreKey
        let madeAt: Int64
        init(_ key: consuming SignedPreKey, madeAt: Int64) {
            self.key = key
            self.madeAt = madeAt
        }
    }

    final class KEM {
        let key: KEMPreKey
        let madeAt: Int64
        init(_ key: consuming KEMPreKey, madeAt: Int64) {
            self.key = key
            self.madeAt = madeAt
        }
    }

    final class OneTime {
        /// Always there; the ratchet asks for a value that may be missing.
        let key: OneTimePreKey?
        init(_ key: consuming OneTimePreKey) { self.key = consume key }
    }

    private let sealer: StorageSealer
    private(set) var signed: [UInt32: Signed] = [:]
    private(set) var kem: [UInt32: KEM] = [:]
    private(set) var oneTime: [UInt32: OneTime] = [:]
    private var lastID: UInt32 = 0

    /// - Throws: ``StoreError/corrupt(_:)`` where a row cannot be unsealed.
    init(sealer: StorageSealer, rows: [RecordRow]) throws(StoreError) {
        self.sealer = sealer
        for row in rows {
            do {
                var cursor = ByteCursor(try sealer.open(row.value, place: Self.place(row.name)))
                let madeAt = Int64(bitPattern: try cursor.uint64())
                let key = cursor.rest()
                guard let id = UInt32(row.name.dropFirst(2)) else { throw EnvelopeError.malformed }
                lastID = max(lastID, id)
                switch row.name.first {
                case "s": signed[id] = Signed(try SignedPreKey(serialized: key.span), madeAt: madeAt)
                case "k": kem[id] = KEM(try KEMPreKey(serialized: key.span), madeAt: madeAt)
                default: oneTime[id] = OneTime(try OneTimePreKey(serialized: key.span))
                }
            } catch {
                throw .corrupt("A prekey in the store cannot be unsealed: the row is damaged. Bring back a backup.")
            }
        }
    }

    /// Whether anybody can use a bundle of this age.
    private static func isYoung(_ madeAt: Int64, _ now: Moment, than age: Int64) -> Bool { now.wall - madeAt < age }

    /// A bundle for one reader, with a one-time prekey of its own.
    mutating func bundle(
        identity: borrowing IdentityKeyPair, now: Moment, random: inout some RandomSource,
        _ changes: inout [StoreChange]
    ) throws -> PreKeyBundle {
        try rotate(identity: identity, now: now, random: &random, &changes)
        let once = try addOneTime(now: now, random: &random, &changes)
        guard let newestSigned = signed.max(by: { $0.key < $1.key })?.value,
            let newestKEM = kem.max(by: { $0.key < $1.key })?.value
        else { throw EnvelopeError.malformed }
        return PreKeyBundle(
            identity: identity.publicKey, signedPreKey: newestSigned.key.publicKey,
            kemPreKey: newestKEM.key.publicKey, oneTimePreKey: once)
    }

    /// Makes a one-time prekey.
    mutating func addOneTime(now: Moment, random: inout some RandomSource, _ changes: inout [StoreChange]) throws
        -> OneTimePreKey.Public
    {
        if oneTime.count >= Self.oneTimeLimit, let oldest = oneTime.keys.min() { remove(oneTime: oldest, &changes) }
        let key = OneTimePreKey(id: nextID(), random: &random)
        let (id, publicKey) = (key.publicKey.id, key.publicKey)
        var bytes: [UInt8] = []
        key.serialize(into: &bytes)
        changes.append(try row("o \(id)", bytes, now, &random))
        bytes.wipe()
        oneTime[id] = OneTime(key)
        return publicKey
    }

    mutating func remove(oneTime id: UInt32, _ changes: inout [StoreChange]) {
        oneTime[id] = nil
        changes.append(.removeRecord(.preKey, name: "o \(id)"))
    }

    private mutating func rotate(
        identity: borrowing IdentityKeyPair, now: Moment, random: inout some RandomSource,
        _ changes: inout [StoreChange]
    ) throws {
        guard !signed.values.contains(where: { Self.isYoung($0.madeAt, now, than: Self.rotation) }) else { return }
        for (id, key) in signed where !Self.isYoung(key.madeAt, now, than: Self.lifetime) {
            signed[id] = nil
            changes.append(.removeRecord(.preKey, name: "s \(id)"))
        }
        for (id, key) in kem where !Self.isYoung(key.madeAt, now, than: Self.lifetime) {
            kem[id] = nil
            changes.append(.removeRecord(.preKey, name: "k \(id)"))
        }
        let newSigned = SignedPreKey(id: nextID(), identity: identity, random: &random)
        var bytes: [UInt8] = []
        newSigned.serialize(into: &bytes)
        let signedID = newSigned.publicKey.id
        changes.append(try row("s \(signedID)", bytes, now, &random))
        bytes.wipe()
        signed[signedID] = Signed(newSigned, madeAt: now.wall)
        let newKEM = KEMPreKey(id: nextID(), isLastResort: true, identity: identity, random: &random)
        newKEM.serialize(into: &bytes)
        let kemID = newKEM.publicKey.id
        changes.append(try row("k \(kemID)", bytes, now, &random))
        bytes.wipe()
        kem[kemID] = KEM(newKEM, madeAt: now.wall)
    }

    private mutating func nextID() -> UInt32 {
        lastID &+= 1
        return lastID
    }

    private func row(
        _ name: String, _ key: [UInt8], _ now: Moment, _ random: inout some RandomSource
    ) throws -> StoreChange {
        var bytes: [UInt8] = []
        bytes.append(bigEndian: UInt64(bitPattern: now.wall))
        bytes += key
        defer { bytes.wipe() }
        let sealed = try sealer.seal(bytes, place: Self.place(name), random: &random)
        return .putRecord(RecordRow(kind: .preKey, name: name, value: sealed))
    }

    private static func place(_ name: String) -> String { "prekey " + name }
}
