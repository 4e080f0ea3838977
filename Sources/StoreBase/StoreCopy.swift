// Copies a whole store from one driver to another, for `pawl store copy`: rows as they are, because seals bind them to their
// keys and fences. The target is read again and compared before its transaction ends.

import Crypto
import Envelope
import Protection
package import StorePort

/// The end of a copy from which rows are read.
package protocol CopySource {
    /// Reads all rows of a table, as of one moment, a part at a time.
    func read(_ table: CopiedTable, _ body: ([CopiedRow]) throws(StoreError) -> Void) throws(StoreError)
    func numbers() throws(StoreError) -> CopiedNumbers
}

/// The end of a copy to which rows are written, in a transaction that sees its own rows.
package protocol CopyTarget: CopySource {
    func write(_ rows: [CopiedRow], _ table: CopiedTable) throws(StoreError)
    func write(_ numbers: CopiedNumbers) throws(StoreError)
}

/// The result of a copy.
package struct StoreCopy: Sendable {
    package let tables: [(table: CopiedTable, digest: CopiedDigest)]
    /// Sessions that were not copied: of hosted devices with devices outside the vault. Such a session belongs to several
    /// conversations in a file, and to one in a database, so it is set up anew at the next message.
    package let setUpAnew: Int

    package var rows: Int { tables.reduce(0) { $0 + $1.digest.rows } }

    /// Copies all rows, compares, and adds a line to the audit log of the copy.
    ///
    /// - Throws: ``StoreError/corrupt(_:)`` if the target does not return what was written, ``StoreError/altered(_:)`` if
    ///   a row does not have the code of the key; then the caller commits nothing.
    package init(
        from source: some CopySource, to target: some CopyTarget, _ authenticator: RowAuthenticator, audit: AuditRow
    ) throws(StoreError) {
        var tables: [(table: CopiedTable, digest: CopiedDigest)] = []
        var devices: Set<Int64> = []
        var setUpAnew = 0
        for table in CopiedTable.allCases {
            var digest = CopiedDigest()
            try source.read(table) { rows throws(StoreError) in
                var rows = rows
                if table.hasCodes {
                    for (index, row) in rows.enumerated() { rows[index] = try authenticator.checked(row, table) }
                }
                if table == .device { devices.formUnion(rows.map { $0[0].number }) }
                if table == .session {
                    // The second end of a device's session with itself has the device's id and one more.
                    let kept = rows.filter { row in
                        row[..<2].allSatisfy { devices.contains($0.number) || devices.contains($0.number & ~1) }
                    }
                    setUpAnew += rows.count - kept.count
                    rows = kept
                }
                guard !rows.isEmpty else { return }
                for row in rows { digest.add(row) }
                try target.write(rows, table)
            }
            var copied = CopiedDigest()
            try target.read(table) { rows throws(StoreError) in
                for row in rows { copied.add(row) }
            }
            guard copied == digest else { throw .otherCopy(table, digest, copied) }
            tables.append((table, digest))
        }
        let lines = tables.first { $0.table == .audit }?.digest.rows ?? 0
        let line: CopiedRow =
            [.number(Int64(lines) + 1), .number(audit.at)]
            + [audit.actor, audit.action, audit.detail].map { .bytes(Array($0.utf8)) }
        try target.write([line], .audit)
        let numbers = try source.numbers()
        try target.write(numbers)
        guard try target.numbers() == numbers else { throw .corrupt("The copy has other numbers than the store.") }
        (self.tables, self.setUpAnew) = (tables, setUpAnew)
    }
}

extension RowAuthenticator {
    /// A row whose code is right. A conversation that an earlier version has stored under the other order of its accounts
    /// is put into the right order, with the code of that.
    fileprivate func checked(_ row: CopiedRow, _ table: CopiedTable) throws(StoreError) -> CopiedRow {
        try demand(AuthenticatedRow(row, table), has: row[row.count - 1].bytes)
        guard table == .conversation else { return row }
        let id = ConversationID(AccountID(text: row[0].text), AccountID(text: row[1].text))
        guard id.first.text != row[0].text else { return row }
        var ordered = [row[1], row[0], row[2], row[3], row[5], row[4], row[6]]
        ordered[6] = .bytes(code(AuthenticatedRow(ordered, table)))
        return ordered
    }
}

extension AuthenticatedRow {
    /// - Parameter table: one that ``CopiedTable/hasCodes``.
    fileprivate init(_ row: CopiedRow, _ table: CopiedTable) {
        switch table {
        case .policy: self.init(policy: row[0].text, row[1].number)
        case .device:
            self.init(
                DeviceRow(
                    id: DeviceID(UInt64(bitPattern: row[0].number)), account: AccountID(text: row[1].text),
                    sealedIdentity: row[2].bytes, createdAt: row[3].number))
        case .conversation:
            self.init(
                conversation: row[0].text, row[1].text, latch: row[2].number, since: row[3].number,
                names: (row[4].text, row[5].text))
        default: self.init(record: row[0].number, row[1].text, row[2].bytes)
        }
    }
}

extension CopiedTable {
    /// Whether the last column is an authentication code.
    fileprivate var hasCodes: Bool {
        switch self {
        case .policy, .device, .conversation, .record: true
        case .session, .delivery, .evidence, .observation, .tally, .audit, .contentKey, .queueRequest, .queueProgress,
            .queueResponse, .queueMapping, .queueSession:
            false
        }
    }
}

extension CopiedDigest {
    static func digest(_ row: CopiedRow) -> SIMD4<UInt64> {
        var bytes: [UInt8] = []
        for value in row {
            switch value {
            case .null: bytes.append(0)
            case .number(let number):
                bytes.append(1)
                bytes.append(big: UInt64(bitPattern: number))
            case .bytes(let value):
                bytes.append(2)
                bytes.append(big: UInt64(value.count))
                bytes += value
            }
        }
        return SHA256.hash(data: bytes).withUnsafeBytes { $0.loadUnaligned(as: SIMD4<UInt64>.self) }
    }
}

extension [UInt8] {
    fileprivate mutating func append(big number: UInt64) {
        for place in (0..<8).reversed() { append(UInt8(truncatingIfNeeded: number >> UInt64(place * 8))) }
    }
}

extension StoreError {
    fileprivate static func otherCopy(
        _ table: CopiedTable, _ written: CopiedDigest, _ found: CopiedDigest
    ) -> StoreError {
        .corrupt(
            """
            The copy of the table \(table.rawValue) is not what was written: \(written.rows) rows, and \(found.rows) in the \
            copy. Nothing was moved.
            """)
    }
}
