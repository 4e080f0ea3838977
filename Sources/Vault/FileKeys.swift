// The keys of files: made and committed before a byte of the file is sent, and stored in the table of content keys, where
// they expire as those of messages do.
//
// A file belongs to no conversation: most backends take it before the message that names it. So its key is bound to the
// file's header, and each person who receives the file through the gateway reads it. The backend decides who that is.

package import CommitLoop
import Devices
package import Envelope
package import Protection
package import StorePort

/// A file whose key is made.
package struct SealFileJob: Sendable {
    package var connection: ConnectionID
    /// Who sends it.
    package var account: AccountID

    package init(connection: ConnectionID, account: AccountID) {
        (self.connection, self.account) = (connection, account)
    }
}

/// A sealed file whose key is looked for.
package struct OpenFileJob: Sendable {
    package var connection: ConnectionID
    package var header: SealedFile.Header

    package init(connection: ConnectionID, header: SealedFile.Header) {
        (self.connection, self.header) = (connection, header)
    }
}

extension VaultHolding {
    /// Makes the key of a file, or of all files of a form. The header is that of the first.
    ///
    /// - Parameter id: names the key; not used before.
    /// - Throws: errors of the sealer.
    package mutating func makeFileKey(_ id: MessageID, _ now: Timestamp, _ unit: inout Unit) throws -> SealedFile.Key {
        let header = SealedFile.Header(key: id, prefix: vault.randomBytes(SealedFile.prefixSize)).file(0)
        let bytes = vault.randomBytes(SealedFile.keySize)
        let retention = vault.historyRetention
        let expiry = retention > 0 ? now.wall + retention : .max
        if retention > 0 {
            let label = Vault.label(ofFileKey: id, header.digest, expiry)
            let sealed = try vault.sealer.seal(bytes, label: label, random: &vault.sessionCache.random)
            unit.changes.append(
                .putContentKey(
                    ContentKeyRow(message: id, digest: header.digest, expiresAt: expiry, sealedKey: sealed)))
        }
        unit.changes.append(.spendMessageID(id.value))
        let key = ContentKey(message: id, digest: header.digest, expiresAt: expiry, bytes: bytes)
        unit.onCommit { state, _, _ in state.vault.contentKeys.remember(key) }
        return SealedFile.Key(header, key)
    }
}

extension Vault {
    /// The place to which the sealed key of a file is bound. Not that of a message with the same id.
    package static func label(ofFileKey id: MessageID, _ digest: EnvelopeDigest, _ expiry: Int64) -> String {
        "file key \(id.value) \(digest.name) \(expiry)"
    }

    /// Finds the key of a file.
    ///
    /// - Parameter highest: the highest message id that was assigned.
    /// - Throws: ``OpenFailure/forgotten`` if it has expired, ``OpenFailure/notAuthentic`` if it never was of this file.
    package func fileKey(
        _ header: SealedFile.Header, highest: UInt64, _ now: Timestamp
    ) throws(OpenError) -> SealedFile.Key {
        let id = header.key
        // That of the file, or of the first file of its form. The file's own header is authenticated with its chunks.
        let digests = [header.digest, header.file(0).digest]
        let remembered = contentKeys.key(of: id)
        if let remembered, digests.contains(remembered.digest) {
            guard remembered.expiresAt > now.wall else { throw OpenError(reason: .forgotten) }
            return SealedFile.Key(header, remembered)
        }
        var rows: [ContentKeyRow] = []
        if historyRetention > 0 {
            do { rows = try store.contentKeys(of: [id]) } catch { throw OpenError(reason: .store) }
        }
        guard let row = rows.first(where: { digests.contains($0.digest) }) else {
            // The id belongs to something else, or was not assigned yet.
            let isAltered = remembered != nil || !rows.isEmpty || id.value > highest
            throw OpenError(reason: isAltered ? .notAuthentic : .forgotten)
        }
        guard row.expiresAt > now.wall, id >= firstReadable(now) else { throw OpenError(reason: .forgotten) }
        let label = Self.label(ofFileKey: id, row.digest, row.expiresAt)
        guard let bytes = try? sealer.open(row.sealedKey, label: label) else {
            throw OpenError(reason: .notAuthentic)
        }
        let key = ContentKey(message: id, digest: row.digest, expiresAt: row.expiresAt, bytes: bytes)
        contentKeys.remember(key)
        return SealedFile.Key(header, key)
    }
}
