// The named types of the transport's calls. A server passes them on as they are: all of them are bytes to it, and their
// `Codable` form is one Base64 text each.

import Crypto
import Devices
import Envelope
import Messenger
import RequestQueue

/// The name of a person at the server. Names are compared in lower case, byte by byte: a letter with a combining mark and the
/// composed letter differ, because a server may have an account under each.
public struct Username: Hashable, Comparable, Sendable, Codable, ExpressibleByStringLiteral, CustomStringConvertible {
    /// The name in lower case.
    public let raw: String

    /// A name in any case. White space in it becomes `_`.
    public init(_ name: String) {
        raw = String(name.lowercased().map { $0.isWhitespace ? "_" : $0 })
    }
    /// A name in any case.
    public init(stringLiteral name: String) { self.init(name) }
    /// The coded form is the name as a text.
    public init(from decoder: any Decoder) throws {
        self.init(try decoder.singleValueContainer().decode(String.self))
    }
    /// The coded form is the name as a text.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(raw)
    }
    /// The name in lower case.
    public var description: String { raw }
    /// Whether the bytes of two names in lower case are the same.
    public static func == (left: Username, right: Username) -> Bool { ExactText(left.raw) == ExactText(right.raw) }
    /// Hashes the bytes of the name in lower case.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(ExactText(raw))
    }
    /// Ordered by the bytes of the names in lower case.
    public static func < (left: Username, right: Username) -> Bool {
        ExactText(left.raw) < ExactText(right.raw)
    }
}

/// The id of a device: 16 hexadecimal digits, drawn when the device is made.
public struct DeviceId: Hashable, Comparable, Sendable, Codable, CustomStringConvertible {
    /// The digits.
    public let raw: String

    init(_ id: DeviceID) { raw = id.name }

    /// Reads 16 lowercase hexadecimal digits; nil for any other text.
    public init?(_ raw: String) {
        guard UInt64(hexadecimal: raw[...]) != nil else { return nil }
        self.raw = raw
    }
    /// The coded form is the digits as a text.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let id = DeviceId(try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not the id of a device")
        }
        self = id
    }
    /// The coded form is the digits as a text.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(raw)
    }
    /// The digits.
    public var description: String { raw }
    /// Ordered as texts.
    public static func < (left: DeviceId, right: DeviceId) -> Bool { left.raw < right.raw }

    var id: DeviceID { DeviceID(UInt64(hexadecimal: raw[...]) ?? 0) }
}

/// Bytes that a server stores or passes on as they are. The coded form is Base64 without padding.
public protocol OpaqueBytes: Hashable, Sendable, Codable {
    /// The bytes.
    var bytes: [UInt8] { get }
    /// Bytes that another app has made. They are checked when they are used.
    init(bytes: [UInt8])
}

extension OpaqueBytes {
    /// Base64 without padding.
    public var base64: String { Base64.text(bytes) }

    /// Reads ``base64``; nil for any other text.
    public init?(base64: String) {
        guard let bytes = Base64.decode(base64.utf8) else { return nil }
        self.init(bytes: bytes)
    }
    /// The coded form is ``base64``.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let value = Self(base64: try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not Base64 without padding")
        }
        self = value
    }
    /// The coded form is ``base64``.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(base64)
    }
}

/// A message for one device, sealed by a session between two devices.
public struct RatchetedCypherMessage: OpaqueBytes {
    /// The envelope.
    public let bytes: [UInt8]
    /// An envelope that has come from a server.
    public init(bytes: [UInt8]) { self.bytes = bytes }

    /// The first 8 bytes of the envelope's SHA-256 as hexadecimal digits.
    ///
    /// For servers that store one message for each id. A message has several envelopes under its id, also for the same
    /// device; an envelope that is sent again has the same bytes.
    var digest: String { DeviceID(SHA256.hash(data: bytes).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }).name }
}

/// A message for several devices: one ciphertext, and its key for each device.
public struct MultiRecipientCypherMessage: Hashable, Sendable, Codable {
    /// A device that can open it.
    public struct Recipient: Hashable, Sendable, Codable {
        /// Whose device it is.
        public let user: Username
        /// The device.
        public let deviceId: DeviceId

