// An account's device list in versions, each signed by a device of the version before. A program that knows one version
// can therefore verify that a later one comes from the same account.

public import DoubleRatchet
public import Envelope

/// A device and its identity key.
public struct ListedDevice: Hashable, Sendable {
    /// The device's identifier.
    public var id: DeviceID
    /// The device's public key.
    public var identity: IdentityKey

    /// Makes an entry of a list.
    public init(id: DeviceID, identity: IdentityKey) { (self.id, self.identity) = (id, identity) }
}

/// One version of a device list.
package struct DeviceListVersion: Equatable, Sendable {
    package var devices: [ListedDevice]
    package var signer: DeviceID
    /// Ed25519, 64 bytes, over version, devices, signer and the signature of the version before.
    package var signature: [UInt8]
}

/// All versions of the list, the first one signed by its only device.
///
///     1 (1 B) | versions (1 B) | each: devices (1 B) | each: id (8 B), identity (32 B) | signer (8 B) | signature (64 B)
public struct DeviceList: Equatable, Sendable {
    /// Ours: devices of one account; more would not fit into the lines of a message.
    public static let deviceLimit = 6
    /// Ours: versions of one list. A person who adds and removes devices more often has to start a new list.
    public static let versionLimit = 12
    private static let context = "pawl device list"

    package private(set) var versions: [DeviceListVersion]

    /// A list of one device.
    public init(of device: ListedDevice, identity: borrowing IdentityKeyPair) {
        versions = []
        append([device], by: device.id, identity)
    }

    /// The devices of the last version.
    public var current: [ListedDevice] { versions[versions.count - 1].devices }

    /// The key that signed the first version; safety numbers are made from it.
    public var root: IdentityKey { versions[0].devices[0].identity }

    /// The device with ``root``, the account's master device; nil if it was removed.
    package var master: DeviceID? { current.first { $0.identity == root }?.id }

    /// The key of a device in the last version; nil if it is not there.
    public func identity(of device: DeviceID) -> IdentityKey? { current.first { $0.id == device }?.identity }

    /// Whether an earlier version has a device that the last one lacks.
    package var hasRemovals: Bool {
        versions.dropLast().contains { version in version.devices.contains { identity(of: $0.id) == nil } }
    }

    /// Returns whether this is the same list as `other`, or a later version of it.
    public func continues(_ other: DeviceList) -> Bool { versions.starts(with: other.versions) }

    /// The number of versions with which both lists begin.
    package func commonVersions(with other: DeviceList) -> Int {
        zip(versions, other.versions).prefix { $0 == $1 }.count
    }

    /// Adds a version that contains one more device, signed by a device of the last version.
    ///
    /// - Returns: nil if a limit is reached, the device is already in the list, or the signer is not.
    public func adding(_ device: ListedDevice, by signer: DeviceID, _ identity: borrowing IdentityKeyPair)
        -> DeviceList?
    {
        guard self.identity(of: device.id) == nil else { return nil }
        return version(current + [device], by: signer, identity)
    }

    /// Adds a version without a device; nil if the device is the signer or not in the list, or a limit is reached.
    public func removing(_ device: DeviceID, by signer: DeviceID, _ identity: borrowing IdentityKeyPair)
        -> DeviceList?
    {
        guard device != signer, self.identity(of: device) != nil else { return nil }
        return version(current.filter { $0.id != device }, by: signer, identity)
    }

    private func version(_ devices: [ListedDevice], by signer: DeviceID, _ identity: borrowing IdentityKeyPair)
        -> DeviceList?
    {
        guard self.identity(of: signer) == identity.publicKey, versions.count < Self.versionLimit,
            devices.count <= Self.deviceLimit
        else { return nil }
        var longer = self
        longer.append(devices, by: signer, identity)
        return longer
    }

    private mutating func append(
        _ devices: [ListedDevice], by signer: DeviceID, _ identity: borrowing IdentityKeyPair
    ) {
        let message = Self.signed(versions.count + 1, devices, signer, after: versions.last)
        versions.append(
            DeviceListVersion(
                devices: devices, signer: signer, signature: identity.sign(message.span, context: Self.context)))
    }

    private static func signed(
        _ version: Int, _ devices: [ListedDevice], _ signer: DeviceID, after previous: DeviceListVersion?
    ) -> [UInt8] {
        var message: [UInt8] = []
        message.append(bigEndian: UInt32(version))
        message.append(contentsOf: previous?.signature ?? [UInt8](repeating: 0, count: 64))
        message.append(bigEndian: signer.value)
        append(devices, to: &message)
        return message
    }

    private static func append(_ devices: [ListedDevice], to output: inout [UInt8]) {
        output.append(UInt8(devices.count))
        for device in devices {
            output.append(bigEndian: device.id.value)
            output.append(contentsOf: device.identity.bytes)
        }
    }

    // MARK: Bytes

    /// The form above.
    public var bytes: [UInt8] {
        var output: [UInt8] = [1, UInt8(versions.count)]
        for list in versions {
            Self.append(list.devices, to: &output)
            output.append(bigEndian: list.signer.value)
            output.append(contentsOf: list.signature)
        }
        return output
    }

    /// Reads the form above and checks every signature. Takes about 60 microseconds per version.
    ///
    /// - Throws: `EnvelopeError.malformed`, also if a signature is wrong or a limit is exceeded.
    public init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        guard form == 1 else { throw .unsupportedVersion(form) }
        let count = Int(try cursor.byte())
        guard (1...Self.versionLimit).contains(count) else { throw .malformed }
        versions = []
        for _ in 0..<count { versions.append(try Self.list(&cursor, after: versions)) }
        guard cursor.isAtEnd else { throw .malformed }
    }

    /// The number that two people compare: of the first keys of both lists, the same on both sides.
    ///
    /// It stays the same while devices are added and removed. The two sides may know each other by different names, so
    /// it contains no name.
    public func safetyNumber(with other: DeviceList) -> SafetyNumber {
        func party(_ list: DeviceList) -> SafetyNumber.Party {
            SafetyNumber.Party(identifier: list.root.bytes, key: list.root)
        }
        return SafetyNumber(party(self), party(other))
    }

    private static func list(_ cursor: inout ByteCursor, after versions: [DeviceListVersion]) throws(EnvelopeError)
        -> DeviceListVersion
    {
        let count = Int(try cursor.byte())
        guard (1...deviceLimit).contains(count), !versions.isEmpty || count == 1 else { throw .malformed }
        var devices: [ListedDevice] = []
        for _ in 0..<count {
            let id = DeviceID(try cursor.uint64())
            let key = try cursor.take(IdentityKey.byteCount)
            guard let identity = try? IdentityKey(key.span),
                !devices.contains(where: { $0.id == id || $0.identity == identity }),
                // A device keeps its key in all versions.
                !versions.contains(where: { $0.devices.contains { $0.id == id && $0.identity != identity } })
            else { throw .malformed }
            devices.append(ListedDevice(id: id, identity: identity))
        }
        let signer = DeviceID(try cursor.uint64())
        let signature = try cursor.take(64)
        let signers = versions.last?.devices ?? devices
        let message = signed(versions.count + 1, devices, signer, after: versions.last)
        guard let key = signers.first(where: { $0.id == signer })?.identity,
            key.isValidSignature(signature.span, of: message.span, context: context)
        else { throw .malformed }
        return DeviceListVersion(devices: devices, signer: signer, signature: signature)
    }
}
