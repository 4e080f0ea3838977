// What waits at the gateway for people's own devices, and the calls about it. Contents are opaque: the
// devices have sealed them.

package import Envelope
package import Protection
import StorePort

/// One thing for one device.
package struct Letter: Equatable, Sendable {
    package enum Kind: UInt8, Sendable, CaseIterable {
        case message = 1
        /// Receipts name a message by the backend's id.
        case read = 2
        case received = 3
        /// A device that the account's others have not taken into their list asks for it.
        case registration = 4

        /// The word for it in calls.
        package var name: String {
            switch self {
            case .message: "message"
            case .read: "read"
            case .received: "received"
            case .registration: "registration"
            }
        }
    }

    package var kind: Kind
    /// In milliseconds since 1970.
    package var at: Int64
    package var from: AccountID
    /// Zero where it comes from a device that nobody has published.
    package var device: DeviceID
    /// The sender's name for it, or what a receipt is about. At most ``Mailroom/idLimit`` bytes.
    package var id: String
    /// A part that several devices get alike: see ``Mailroom``.
    package var parcel: UInt64 = 0
    package var content: [UInt8]

    package var bytes: [UInt8] {
        var output: [UInt8] = [kind.rawValue]
        output.append(bigEndian: UInt64(bitPattern: at))
        output.append(bigEndian: device.value)
        output.append(bigEndian: parcel)
        output.append(field: Array(from.text.utf8))
        output.append(field: Array(id.utf8))
        return output + content
    }

    package init(
        kind: Kind, at: Int64, from: AccountID, device: DeviceID, id: String, parcel: UInt64 = 0, content: [UInt8] = []
    ) {
        (self.kind, self.at, self.from, self.device, self.id) = (kind, at, from, device, id)
        (self.parcel, self.content) = (parcel, content)
    }

    /// - Throws: ``EnvelopeError/malformed`` where the row is damaged.
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        guard let kind = Kind(rawValue: try cursor.byte()) else { throw .malformed }
        self.kind = kind
        at = Int64(bitPattern: try cursor.uint64())
        device = DeviceID(try cursor.uint64())
        parcel = try cursor.uint64()
        from = AccountID(text: String(decoding: try cursor.field(), as: UTF8.self))
        id = String(decoding: try cursor.field(), as: UTF8.self)
        content = cursor.rest()
    }
}

/// One call about letters and blobs.
package struct MailJob: Sendable {
    /// One device that something is for.
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
        /// For all of them or for none; the body is the same for all.
        case post(id: String, [Recipient], body: [UInt8])
        case receipt(Letter.Kind, id: String, AccountID)
        /// For the account's own published devices.
        case register([UInt8])
        case fetch(after: UInt64)
        /// Everything up to this one has arrived.
        case acknowledge(UInt64)
        case publish([UInt8])
        case read(String)
        case remove(String)
    }

    package var connection: ConnectionID
    package var id: UInt32
    package var account: AccountID
    /// The device that the caller has proven; nothing in a registration.
    package var device: DeviceID?
    package var request: Request

    package init(connection: ConnectionID, id: UInt32, account: AccountID, device: DeviceID? = nil, request: Request) {
        self.connection = connection
        self.id = id
        self.account = account
        self.device = device
        self.request = request
    }
}

/// What comes of it.
package enum MailAnswer: Sendable, Equatable {
    case accepted(Int)
    /// Letters with their numbers and the common part, in order; and whether there are more.
    case letters([(sequence: UInt64, letter: Letter, body: [UInt8])], more: Bool)
    case done
    case published(String)
    case blob([UInt8])
    case refused(MailRefusal)

    package static func == (left: Self, right: Self) -> Bool {
        switch (left, right) {
        case (.accepted(let one), .accepted(let other)): one == other
        case (.letters(let one, let isMore), .letters(let other, let isOtherMore)):
            isMore == isOtherMore && one.elementsEqual(other) { $0 == $1 }
        case (.done, .done): true
        case (.published(let one), .published(let other)): one == other
        case (.blob(let one), .blob(let other)): one == other
        case (.refused(let one), .refused(let other)): one == other
        default: false
        }
    }
}

/// Why it is not done.
package enum MailRefusal: Error, Sendable, Equatable {
    /// These are no published devices of those accounts: ask for their bundles again.
    case unknownDevices([DeviceID])
    /// Too much waits for one of them already, or too much of the sender's.
    case full
    case notFound
    /// The store did not take it.
    case store
}
