// Mailbox entries for people's own devices, and the calls about mailboxes and blobs. Contents are opaque: the devices
// have sealed them.

package import Envelope
package import Protection
import StorePort

/// A mailbox entry for one device.
package struct MailboxEntry: Equatable, Sendable {
    package enum Kind: UInt8, Sendable, CaseIterable {
        case message = 1
        /// A receipt; it names a message by the backend's id.
        case read = 2
        case received = 3
        /// A new device asks the account's other devices to add it to their list.
        case registration = 4
        /// Stands for messages of the sender that were dropped: the mailbox was full, or they were too old.
        case lost = 5

        /// Its name in calls.
        package var name: String {
            switch self {
            case .message: "message"
            case .read: "read"
            case .received: "received"
            case .registration: "registration"
            case .lost: "lost"
            }
        }

        var isReceipt: Bool { self == .read || self == .received }
    }

    package var kind: Kind
    /// In milliseconds since 1970.
    package var at: Int64
    package var from: AccountID
    /// The sending device; zero if it is not published.
    package var device: DeviceID
    /// The sender's id for it, or the id of the message of a receipt. At most ``Mailboxes/idLimit`` bytes.
    package var id: String
    /// The number of the shared ciphertext that several entries refer to; 0 for none. See ``Mailboxes``.
    package var sharedCiphertext: UInt64 = 0
    package var content: [UInt8]

    package var bytes: [UInt8] {
        var output: [UInt8] = [kind.rawValue]
        output.append(bigEndian: UInt64(bitPattern: at))
        output.append(bigEndian: device.value)
        output.append(bigEndian: sharedCiphertext)
        output.append(field: Array(from.text.utf8))
        output.append(field: Array(id.utf8))
        return output + content
    }

    package init(
        kind: Kind, at: Int64, from: AccountID, device: DeviceID, id: String, sharedCiphertext: UInt64 = 0,
        content: [UInt8] = []
    ) {
        (self.kind, self.at, self.from, self.device, self.id) = (kind, at, from, device, id)
        (self.sharedCiphertext, self.content) = (sharedCiphertext, content)
    }

    /// For how many messages an entry of the kind ``Kind/lost`` stands: the content, 8 bytes.
    package var lostCount: Int {
        kind == .lost ? Int(clamping: content.reduce(0 as UInt64) { $0 << 8 | UInt64($1) }) : 0
    }

    /// An entry that stands for messages of a device that were dropped.
    ///
    /// - Parameter at: when the first of them came.
    static func lost(_ count: Int, at: Int64, from account: AccountID, device: DeviceID) -> MailboxEntry {
        var content: [UInt8] = []
        content.append(bigEndian: UInt64(count))
        return MailboxEntry(kind: .lost, at: at, from: account, device: device, id: "", content: content)
    }

    /// - Throws: ``EnvelopeError/malformed`` if the row is damaged.
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        guard let kind = Kind(rawValue: try cursor.byte()) else { throw .malformed }
        self.kind = kind
        at = Int64(bitPattern: try cursor.uint64())
        device = DeviceID(try cursor.uint64())
        sharedCiphertext = try cursor.uint64()
        from = AccountID(text: String(decoding: try cursor.field(), as: UTF8.self))
        id = String(decoding: try cursor.field(), as: UTF8.self)
        content = cursor.rest()
    }
}

/// One call about mailboxes or blobs.
package struct MailJob: Sendable {
    /// A recipient device and its own part of a message.
    package struct Recipient: Sendable, Equatable {
        package var account: AccountID
        package var device: DeviceID
        package var content: [UInt8]

        package init(account: AccountID, device: DeviceID, content: [UInt8]) {
            self.account = account
            self.device = device
            self.content = content
        }
    }

    package enum Request: Sendable {
        /// Stored for all recipients or for none; all share the body.
        case post(id: String, [Recipient], body: [UInt8])
        case receipt(MailboxEntry.Kind, id: String, AccountID)
        /// For the account's own published devices.
        case register([UInt8])
        /// - Parameter waits: the call is answered later if there are no entries.
        case fetch(after: UInt64, waits: Bool)
        /// Acknowledges all entries up to this number.
        case acknowledge(UInt64)
        case publish([UInt8])
        case read(String)
        case remove(String)
        /// What a messenger publishes for its account.
        case publishConfig([UInt8])
        case readConfig(AccountID)
        /// The token under which the operator's push hook knows the device; nil for none.
        case setPushToken(String?)
        /// The hook does not know this token any more.
        case dropPushToken(String)
    }

    package var connection: ConnectionID
    package var id: UInt32
    package var account: AccountID
    /// The device that the caller has proven; nil in a registration.
    package var device: DeviceID?
    package var request: Request

    package init(connection: ConnectionID, id: UInt32, account: AccountID, device: DeviceID? = nil, request: Request) {
        self.connection = connection
        self.id = id
        self.account = account
        self.device = device
        self.request = request
    }

    /// The account whose rows the job reads and writes; nil if others get entries in their mailboxes.
    ///
    /// A post writes the entries of all recipients and one shared ciphertext, or nothing; a receipt writes one entry and
    /// reads what its sender has posted. In a store with several owners a post divides into a unit for each shard of its
    /// recipients, each with a shared ciphertext of its own. Then it is no longer stored for all or for none: the
    /// recipients' units come first, each finds a repetition by the message's id, and the sender's shard, which holds the
    /// digests of sent ids, marks the post as done last.
    package var owner: AccountID? {
        switch request {
        case .post, .receipt: nil
        case .register, .fetch, .acknowledge, .publish, .read, .remove, .publishConfig, .setPushToken, .dropPushToken:
            account
        case .readConfig(let account): account
        }
    }
}

/// The result of a call.
package enum MailAnswer: Sendable, Equatable {
    case accepted(Int)
    /// Mailbox entries with their numbers and shared bodies, in order; and whether there are more.
    case entries([(sequence: UInt64, mailboxEntry: MailboxEntry, body: [UInt8])], more: Bool)
    case done
    case published(String)
    case blob([UInt8])
    case config([UInt8])
    case refused(MailRefusal)

    package static func == (left: Self, right: Self) -> Bool {
        switch (left, right) {
        case (.accepted(let one), .accepted(let other)): one == other
        case (.entries(let one, let isMore), .entries(let other, let isOtherMore)):
            isMore == isOtherMore && one.elementsEqual(other) { $0 == $1 }
        case (.done, .done): true
        case (.published(let one), .published(let other)): one == other
        case (.blob(let one), .blob(let other)), (.config(let one), .config(let other)): one == other
        case (.refused(let one), .refused(let other)): one == other
        default: false
        }
    }
}

/// Why a call is refused.
package enum MailRefusal: Error, Sendable, Equatable {
    /// These devices are not in the lists of the given accounts: ask for their bundles again.
    case unknownDevices([DeviceID])
    /// A limit is reached: of a mailbox, of the sender, or of all mailboxes or blobs. What waits for devices that have been
    /// away for long is dropped before that; see ``Mailboxes/awayTime``.
    case full
    case notFound
    /// Only the device that has made the account's list may do this.
    case notMaster
    /// The store could not be read or written.
    case store
}
