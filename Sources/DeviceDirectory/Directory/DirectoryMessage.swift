// Requests of capable clients to the directory, and its answers. Binary, in frames of ``ControlFrames``.

package import Devices
package import DoubleRatchet
package import Envelope

/// The public keys of one device in the directory.
package struct PublishedDevice: Equatable, Sendable {
    /// Ours: one-time prekeys of one device. After these are used up, sessions begin with the last-resort prekey. See
    /// ``HandOuts`` for the share of one asking account.
    package static let oneTimeLimit = 100
    /// Ours: a device with fewer one-time prekeys is asked for more.
    package static let lowWatermark = 20

    package var id: DeviceID
    /// Without a one-time prekey.
    package var bundle: PreKeyBundle
    package var oneTime: [OneTimePreKey.Public]

    package init(id: DeviceID, bundle: PreKeyBundle, oneTime: [OneTimePreKey.Public]) {
        (self.id, self.bundle, self.oneTime) = (id, bundle, oneTime)
    }

    package var bytes: [UInt8] {
        var output: [UInt8] = []
        output.append(bigEndian: id.value)
        var keys: [UInt8] = []
        bundle.serialize(into: &keys)
        output.append(field: keys)
        output.append(field: DirectoryMessage.bytes(oneTime))
        return output
    }

    package init(_ cursor: inout ByteCursor) throws(EnvelopeError) {
        id = DeviceID(try cursor.uint64())
        let keys = try cursor.field()
        guard let bundle = try? PreKeyBundle(serialized: keys.span) else { throw .malformed }
        self.bundle = bundle
        oneTime = try DirectoryMessage.oneTime(try cursor.field())
    }
}

/// What the directory has for a nick or an account.
package enum DirectoryEntry: Equatable, Sendable {
    /// Not behind this gateway.
    case outsider
    /// Behind it, without own devices: the gateway protects messages to the account if the policy says so.
    case legacy
    /// With own devices, each with at most one one-time prekey.
    case capable(account: String, DeviceList, [PublishedDevice])
}

