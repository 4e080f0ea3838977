// A device of an app that can encrypt, written from Sources/WIRE.md with nothing but DoubleRatchet: what an app developer does.

import DoubleRatchet

/// Somebody's device: keys, the account's list, and sessions. Not for several threads.
package final class AppDevice {
    /// A version of the account's list.
    private struct Version {
        var devices: [(id: UInt64, identity: [UInt8])]
        var signer: UInt64
        var signature: [UInt8]
    }

    package let account: String
    package let id: UInt64
    private let identity: IdentityKeyPair
    private var store: PreKeyStore
    private var random = SystemRandomSource()
    private var versions: [Version] = []
    private var sessions: [UInt64: [UInt8]] = [:]
    private var lastMessage: UInt64 = 0

    package init(_ account: String, id: UInt64) {
        (self.account, self.id) = (account, id)
        identity = IdentityKeyPair(random: &random)
        store = PreKeyStore()
        versions = [version([(id, identity.publicKey.bytes)], after: nil)]
    }

    /// 16 hexadecimal digits.
    package var name: String {
        let digits = String(id, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }

    // MARK: The list

    private func version(_ devices: [(id: UInt64, identity: [UInt8])], after last: Version?) -> Version {
        var message =
            Self.number(UInt64(versions.count + 1)).suffix(4) + (last?.signature ?? Array(repeating: 0, count: 64))
        message += Self.number(id) + Self.bytes(devices)
        return Version(
            devices: devices, signer: id,
            signature: identity.sign(Array(message).span, context: "pawl device list"))
    }

    private static func bytes(_ devices: [(id: UInt64, identity: [UInt8])]) -> [UInt8] {
        [UInt8(devices.count)] + devices.flatMap { number($0.id) + $0.identity }
    }

    private var list: [UInt8] {
        [1, UInt8(versions.count)]
            + versions.flatMap { Self.bytes($0.devices) + Self.number($0.signer) + $0.signature }
    }

    /// Takes another device of the account into the list; message 19.
    package func adopting(_ other: AppDevice) -> [UInt8] {
        let devices = versions[versions.count - 1].devices + [(other.id, other.identity.publicKey.bytes)]
        versions.append(version(devices, after: versions.last))
        other.versions = versions
        return [19] + list
    }

    /// Takes it out again; message 19.
    package func removing(_ other: AppDevice) -> [UInt8] {
        let devices = versions[versions.count - 1].devices.filter { $0.id != other.id }
        versions.append(version(devices, after: versions.last))
        return [19] + list
    }

    // MARK: Keys

    /// Message 16.
    package func publication(over challenge: [UInt8], for account: String? = nil, oneTime: Int = 20) -> [UInt8] {
        var changes: [PreKeyChange] = []
        let bundle = store.bundle(identity: identity, at: 0, random: &random, &changes)
        let keys = store.makeOneTimeKeys(oneTime, at: 0, random: &random, &changes)
        var device = Self.number(id)
        var bytes: [UInt8] = []
        bundle.serialize(into: &bytes)
        device += Self.field(bytes) + Self.field(Self.bytes(keys))
        let signed = challenge + Self.field(Array((account ?? self.account).utf8)) + Self.field(list) + device
        return [16] + Self.field(list) + Self.field(device) + identity.sign(signed.span, context: "pawl directory")
    }

    /// Message 18.
    package func replenishment(_ count: Int) -> [UInt8] {
        var changes: [PreKeyChange] = []
        return [18] + Self.bytes(store.makeOneTimeKeys(count, at: 0, random: &random, &changes))
    }

    private static func bytes(_ keys: [OneTimePreKey.Public]) -> [UInt8] {
        var bytes: [UInt8] = []
        for key in keys { key.serialize(into: &bytes) }
        return bytes
    }

    // MARK: Sessions

    /// Begins sessions with the devices that message 34 names. Whose they are has to be compared by people.
    ///
    /// - Returns: their numbers.
    @discardableResult
    package func begin(_ found: [UInt8]) throws -> [UInt64] {
        var reader = Reader(found)
        guard reader.take(2) == [34, 2] else { return [] }
        _ = reader.field()
        _ = reader.field()
        var devices: [UInt64] = []
        while !reader.isAtEnd {
            var device = Reader(reader.field())
            let number = device.number()
            let bundle = try PreKeyBundle(serialized: device.field().span)
            try bundle.verify()
            let once = device.field()
            let whole = PreKeyBundle(
                identity: bundle.identity, signedPreKey: bundle.signedPreKey, kemPreKey: bundle.kemPreKey,
                oneTimePreKey: once.isEmpty
                    ? nil
                    : try OneTimePreKey.Public(serialized: Array(once.prefix(OneTimePreKey.Public.byteCount)).span))
            let session = try Session.initiate(identity: identity, with: whole, expecting: nil, random: &random)
            keep(SessionRecord(session), with: number)
            devices.append(number)
        }
        return devices
    }

    private func keep(_ record: borrowing SessionRecord, with device: UInt64) {
        var bytes: [UInt8] = []
        record.serialize(into: &bytes)
        sessions[device] = bytes
    }

    // MARK: Messages

    /// An envelope of kind 2 for all devices that there are sessions with.
    package func seal(_ text: String, in conversation: String, for devices: [UInt64]? = nil) throws -> [UInt8] {
        lastMessage += 1
        let bound = { (device: UInt64) in self.associated(self.id, self.lastMessage, conversation, device) }
        let plaintext = Array(#"{"text":"\#(text)"}"#.utf8)
        var body = [3] + Self.number(UInt64(plaintext.count)).suffix(4) + plaintext
        body += [UInt8](repeating: 0, count: (256 - body.count % 256) % 256)
        var sealer = MultiRecipientSealer(body.span, associatedData: bound(0), random: &random)
        for device in devices ?? sessions.keys.sorted() {
            guard let state = sessions[device] else { continue }
            var record = try SessionRecord(serialized: state.span)
            try sealer.add(device, &record, associatedData: bound(device), random: &random)
            keep(record, with: device)
        }
        var bytes: [UInt8] = [0x12] + Self.number(id) + Self.number(lastMessage)
        sealer.finish().serialize(into: &bytes)
        return bytes
    }

    /// What somebody has said; nothing where it is not for this device.
    package func open(_ envelope: [UInt8], in conversation: String) throws -> String? {
        var reader = Reader(envelope)
        guard reader.take(1) == [0x12] else { return nil }
        let (sender, number) = (reader.number(), reader.number())
        let message = try MultiRecipientMessage(serialized: reader.rest.span)
        guard let wrapped = message.message(for: id) else { return nil }
        let bound = message.authenticated(associated(sender, number, conversation, id))
        var key: [UInt8] = []
        if let state = sessions[sender] {
            var record = try SessionRecord(serialized: state.span)
            _ = try record.decrypt(wrapped.span, associatedData: bound.span, into: &key)
            keep(record, with: sender)
        } else {
            let beginning = try store.begin(
                identity: identity, message: wrapped.span, associatedData: bound.span, expecting: nil, plaintext: &key)
            var changes: [PreKeyChange] = []
            keep(SessionRecord(try beginning.commit(to: &store, at: 0, &changes)), with: sender)
        }
        var body: [UInt8] = []
        try message.openBody(
            contentKey: key.span, associatedData: associated(sender, number, conversation, 0), into: &body)
        let length = body[1..<5].reduce(0) { $0 << 8 | Int($1) }
        return String(decoding: body[5..<(5 + length)], as: UTF8.self)
    }

    /// What both ends know: `pawl-ad1`, protection, and fields behind their lengths.
    private func associated(_ sender: UInt64, _ message: UInt64, _ conversation: String, _ device: UInt64) -> [UInt8] {
        let fields: [[UInt8]] = [
            Array("json".utf8), [], [], Self.number(sender), Array("room \(conversation)".utf8), Self.number(device),
            Self.number(message),
        ]
        return Array("pawl-ad1".utf8) + [2] + fields.flatMap(Self.field)
    }

    // MARK: Bytes

    private static func number(_ value: UInt64) -> [UInt8] {
        (0..<8).map { UInt8(truncatingIfNeeded: value >> (56 - 8 * $0)) }
    }

    private static func field(_ bytes: [UInt8]) -> [UInt8] {
        [UInt8(bytes.count >> 8), UInt8(truncatingIfNeeded: bytes.count)] + bytes
    }

    private struct Reader {
        private var bytes: ArraySlice<UInt8>

        init(_ bytes: [UInt8]) { self.bytes = bytes[...] }

        var isAtEnd: Bool { bytes.isEmpty }
        var rest: [UInt8] { Array(bytes) }

        mutating func take(_ count: Int) -> [UInt8] {
            defer { bytes = bytes.dropFirst(count) }
            return Array(bytes.prefix(count))
        }

        mutating func number() -> UInt64 { take(8).reduce(0) { $0 << 8 | UInt64($1) } }

        mutating func field() -> [UInt8] { take(take(2).reduce(0) { $0 << 8 | Int($1) }) }
    }
}
