// The private prekeys of a device in this vault: the ratchet's store of them, with a sealed row for each.

package import DoubleRatchet
import Envelope
package import Protection
package import StorePort

/// A store of prekeys whose changes become changes of the vault's store.
package struct PreKeyShelf {
    /// Those of the ratchet. A first message may do without a one-time prekey: anybody can use up the ones that a directory has,
    /// and must not make a person unreachable. Copies of such a message are told apart by marks that are stored.
    package static let limits = PreKeyLimits()

    /// The letters that names of rows begin with.
    private static let letters: [PreKeyRecord.Kind: Character] = [
        .signed: "s", .kem: "k", .oneTime: "o", .begun: "b",
    ]

    private let sealer: StorageSealer
    package private(set) var store: PreKeyStore

    /// - Throws: ``StoreError/corrupt(_:)`` where a row cannot be unsealed.
    package init(sealer: StorageSealer, rows: [RecordRow]) throws(StoreError) {
        self.sealer = sealer
        var records: [PreKeyRecord] = []
        for row in rows {
            do {
                var bytes = try sealer.open(row.value, place: Self.place(row.name))
                defer { bytes.wipe() }
                guard let kind = Self.letters.first(where: { $0.value == row.name.first })?.key,
                    let id = UInt32(row.name.dropFirst(2))
                else { throw EnvelopeError.malformed }
                records.append(try PreKeyRecord(name: .init(kind, id), serialized: bytes.span))
            } catch {
                throw .corrupt("A prekey in the store cannot be unsealed: the row is damaged. Bring back a backup.")
            }
        }
        store = PreKeyStore(limits: Self.limits, records: records)
    }

    // MARK: Public keys

    /// A bundle: for one reader, with a one-time prekey of its own, or for a directory, without.
    package mutating func bundle(
        forOne: Bool, identity: borrowing IdentityKeyPair, now: Moment, random: inout some RandomSource,
        _ changes: inout [StoreChange]
    ) throws -> PreKeyBundle {
        var steps: [PreKeyChange] = []
        let bundle =
            forOne
            ? store.bundleForOne(identity: identity, at: now.wall, random: &random, &steps)
            : store.bundle(identity: identity, at: now.wall, random: &random, &steps)
        try seal(steps, &random, &changes)
        return bundle
    }

    /// One-time prekeys for a directory that has `left` of them.
    package mutating func replenish(
        left: Int, now: Moment, random: inout some RandomSource, _ changes: inout [StoreChange]
    ) throws -> [OneTimePreKey.Public] {
        var steps: [PreKeyChange] = []
        let keys = store.makeOneTimeKeys(store.replenishment(left: left), at: now.wall, random: &random, &steps)
        try seal(steps, &random, &changes)
        return keys
    }

    // MARK: Beginnings

    /// Ends the prekeys that a session has begun with.
    package mutating func commit(
        _ beginning: consuming PreKeyStore.Beginning, now: Moment, random: inout some RandomSource,
        _ changes: inout [StoreChange]
    ) throws -> Session {
        var steps: [PreKeyChange] = []
        let session = try beginning.commit(to: &store, at: now.wall, &steps)
        try seal(steps, &random, &changes)
        return session
    }

    // MARK: Rows

    private func seal(
        _ steps: [PreKeyChange], _ random: inout some RandomSource, _ changes: inout [StoreChange]
    ) throws {
        var bytes: [UInt8] = []
        defer { bytes.wipe() }
        for step in steps {
            switch step {
            case .put(let record):
                bytes.wipe()
                record.serialize(into: &bytes)
                let name = Self.name(record.name)
                let sealed = try sealer.seal(bytes, place: Self.place(name), random: &random)
                changes.append(.putRecord(RecordRow(kind: .preKey, name: name, value: sealed)))
            case .remove(let name): changes.append(.removeRecord(.preKey, name: Self.name(name)))
            }
        }
    }

    private static func name(_ name: PreKeyRecord.Name) -> String {
        "\(letters[name.kind].map(String.init) ?? "") \(name.id)"
    }

    private static func place(_ name: String) -> String { "prekey " + name }
}
