// The codes of rows of an earlier store, which had none.

import Envelope
import Foundation
import GRDB
import Protection
import StoreBase
import StorePort

extension RowAuthenticator {
    /// `row_code(table, columns...)`, for the upgrade of a store whose rows have no codes. Texts are passed as blobs, so
    /// that their bytes are those of the file.
    var function: DatabaseFunction {
        DatabaseFunction("row_code", argumentCount: nil, pure: true) { values in
            func text(_ index: Int) -> String { String(decoding: bytes(index), as: UTF8.self) }
            func bytes(_ index: Int) -> [UInt8] { Data.fromDatabaseValue(values[index]).map { Array($0) } ?? [] }
            func number(_ index: Int) -> Int64 { Int64.fromDatabaseValue(values[index]) ?? 0 }
            let row: AuthenticatedRow? =
                switch values.first.flatMap({ String.fromDatabaseValue($0) }) {
                case "policy": AuthenticatedRow(policy: text(1), number(2))
                case "device":
                    AuthenticatedRow(
                        DeviceRow(
                            id: DeviceID(UInt64(bitPattern: number(1))), account: AccountID(text: text(2)),
                            sealedIdentity: bytes(3), createdAt: number(4)))
                case "conversation":
                    AuthenticatedRow(
                        conversation: text(1), text(2), latch: number(3), since: number(4), names: (text(5), text(6)))
                case "record": AuthenticatedRow(record: number(1), text(2), bytes(3))
                default: nil
                }
            return row.map { Data(code($0)) }
        }
    }
}
