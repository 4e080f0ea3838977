// Bodies of the gateway's calls, as Sources/WIRE.md has them in "Control plane over HTTP". Every answer is bounded before
// it is read, and one that is not what that page says is refused as a whole.

import DeviceDirectory
import Devices
import Envelope
import Foundation
import Messenger

/// A mailbox entry of this device.
struct GatewayEntry: Equatable, Sendable {
    var sequence: UInt64
    var event: Event

    enum Event: Equatable, Sendable {
        /// An envelope; `isShared` if other devices have got the same bytes.
        case message([UInt8], isShared: Bool, id: String, from: Username, device: DeviceId)
        case receipt(isRead: Bool, id: String, from: Username, device: DeviceId)
        case registration([UInt8], from: Username)
        /// The gateway has dropped messages of a device.
        case lost(Int, from: Username, device: DeviceId)
        /// Of a kind that this version does not know, or without what its kind needs. Acknowledged and dropped.
        case unknown
    }
}

/// Entries of a mailbox, in order.
struct GatewayPage: Equatable, Sendable {
    var entries: [GatewayEntry]
    /// Whether there are more.
    var hasMore: Bool
    /// How many one-time prekeys of this device the gateway has left; nil if it needs no more.
    var oneTime: Int?
}

/// Reads and writes the bodies of calls.
enum GatewayBody {
    /// Ours: bytes of an answer. A page has at most 512 KiB of entries and a body of 256 KiB, in Base64.
    static let answerLimit = 2 << 20
    /// Ours: entries of a page, which a gateway limits to 50.
    private static let pageLimit = 256
    /// Bytes of one recipient's own part; longer envelopes go as the body, which may have 256 KiB.
    static let contentLimit = 32 << 10

    /// The answer is not what the API says.
    struct Malformed: Error, Equatable {}

    private static func decode<Answer: Decodable>(_ bytes: [UInt8], as type: Answer.Type) throws(Malformed) -> Answer {
        guard bytes.count <= answerLimit, let answer = try? JSONDecoder().decode(type, from: Data(bytes)) else {
            throw Malformed()
        }
        return answer
    }

    private static func decoded(_ base64: String) throws(Malformed) -> [UInt8] {
        guard let bytes = Base64.decode(base64.utf8) else { throw Malformed() }
        return bytes
    }

    // MARK: Requests

    private static func encode(_ value: some Encodable) -> [UInt8] {
        // Texts, numbers and objects of them always have a JSON form.
        ((try? JSONEncoder().encode(value)).map { Array($0) }) ?? []
    }

    static func message(_ bytes: [UInt8]) -> [UInt8] { encode(["message": Base64.text(bytes)]) }
    static func config(_ bytes: [UInt8]) -> [UInt8] { encode(["config": Base64.text(bytes)]) }
    static func registration(_ bytes: [UInt8]) -> [UInt8] { encode(["registration": Base64.text(bytes)]) }
    static func blob(_ bytes: [UInt8]) -> [UInt8] { encode(["blob": Base64.text(bytes)]) }
    static func pushToken(_ token: String) -> [UInt8] { encode(["token": token]) }
    static func acknowledgement(_ sequence: UInt64) -> [UInt8] { encode(["through": sequence]) }
    static func receipt(_ id: String, isRead: Bool, to user: Username) -> [UInt8] {
        encode(["to": user.raw, "id": id, "kind": isRead ? "read" : "received"])
    }

    private struct Post: Encodable {
        struct Recipient: Encodable { var account, device, message: String }

        var id: String
        var recipients: [Recipient]
        var body: String?
    }

    /// - Parameters:
    ///   - id: the id of the message and, after a space, what tells its envelopes apart. The gateway accepts a post with an
    ///     id that it knows and does not store it.
    ///   - isShared: the envelope is the same for several devices, so it goes as the body.
    static func post(
        _ envelope: [UInt8], id: String, to recipients: [MultiRecipientCypherMessage.Recipient], isShared: Bool
    ) -> [UInt8] {
        let isBody = isShared || envelope.count > contentLimit
        let own = isBody ? "" : Base64.text(envelope)
        return encode(
            Post(
                id: id,
                recipients: recipients.map { .init(account: $0.user.raw, device: $0.deviceId.raw, message: own) },
                body: isBody ? Base64.text(envelope) : nil))
    }

    // MARK: Answers

    private struct Me: Decodable {
        var account: String
        var device: String?
        var oneTime: Int?

        enum CodingKeys: String, CodingKey { case account, device, oneTime = "one_time" }
    }

    /// The account of the login, and the device that it has proven, with the number of its one-time prekeys; nil if none.
    static func me(_ bytes: [UInt8]) throws(Malformed) -> (account: Username, device: String?, oneTime: Int?) {
        let me = try decode(bytes, as: Me.self)
        return (Username(me.account), me.device, me.oneTime)
    }

    private struct Challenge: Decodable { var account, challenge: String }

    /// The account as the gateway names it, and 32 bytes to sign.
    static func challenge(_ bytes: [UInt8]) throws(Malformed) -> (account: String, nonce: [UInt8]) {
        let answer = try decode(bytes, as: Challenge.self)
        let nonce = try decoded(answer.challenge)
        guard nonce.count == 32, answer.account.utf8.count <= 1024 else { throw Malformed() }
        return (answer.account, nonce)
    }

    private struct Devices: Decodable {
        struct Device: Decodable {
            var device: String
            var published: Bool
        }

