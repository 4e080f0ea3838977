// The format of a backup: one file. It holds the storage key in the clear, because a store without its key is
// worthless, so anyone with the file can read everything. Keep it like a private key.
//
//      0          8         12        16             24        56                 56 + n
//     +----------+---------+---------+--------------+---------+------------------+----------------+
//     | PAWLBKUP | version | schema  | n            | key     | store ...        | SHA-256        |
//     +----------+---------+---------+--------------+---------+------------------+----------------+
//       8 B        4 B       4 B       8 B            32 B      n B, SQLite file   32 B, of all before
//
// That is version 1. Version 2 was written in front of a backend that speaks HTTP while its queue of writes had a file
// of its own, and is only read. It has the queue between the store and the checksum: a SQLite file as well, of the
// remaining length.
//
// Numbers are big-endian. The checksum detects damage; it is no signature.

import Crypto
import Foundation
import SQLiteKit
import StoreBase
import StorePort

/// The progress of a backup or a restore.
package struct BackupProgress: Equatable, Sendable {
    /// The current step.
    package enum Phase: String, Sendable {
        /// The store's pages are copied while it stays in use.
        case copying
        /// The backup file is written.
        case writing
        /// The backup file is checked.
        case checking
        /// The store is extracted from the backup file.
        case unpacking
    }

    package var phase: Phase
    /// In bytes.
    package var done: Int
    /// In bytes.
    package var total: Int
}

/// The first bytes of a backup file.
struct BackupHeader {
    static let magic = Array("PAWLBKUP".utf8)
    /// The version that this program writes and reads, and the one that it only reads: with a queue beside the store.
    static let (version, versionWithQueue): (UInt32, UInt32) = (1, 2)
    /// In bytes.
    static let length = 56
    /// In bytes.
    static let checksumLength = 32
    /// Ours: bytes that are read or written at a time.
    static let chunk = 1 << 20

    let schema: Int
    let key: StorageKey
    /// In bytes.
    let storeLength: Int
    /// In bytes; nil if there is no queue.
    let queueLength: Int?

    /// The header of a new backup.
    init(schema: Int, key: StorageKey, storeLength: Int) {
        (self.schema, self.key, self.storeLength) = (schema, key, storeLength)
        queueLength = nil
    }

    /// Store and queue, in bytes.
    var bodyLength: Int { storeLength + (queueLength ?? 0) }

    /// The encoded header of a new backup. It holds the key.
    var bytes: [UInt8] {
        var output = Self.magic
        Self.append(UInt64(Self.version), width: 4, to: &output)
        Self.append(UInt64(schema), width: 4, to: &output)
        Self.append(UInt64(storeLength), width: 8, to: &output)
        key.withBytes { output.append(contentsOf: $0) }
        return output
    }

    /// Decodes a header and checks it against the size of the file.
    ///
    /// - Throws: ``StoreError/corrupt(_:)``, ``StoreError/tooNew(found:known:)`` or `unavailable`.
    init(_ bytes: [UInt8], fileSize: Int, path: String) throws(StoreError) {
        guard bytes.starts(with: Self.magic) else {
            throw .notABackup(path)
        }
        guard bytes.count == Self.length else { throw .damagedBackup(path, .cutShort) }
        let version = Self.number(bytes[8..<12])
        guard version == Self.version || version == Self.versionWithQueue else {
            throw .unknownBackupFormat(path, version)
        }
        let length = Self.number(bytes[16..<24])
        guard let rest = Int(exactly: length), fileSize >= Self.length + Self.checksumLength,
            rest <= fileSize - Self.length - Self.checksumLength
        else { throw .damagedBackup(path, .cutShort) }
        let left = fileSize - Self.length - Self.checksumLength - rest
        guard left == 0 || version == Self.versionWithQueue else {
            throw .damagedBackup(path, .tooLong)
        }
        queueLength = version == Self.versionWithQueue ? left : nil
        schema = Int(Self.number(bytes[12..<16]))
        storeLength = rest
        key = StorageKey(bytes[24..<56])
    }

    private static func append(_ number: UInt64, width: Int, to output: inout [UInt8]) {
        for place in (0..<width).reversed() { output.append(UInt8(truncatingIfNeeded: number >> UInt64(place * 8))) }
    }

    private static func number(_ bytes: ArraySlice<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
}

/// A backup file that was read from end to end and found whole.
struct CheckedBackup {
    let path: String
    let header: BackupHeader

    /// - Throws: ``StoreError/corrupt(_:)``, ``StoreError/tooNew(found:known:)`` or `unavailable`.
    init(_ path: String, progress: (BackupProgress) -> Void) throws(StoreError) {
        guard FileSystem.exists(path) else { throw .noBackup(at: path) }
        var file = try OpenFile(path, O_RDONLY)
        let size = file.size
        var bytes = try file.read(upTo: BackupHeader.length)
        defer { SecretBytes.wipe(&bytes) }
        header = try BackupHeader(bytes, fileSize: size, path: path)
        self.path = path
        var hash = SHA256()
        hash.update(data: bytes)
        var left = header.bodyLength
        while left > 0 {
            let chunk = try file.read(upTo: min(left, BackupHeader.chunk))
            guard !chunk.isEmpty else { throw .damagedBackup(path, .cutShort) }
            hash.update(data: chunk)
            left -= chunk.count
            progress(BackupProgress(phase: .checking, done: header.bodyLength - left, total: header.bodyLength))
        }
        guard try file.read(upTo: BackupHeader.checksumLength) == Array(hash.finalize()) else {
            throw .damagedBackup(path, .checksum)
        }
        guard header.schema <= Schema.known else { throw .tooNew(found: header.schema, known: Schema.known) }
    }

    /// Writes the store to a new file.
    func unpack(to target: String, progress: (BackupProgress) -> Void) throws(StoreError) {
        try copy(BackupHeader.length, header.storeLength, to: target, progress)
    }

    /// Writes the queue to a new file.
    ///
    /// - Returns: whether the backup has a queue.
    func unpackQueue(to target: String, progress: (BackupProgress) -> Void) throws(StoreError) -> Bool {
        guard let length = header.queueLength else { return false }
        try copy(BackupHeader.length + header.storeLength, length, to: target, progress)
        return true
    }

    private func copy(
        _ place: Int, _ length: Int, to target: String, _ progress: (BackupProgress) -> Void
    ) throws(StoreError) {
        var file = try OpenFile(path, O_RDONLY)
        file.position = place
        var output = try OpenFile(target, O_WRONLY | O_CREAT | O_EXCL)
        var left = length
        while left > 0 {
            let chunk = try file.read(upTo: min(left, BackupHeader.chunk))
            guard !chunk.isEmpty else { throw .damagedBackup(path, .cutShort) }
            try output.write(chunk)
            left -= chunk.count
            progress(BackupProgress(phase: .unpacking, done: length - left, total: length))
        }
        try output.sync()
    }
}