/// A message of the control plane.
package enum DirectoryMessage: Equatable, Sendable {
    private static let context = "pawl directory"

    // From the gateway, unasked.
    /// 1: prove your device for this account, by ``publish``. 32 random bytes and the account.
    case challenge(nonce: [UInt8], account: String)
    /// 2: few of your one-time prekeys are left.
    case low
    // From the client.
    /// 16: the list of the account's devices and the keys of this one, signed by it over the challenge.
    case publish(DeviceList, PublishedDevice, signature: [UInt8])
    /// 17: look up the account and the keys of a nick.
    case find(nick: String)
    /// 18: more one-time prekeys of the device that this connection has proven.
    case replenish([OneTimePreKey.Public])
    /// 19: a later version of the list of the account's devices.
    case list(DeviceList)
    // Answers.
    /// 32: done; how many one-time prekeys of the device there are.
    case done(oneTime: Int)
    /// 33: not done, with a reason in words.
    case refused(String)
    /// 34: the answer to ``find``.
    case found(DirectoryEntry)

    /// The message by which a device proves itself, signed over nonce, account, list and keys.
    package static func proof(
        nonce: [UInt8], account: String, _ deviceList: DeviceList, _ device: PublishedDevice,
        signedBy identity: borrowing IdentityKeyPair
    ) -> DirectoryMessage {
        let message = signed(nonce, account, deviceList, device)
        return .publish(deviceList, device, signature: identity.sign(message.span, context: context))
    }

    /// As ``proof(nonce:account:_:_:signedBy:)``, for a key that another part of the program holds.
    ///
    /// - Parameter sign: signs bytes in a context with the device's identity key.
    package static func proof(
        nonce: [UInt8], account: String, _ deviceList: DeviceList, _ device: PublishedDevice,
        sign: ([UInt8], _ context: String) -> [UInt8]
    ) -> DirectoryMessage {
        .publish(deviceList, device, signature: sign(signed(nonce, account, deviceList, device), context))
    }

    /// Whether a ``publish`` proves the device that it names, in its list, for an account.
    package static func isProof(
        _ signature: [UInt8], nonce: [UInt8], account: String, _ deviceList: DeviceList, _ device: PublishedDevice
    ) -> Bool {
        guard let identity = deviceList.identity(of: device.id), device.bundle.identity == identity,
            device.bundle.oneTimePreKey == nil, (try? device.bundle.verify()) != nil
        else { return false }
        let message = signed(nonce, account, deviceList, device)
        return identity.isValidSignature(signature.span, of: message.span, context: context)
    }

    private static func signed(
        _ nonce: [UInt8], _ account: String, _ deviceList: DeviceList, _ device: PublishedDevice
    ) -> [UInt8] {
        var output = nonce
        output.append(field: Array(account.utf8))
        output.append(field: deviceList.bytes)
        return output + device.bytes
    }

    // MARK: Bytes

    package static func bytes(_ keys: [OneTimePreKey.Public]) -> [UInt8] {
        var output: [UInt8] = []
        for key in keys { key.serialize(into: &output) }
        return output
    }

    package static func oneTime(_ bytes: [UInt8]) throws(EnvelopeError) -> [OneTimePreKey.Public] {
        var cursor = ByteCursor(bytes)
        var keys: [OneTimePreKey.Public] = []
        while !cursor.isAtEnd {
            let one = try cursor.take(OneTimePreKey.Public.byteCount)
            guard keys.count < PublishedDevice.oneTimeLimit, let key = try? OneTimePreKey.Public(serialized: one.span)
            else { throw .malformed }
            keys.append(key)
        }
        return keys
    }

    package var bytes: [UInt8] {
        switch self {
        case .challenge(let nonce, let account): return [1] + nonce + Array(account.utf8)
        case .low: return [2]
        case .publish(let deviceList, let device, let signature):
            var output: [UInt8] = [16]
            output.append(field: deviceList.bytes)
            output.append(field: device.bytes)
            return output + signature
        case .find(let nick): return [17] + Array(nick.utf8)
        case .replenish(let keys): return [18] + Self.bytes(keys)
        case .list(let deviceList): return [19] + deviceList.bytes
        case .done(let count): return [32, UInt8(clamping: count)]
        case .refused(let reason): return [33] + Array(reason.utf8)
        case .found(.outsider): return [34, 0]
        case .found(.legacy): return [34, 1]
        case .found(.capable(let account, let deviceList, let devices)):
            var output: [UInt8] = [34, 2]
            output.append(field: Array(account.utf8))
            output.append(field: deviceList.bytes)
            for device in devices { output.append(field: device.bytes) }
            return output
        }
    }

    /// - Throws: ``EnvelopeError``.
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        switch try cursor.byte() {
        case 1:
            let nonce = try cursor.take(32)
            self = .challenge(nonce: nonce, account: String(decoding: cursor.rest(), as: UTF8.self))
        case 2: self = .low
        case 16:
            let deviceList = try DeviceList(try cursor.field())
            let device = try Self.device(try cursor.field())
            self = .publish(deviceList, device, signature: try cursor.take(64))
        case 17: self = .find(nick: String(decoding: cursor.rest(), as: UTF8.self))
        case 18: self = .replenish(try Self.oneTime(cursor.rest()))
        case 19: self = .list(try DeviceList(cursor.rest()))
        case 32: self = .done(oneTime: Int(try cursor.byte()))
        case 33: self = .refused(String(decoding: cursor.rest(), as: UTF8.self))
        case 34: self = .found(try Self.entry(&cursor))
        case let other: throw .unsupportedKind(other)
        }
        guard cursor.isAtEnd else { throw .malformed }
    }

    private static func device(_ bytes: [UInt8]) throws(EnvelopeError) -> PublishedDevice {
        var cursor = ByteCursor(bytes)
        let device = try PublishedDevice(&cursor)
        guard cursor.isAtEnd else { throw .malformed }
        return device
    }

    private static func entry(_ cursor: inout ByteCursor) throws(EnvelopeError) -> DirectoryEntry {
        switch try cursor.byte() {
        case 0: return .outsider
        case 1: return .legacy
        case 2:
            let account = String(decoding: try cursor.field(), as: UTF8.self)
            let deviceList = try DeviceList(try cursor.field())
            var devices: [PublishedDevice] = []
            while !cursor.isAtEnd { devices.append(try device(try cursor.field())) }
            return .capable(account: account, deviceList, devices)
        case let other: throw .unsupportedKind(other)
        }
    }
}
