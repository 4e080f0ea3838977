// The private prekeys of a device in this vault: the ratchet's `PreKeyStore` with a sealed row for each.

package import DoubleRatchet
import Envelope
package import Protection
package import StorePort

/// A prekey store whose changes become changes of the vault's store.
package struct PreKeys {
    /// The default limits of the ratchet.
    ///
    /// They allow a first message without a one-time prekey: anyone can use up the one-time prekeys in a directory, and
    /// must not make a person unreachable by that. Stored marks detect copies of such a message.
    package static let limits = PreKeyLimits()

    /// The first letters of row names, by kind.
    private static let letters: [PreKeyRecord.Kind: Character] = [
        .signed: "s", .kem: "k", .oneTime: "o", .begun: "b",
    ]

    private let sealer: StorageSealer
    package private(set) var store: PreKeyStore

    /// - Throws: ``StoreError/corrupt(_:)`` if a row cannot be unsealed.
    package init(sealer: StorageSealer, rows: [RecordRow]) throws(StoreError) {
        self.sealer = sealer
        var records: [PreKeyRecord] = []
        for row in rows {
            do {
                records.append(try Self.record(row, sealer))
            } catch {
                throw .corrupt("A prekey in the store cannot be unsealed: the row is damaged. Bring back a backup.")
            }
        }
        store = PreKeyStore(limits: Self.limits, records: records)
    }

    private static func record(_ row: RecordRow, _ sealer: StorageSealer) throws -> PreKeyRecord {
        var bytes = try sealer.open(row.value, label: label(row.name))
        defer { bytes.wipe() }
        guard let name = recordName(row.name) else { throw EnvelopeError.malformed }
        return try PreKeyRecord(name: name, serialized: bytes.span)
    }

    private static func recordName(_ text: String) -> PreKeyRecord.Name? {
        guard let kind = letters.first(where: { $0.value == text.first })?.key, let id = UInt32(text.dropFirst(2))
        else { return nil }
        return .init(kind, id)
    }

    /// Makes memory agree with one row after a change of it was not committed; nil if the store has no such row.
    mutating func restore(_ name: String, _ row: RecordRow?) {
        guard let recordName = Self.recordName(name) else { return }
        store.restore(recordName, to: row.flatMap { try? Self.record($0, sealer) })
    }

    // MARK: Public keys

    /// Makes a bundle: for one reader, with a one-time prekey of its own; for a directory, without.
    package mutating func bundle(
        forOne: Bool, identity: borrowing IdentityKeyPair, now: Timestamp, random: inout some RandomSource,
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

    /// Makes one-time prekeys for a directory that has `left` of them.
    package mutating func replenish(
        left: Int, now: Timestamp, random: inout some RandomSource, _ changes: inout [StoreChange]
    ) throws -> [OneTimePreKey.Public] {
        var steps: [PreKeyChange] = []
        let keys = store.makeOneTimeKeys(store.replenishment(left: left), at: now.wall, random: &random, &steps)
        try seal(steps, &random, &changes)
        return keys
    }

    // MARK: Beginnings

    /// Consumes the prekeys that a session was started with.
    package mutating func commit(
        _ beginning: consuming PreKeyStore.Beginning, now: Timestamp, random: inout some RandomSource,
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
                let sealed = try sealer.seal(bytes, label: Self.label(name), random: &random)
                changes.append(.putRecord(RecordRow(kind: .preKey, name: name, value: sealed)))
            case .remove(let name): changes.append(.removeRecord(.preKey, name: Self.name(name)))
            }
        }
    }

    private static func name(_ name: PreKeyRecord.Name) -> String {
        "\(letters[name.kind].map(String.init) ?? "") \(name.id)"
    }

    private static func label(_ name: String) -> String { "prekey " + name }
}