        /// A device of a person.
        public init(user: Username, deviceId: DeviceId) { (self.user, self.deviceId) = (user, deviceId) }
    }

    /// The envelope, the same for all.
    public let message: RatchetedCypherMessage
    /// The devices to which the server has to pass it on.
    public let recipients: [Recipient]

    /// An envelope with its recipients.
    public init(message: RatchetedCypherMessage, recipients: [Recipient]) {
        (self.message, self.recipients) = (message, recipients)
    }
}

/// The published keys of an account: its devices in a signed list, with the keys of each.
///
/// A server keeps the bytes as they are. It may check ``continues(_:)`` before it replaces one by another.
public struct UserConfig: OpaqueBytes {
    /// The published form.
    public let bytes: [UInt8]
    /// A form that has come from a server or from a contact card.
    public init(bytes: [UInt8]) { self.bytes = bytes }

    /// The devices in the current list; empty if the bytes are no such form.
    public var devices: [DeviceId] {
        ((try? PublishedKeys(bytes))?.deviceList.current ?? []).map { DeviceId($0.id) }
    }

    /// The device that has made the list and may change it; nil if the bytes are no such form, or if it was removed.
    public var masterDevice: DeviceId? {
        (try? PublishedKeys(bytes))?.deviceList.master.map { DeviceId($0) }
    }

    /// Whether this is a later version of another form, signed by a device in it, or has the same list.
    public func continues(_ earlier: UserConfig) -> Bool {
        guard let own = try? PublishedKeys(bytes), let other = try? PublishedKeys(earlier.bytes) else { return false }
        return own.deviceList.continues(other.deviceList)
    }
}

/// The request of a device to be added to its account.
public struct UserDeviceConfig: OpaqueBytes {
    /// The request, signed by the device.
    public let bytes: [UInt8]
    /// A request that has come from a server.
    public init(bytes: [UInt8]) { self.bytes = bytes }

    /// The device that asks; nil if the bytes are no request.
    public var deviceId: DeviceId? { (try? DeviceRequest(bytes)).map { DeviceId($0.keys.id) } }
}

/// A one-time prekey of a device, as a transport carries it: for one session, then it is used up.
public struct OneTimePreKeyConfig: Hashable, Sendable {
    /// The number and the key: 36 bytes.
    public let bytes: [UInt8]
    /// The device whose prekey it is.
    public let deviceId: DeviceId
    /// A prekey that a server has handed out.
    public init(bytes: [UInt8], of deviceId: DeviceId) { (self.bytes, self.deviceId) = (bytes, deviceId) }
}

/// A value that a server stores under an id that it has chosen.
public struct ReferencedBlob<Blob: Codable>: Codable {
    /// The id, compared regardless of case.
    public let id: String
    /// The value.
    public var blob: Blob

    /// A value under its id.
    public init(id: String, blob: Blob) { (self.id, self.blob) = (id, blob) }
}

extension ReferencedBlob: Sendable where Blob: Sendable {}

/// Whether the server accepts calls.
public enum AuthenticationState: Sendable, Hashable {
    /// Offline, or not logged in yet. Messages wait.
    case unauthenticated
    /// Calls may succeed. Transports without a connection, such as REST, are always authenticated.
    case authenticated
    /// The server has refused the login. Messages wait until the app has logged in again.
    case authenticationFailure
}

/// How the person logs in. The transport uses it; the messenger does not keep it.
public enum AuthenticationMethod: Sendable {
    /// By a signature of the device's identity key; see ``TransportCreationRequest``.
    case identity
    /// By a password of the server.
    case password(String)
}

/// Why a transport did not do a call.
public enum CypherTransportError: Error, Sendable, Hashable {
    /// There is no such account, blob or device.
    case notFound
    /// The transport does not have this call. The messenger goes on without it.
    case unsupported(String)
    /// Another configuration of the account was published, which this one does not continue.
    case conflict
    /// The server will not do it, and a repetition would not change that.
    case refused(String)
    /// The server has no room for it: of the account, of the recipient, or of all. A message is sent again later; a blob is
    /// not published before others are removed.
    case full(String)
    /// The server cannot be reached, or the login is missing. The call is made again later, as after any other error.
    case offline
}
