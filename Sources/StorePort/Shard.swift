// Shards: the parts of a store that several gateways can own, one gateway each. A store of one gateway is one shard.
//
// All rows of a conversation are in one shard: sessions, requests, deliveries, content keys, latch. A step of a ratchet
// and what follows from it is then one transaction of one owner. By account it would have two owners, because both
// ends of a session step together. Rows of one person (directory, mailboxes, blobs, holds, credentials) are in the
// shard of the account.
//
// Ids are congruent to the number of their shard, so that an id alone names it: that of a request, of a delivery, and
// the message id in an envelope.

import Crypto
import Envelope
package import Protection

/// One part of a store.
@usableFromInline
package struct Shard: Hashable, Sendable, Comparable {
    package let number: UInt8

    package init(_ number: UInt8) { self.number = number }

    /// The only one of a store that is not divided.
    package static let only = Shard(0)

    @usableFromInline
    package static func < (one: Shard, other: Shard) -> Bool { one.number < other.number }
}

/// How a store is divided. Fixed when the store is made. A store holds one network, so names need no network.
package struct Sharding: Equatable, Sendable {
    /// The number of shards, as the modulus of ids.
    private let count: UInt64

    /// One shard: a store with one gateway.
    package static let single = Sharding(count: 1)
    /// 256 shards: a store that several gateways share.
    package static let shared = Sharding(count: 256)

    package var isSingle: Bool { count == 1 }

    /// All shards, in their order.
    package var shards: some RandomAccessCollection<Shard> { (0..<Int(count)).lazy.map { Shard(UInt8($0)) } }

    /// The shard of a conversation, by a digest of its accounts.
    package func shard(of conversation: ConversationID) -> Shard {
        guard !isSingle else { return .only }
        return shard(of: [conversation.first, conversation.second])
    }

    /// The shard of what a sender writes: that of the room, or of the conversation of two accounts.
    package func shard(from sender: AccountID, to recipient: AccountID) -> Shard {
        guard !isSingle else { return .only }
        if let room = recipient.roomName { return shard(of: .ofRoom(room)) }
        return shard(of: ConversationID(sender, recipient))
    }

    /// The shard of what belongs to one person.
    package func shard(of account: AccountID) -> Shard { isSingle ? .only : shard(of: [account]) }

    /// The shard of the row with an id.
    package func shard(ofID id: UInt64) -> Shard { Shard(UInt8(truncatingIfNeeded: id % count)) }

    private func shard(of accounts: [AccountID]) -> Shard {
        var digest = SHA256()
        for account in accounts {
            var bytes: [UInt8] = []
            bytes.append(bigEndian: UInt32(truncatingIfNeeded: account.text.utf8.count))
            digest.update(data: bytes + account.text.utf8)
        }
        return Shard(digest.finalize().withUnsafeBytes { $0[0] })
    }

    /// The lowest id of a shard that is not below a bound.
    fileprivate func id(in shard: Shard, atLeast least: UInt64) -> UInt64 {
        least + (UInt64(shard.number) &- least) % count
    }
}

/// Where the rows of a unit of work are.
@usableFromInline
package enum Placement: Hashable, Sendable {
    case shard(Shard)
    /// In tables that are not divided: devices, policies, the audit log, the counts of a gateway.
    case unsharded
    /// In several shards: a login takes over what an account has in all conversations, and old rows are removed
    /// everywhere. Only the key of a row tells its shard.
    case several
}

/// Assigns the ids of rows: each is higher than all before it, and congruent to the number of its shard.
package struct IDSequence: Sendable {
    private let sharding: Sharding
    /// The highest id that was assigned or reserved; no id is used twice.
    package private(set) var highest: UInt64

    /// - Parameter highest: the highest id that was ever used, those of removed rows included.
    package init(_ sharding: Sharding, after highest: UInt64) { (self.sharding, self.highest) = (sharding, highest) }

    /// Assigns an id.
    ///
    /// - Parameter count: how many numbers to reserve. The id is the last of them.
    package mutating func next(in shard: Shard, reserving count: Int = 1) -> UInt64 {
        highest = sharding.id(in: shard, atLeast: highest + UInt64(count))
        return highest
    }

    /// Assigns an id that rises with time, so that ids stay in order even if rows were removed: at least milliseconds
    /// since 1970 times 1024.
    package mutating func next(in shard: Shard, at now: Timestamp) -> UInt64 {
        highest = sharding.id(in: shard, atLeast: max(highest + 1, UInt64(max(now.wall, 0)) << 10))
        return highest
    }
}