        var devices: [Device]
        var message: String
    }

    /// The devices in the list of an account, with whether each is published, and the list.
    static func devices(_ bytes: [UInt8]) throws(Malformed) -> (isPublished: [String: Bool], list: DeviceList) {
        let answer = try decode(bytes, as: Devices.self)
        guard let message = try? DirectoryMessage(try decoded(answer.message)),
            case .found(.capable(_, let list, _)) = message, answer.devices.count <= DeviceList.deviceLimit
        else { throw Malformed() }
        return (Dictionary(answer.devices.map { ($0.device, $0.published) }) { first, _ in first }, list)
    }

    private struct Bundles: Decodable { var message: String }

    /// The one-time prekeys in an answer, one of each device at most.
    static func oneTimePreKeys(_ bytes: [UInt8]) throws(Malformed) -> [OneTimePreKeyConfig] {
        let answer = try decode(bytes, as: Bundles.self)
        guard let message = try? DirectoryMessage(try decoded(answer.message)),
            case .found(.capable(_, _, let devices)) = message, devices.count <= DeviceList.deviceLimit
        else { throw Malformed() }
        return devices.compactMap { device in
            device.oneTime.first.map {
                OneTimePreKeyConfig(bytes: DirectoryMessage.bytes([$0]), of: DeviceId(device.id))
            }
        }
    }

    /// The form of one-time prekeys for the gateway; nil if they are none.
    static func replenishment(_ keys: [OneTimePreKeyConfig]) -> [UInt8]? {
        let bytes = keys.flatMap(\.bytes)
        guard let oneTime = try? DirectoryMessage.oneTime(bytes) else { return nil }
        return message(DirectoryMessage.replenish(oneTime).bytes)
    }

    private struct Config: Decodable { var config: String }

    static func config(in bytes: [UInt8]) throws(Malformed) -> UserConfig {
        let config = try decoded(try decode(bytes, as: Config.self).config)
        guard config.count <= PublishedKeys.maximumLength else { throw Malformed() }
        return UserConfig(bytes: config)
    }

    private struct Blob: Decodable { var blob: String }
    private struct BlobID: Decodable { var id: String }

    static func blob(in bytes: [UInt8]) throws(Malformed) -> [UInt8] {
        try decoded(try decode(bytes, as: Blob.self).blob)
    }

    static func blobID(_ bytes: [UInt8]) throws(Malformed) -> String {
        let id = try decode(bytes, as: BlobID.self).id
        guard isBlobID(id) else { throw Malformed() }
        return id
    }

    /// Whether a text is the id of a blob, and so can stand in a path: 32 hexadecimal digits.
    static func isBlobID(_ id: String) -> Bool {
        id.utf8.count == 32 && id.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
    }

    private struct Refusal: Decodable {
        var error: String
        var message: String?
    }

    /// The code and the words of a refusal; empty if the answer is none of a gateway.
    static func refusal(_ bytes: [UInt8]) -> (code: String, words: String) {
        guard bytes.count <= 64 << 10, let refusal = try? decode(bytes, as: Refusal.self) else { return ("", "") }
        return (String(refusal.error.prefix(64)), String((refusal.message ?? "").prefix(256)))
    }

    private struct Page: Decodable {
        struct Entry: Decodable {
            var sequence: UInt64
            var kind: String
            var from: String
            var device, id, message, body: String?
            var count: Int?
        }

        var messages: [Entry]
        var more: Bool
        var oneTime: Int?

        enum CodingKeys: String, CodingKey { case messages, more, oneTime = "one_time" }
    }

    /// Reads a page of the own mailbox.
    ///
    /// - Parameter after: the sequence that was asked for. Entries come in order behind it, else the page is refused.
    static func page(_ bytes: [UInt8], after: UInt64) throws(Malformed) -> GatewayPage {
        let page = try decode(bytes, as: Page.self)
        guard page.messages.count <= pageLimit else { throw Malformed() }
        var (entries, last): ([GatewayEntry], UInt64) = ([], after)
        for entry in page.messages {
            guard entry.sequence > last else { throw Malformed() }
            last = entry.sequence
            entries.append(GatewayEntry(sequence: entry.sequence, event: event(entry)))
        }
        return GatewayPage(entries: entries, hasMore: page.more, oneTime: page.oneTime)
    }

    private static func event(_ entry: Page.Entry) -> GatewayEntry.Event {
        let (from, device) = (Username(entry.from), entry.device.flatMap { DeviceId($0) })
        // Behind it are the device and the digest of the envelope, so that each envelope has an id of its own.
        let id = (entry.id ?? "").split(separator: " ").first.map { String($0) } ?? ""
        let (own, shared) = (Base64.decode((entry.message ?? "").utf8), Base64.decode((entry.body ?? "").utf8))
        guard let own, let shared else { return .unknown }
        switch (entry.kind, device) {
        case ("message", let device?) where own.isEmpty != shared.isEmpty:
            return .message(own + shared, isShared: own.isEmpty, id: id, from: from, device: device)
        case ("read", let device?), ("received", let device?):
            return .receipt(isRead: entry.kind == "read", id: id, from: from, device: device)
        case ("lost", let device?): return .lost(max(entry.count ?? 1, 1), from: from, device: device)
        case ("registration", _) where !own.isEmpty: return .registration(own, from: from)
        default: return .unknown
        }
    }
}
