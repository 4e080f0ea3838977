// Which one-time prekeys of a device were handed out last, and to which accounts. The list is part of the device's row, so
// that it is committed with what it tells of and outlives the process.

import DoubleRatchet
import Envelope
import Protection
import StorePort

/// The one-time prekeys of a device that were handed out last, the oldest first.
///
///     each: key (8 B, its beginning) | asking account (8 B of the SHA-256 of its name) | minutes since 1970 (4 B)
struct HandOuts: Equatable {
    /// Ours: as many as a device has prekeys, so that a publication that is repeated cannot bring one back.
    static let limit = PublishedDevice.oneTimeLimit
    /// Ours: one-time prekeys of a device that one account gets in a ``period``: one for each of its six devices, and two
    /// for devices that were set up again. After these its sessions begin with the last-resort prekey.
    static let askerLimit = 8
    /// Ours: a day, in minutes.
    static let period: UInt32 = 24 * 60

    private struct Entry: Equatable {
        var key: UInt64
        var asker: UInt64
        var at: UInt32
    }

    private var entries: [Entry] = []

    init() {}

    /// Reads the rest of a row; rows of earlier versions have none.
    init(_ cursor: inout ByteCursor) throws(EnvelopeError) {
        while !cursor.isAtEnd {
            entries.append(
                Entry(key: try cursor.uint64(), asker: try cursor.uint64(), at: try cursor.uint32()))
        }
    }

    var bytes: [UInt8] {
        var output: [UInt8] = []
        for entry in entries {
            output.append(bigEndian: entry.key)
            output.append(bigEndian: entry.asker)
            output.append(bigEndian: entry.at)
        }
        return output
    }

    /// Whether a prekey was among the last that were handed out.
    func contains(_ key: OneTimePreKey.Public) -> Bool {
        let name = Self.name(of: key)
        return entries.contains { $0.key == name }
    }

    /// Whether an account gets one more prekey. One without a login at the backend gets none.
    func allows(_ asker: AccountID, _ now: Timestamp) -> Bool {
        let (name, minute) = (Self.name(of: asker), Self.minute(now))
        // A clock that was set back does not end the period.
        let taken = entries.count { $0.asker == name && ($0.at > minute || minute - $0.at < Self.period) }
        return asker.isVerified && taken < Self.askerLimit
    }

    mutating func append(_ key: OneTimePreKey.Public, for asker: AccountID, _ now: Timestamp) {
        entries.append(Entry(key: Self.name(of: key), asker: Self.name(of: asker), at: Self.minute(now)))
        if entries.count > Self.limit { entries.removeFirst(entries.count - Self.limit) }
    }

    private static func minute(_ now: Timestamp) -> UInt32 { UInt32(clamping: now.wall / 60_000) }

    private static func name(of key: OneTimePreKey.Public) -> UInt64 {
        var bytes: [UInt8] = []
        key.serialize(into: &bytes)
        return UInt64(firstOf: bytes.dropFirst(4))
    }

    private static func name(of account: AccountID) -> UInt64 { UInt64(digestOf: account.text) }
}
