// Authentication codes of rows that are not sealed: policies, latches, devices and records.
//
// A program that can write to the file, and does not have the storage key, cannot make a code. It can still remove rows,
// and put an earlier row with its code back; neither is detected.

import Crypto
import Envelope
import Protection
package import StorePort

/// Makes and checks the authentication codes of rows.
///
/// A code is the first 16 bytes of HMAC-SHA-256 over the table and all columns of the row, under a key that HKDF-SHA-256
/// derives from the storage key. It is bound to the table and the row's key, because both are part of the input:
///
///     text: table, as its first field | each column in order
///     a number: 1 (1 B) | 8 B, big-endian
///     text or bytes: 2 (1 B) | length (4 B, big-endian) | bytes
package struct RowAuthenticator: Sendable {
    /// In bytes.
    package static let length = 16
    private static let purpose = Array("pawl row authentication 1".utf8)

    private let key: SymmetricKey

    package init(_ storageKey: StorageKey) {
        key = storageKey.withBytes {
            HKDF<SHA256>.deriveKey(
                inputKeyMaterial: SymmetricKey(data: $0), info: Self.purpose, outputByteCount: 32)
        }
    }

    /// The code of a row.
    package func code(_ row: AuthenticatedRow) -> [UInt8] {
        Array(HMAC<SHA256>.authenticationCode(for: row.bytes, using: key).prefix(Self.length))
    }

    /// - Throws: ``StoreError/altered(_:)`` if the code is not that of the row.
    package func demand(_ row: AuthenticatedRow, has code: [UInt8]) throws(StoreError) {
        let expected = self.code(row)
        guard code.count == expected.count, zip(code, expected).reduce(0, { $0 | ($1.0 ^ $1.1) }) == 0 else {
            throw StoreError.alteredRow(row.name)
        }
    }
}

/// The columns of a row that has an authentication code.
package struct AuthenticatedRow {
    /// The table, and the kind of a record, for people.
    let name: String
    fileprivate var bytes: [UInt8] = []

    /// - Parameter capacity: about the length of all columns, in bytes.
    private init(_ table: String, _ name: String? = nil, capacity: Int) {
        self.name = name ?? table
        bytes.reserveCapacity(capacity + 64)
        append(table)
    }

    private mutating func append(_ number: Int64) {
        bytes.append(1)
        append(big: UInt64(bitPattern: number), width: 8)
    }

    private mutating func append(_ text: String) { append(text.utf8) }

    private mutating func append(_ column: some Collection<UInt8>) {
        bytes.append(2)
        append(big: UInt64(column.count), width: 4)
        bytes.append(contentsOf: column)
    }

    private mutating func append(big number: UInt64, width: Int) {
        for place in (0..<width).reversed() { bytes.append(UInt8(truncatingIfNeeded: number >> UInt64(place * 8))) }
    }

    package init(policy account: String, _ policy: Int64) {
        self.init("policy", capacity: account.utf8.count)
        append(account)
        append(policy)
    }

    package init(_ row: DeviceRow) {
        self.init("device", capacity: row.account.text.utf8.count + row.sealedIdentity.count)
        append(Int64(bitPattern: row.id.value))
        append(row.account.text)
        append(row.sealedIdentity)
        append(row.createdAt)
    }

    /// - Parameters:
    ///   - first: the accounts in the order of the row, which in earlier versions was another.
    ///   - names: the names of the other end, as the two accounts know it.
    package init(conversation first: String, _ second: String, latch: Int64, since: Int64, names: (String, String)) {
        self.init("conversation", capacity: first.utf8.count + second.utf8.count)
        append(first)
        append(second)
        append(latch)
        append(since)
        append(names.0)
        append(names.1)
    }

    package init(_ row: RecordRow) { self.init(record: Int64(row.kind.rawValue), row.name, row.value) }

    /// - Parameter kind: also one that this program does not know.
    package init(record kind: Int64, _ name: String, _ value: [UInt8]) {
        let words = RecordKind(rawValue: Int(clamping: kind)).map { "\($0)" } ?? "\(kind)"
        self.init("record", "record (\(words))", capacity: name.utf8.count + value.count)
        append(kind)
        append(name)
        append(value)
    }
}
