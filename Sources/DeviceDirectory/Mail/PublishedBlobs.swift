// Blobs that people's devices have published: opaque, and found by a random id of 128 bits.

import Envelope
package import Protection
package import StorePort

/// Sizes and owners of the published blobs; the store holds the bytes.
package struct PublishedBlobs {
    /// Ours: bytes of one blob, blobs and bytes of one account, bytes of all blobs. They do not expire, because a device
    /// that is added later reads versions of groups: an account makes one with each change of a group.
    package static let sizeLimit = 256 << 10
    static let accountLimit = 1000
    static let accountBytes = 16 << 20
    static let totalBytes = 1 << 30
    /// Ours: blobs that are read at a time when the process starts, so that few of them are in memory, 16 MiB at most.
    static let pageLimit = 64

    private var sizes: [String: (owner: AccountID, size: Int)] = [:]
    private var accounts: [AccountID: (count: Int, bytes: Int)] = [:]
    private var bytes = 0

    /// - Throws: ``StoreError/corrupt(_:)``.
    package init(store: any Store) throws(StoreError) {
        // The last ids first: all ids are hexadecimal digits.
        var end = "g"
        while true {
            let page = try store.records(.blob, from: "", to: end, last: Self.pageLimit)
            for row in page {
                var cursor = ByteCursor(row.value)
                guard let owner = try? cursor.field() else {
                    throw .corrupt("A blob in the store is damaged. Bring back a backup: pawl restore FILE.")
                }
                note(row.name, AccountID(text: String(decoding: owner, as: UTF8.self)), row.value.count)
            }
            guard let first = page.first?.name else { return }
            end = first
        }
    }

    private mutating func note(_ id: String, _ owner: AccountID, _ size: Int) {
        sizes[id] = (owner, size)
        accounts[owner, default: (0, 0)].count += 1
        accounts[owner]?.bytes += size
        bytes += size
    }

    /// Reloads the entry of a blob after a change of it was not committed.
    ///
    /// - Parameter value: the row's value; nil if the store has no such row.
    mutating func restore(_ id: String, _ value: [UInt8]?) {
        forget(id)
        guard let value else { return }
        var cursor = ByteCursor(value)
        guard let owner = try? cursor.field() else { return }
        note(id, AccountID(text: String(decoding: owner, as: UTF8.self)), value.count)
    }

    private mutating func forget(_ id: String) {
        guard let entry = sizes.removeValue(forKey: id) else { return }
        accounts[entry.owner]?.count -= 1
        accounts[entry.owner]?.bytes -= entry.size
        bytes -= entry.size
    }

    package mutating func publish(
        _ blob: [UInt8], as id: String, by owner: AccountID, _ changes: inout [StoreChange]
    ) throws(MailRefusal) {
        let known = accounts[owner] ?? (0, 0)
        guard known.count < Self.accountLimit, known.bytes + blob.count <= Self.accountBytes,
            bytes + blob.count <= Self.totalBytes
        else { throw .full }
        var value: [UInt8] = []
        value.append(field: Array(owner.text.utf8))
        value += blob
        note(id, owner, value.count)
        changes.append(.putRecord(RecordRow(kind: .blob, name: id, value: value)))
    }

    package func read(_ id: String, _ store: any Store) throws(StoreError) -> [UInt8]? {
        guard sizes[id] != nil, let row = try store.record(.blob, name: id) else { return nil }
        var cursor = ByteCursor(row.value)
        guard (try? cursor.field()) != nil else { return nil }
        return cursor.rest()
    }

    /// Removes a blob. Only the account that has published it may do so.
    package mutating func remove(_ id: String, by owner: AccountID, _ changes: inout [StoreChange]) throws(MailRefusal)
    {
        guard let entry = sizes[id], entry.owner == owner else { throw .notFound }
        forget(id)
        changes.append(.removeRecord(.blob, name: id))
    }
}
