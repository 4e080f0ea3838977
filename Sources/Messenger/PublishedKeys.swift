// The public keys of an account as its devices publish them, and the request of a new device to be added.
//
// Each device signs its own entry: a list alone proves nothing about a device that another one has added to it, and a
// server could exchange entries of two accounts.

package import Devices
package import DoubleRatchet
package import Envelope

/// The prekeys of one device, signed by the device for one account.
///
///     device (8 B) | bundle (2 B length) | signature (64 B)
///
/// The identity key in the bundle signs the root key of the account's list, the account's name (2 B length), the device
/// and the bundle; context `pawl device keys`.
package struct DeviceKeys: Equatable, Sendable {
    private static let context = "pawl device keys"

    package let id: DeviceID
    package let bundle: PreKeyBundle
    private let signature: [UInt8]

    /// Signs the prekeys of a device.
    package init(
        _ bundle: PreKeyBundle, of id: DeviceID, root: IdentityKey, account: String,
        signedBy identity: borrowing IdentityKeyPair
    ) {
        (self.id, self.bundle) = (id, bundle)
        signature = identity.sign(Self.signed(id, bundle, root, account).span, context: Self.context)
    }

    /// Whether the device has signed these keys for an account and its list.
    package func isConfirmed(root: IdentityKey, account: String) -> Bool {
        bundle.identity.isValidSignature(
            signature.span, of: Self.signed(id, bundle, root, account).span, context: Self.context)
    }

    private static func signed(
        _ id: DeviceID, _ bundle: PreKeyBundle, _ root: IdentityKey, _ account: String
    ) -> [UInt8] {
        var output: [UInt8] = root.bytes
        output.append(field: Array(account.utf8))
        output.append(bigEndian: id.value)
        bundle.serialize(into: &output)
        return output
    }

    fileprivate func append(to output: inout [UInt8]) {
        var keys: [UInt8] = []
        bundle.serialize(into: &keys)
        output.append(bigEndian: id.value)
        output.append(field: keys)
        output += signature
    }

    /// - Throws: ``EnvelopeError`` if bytes are missing, or if the keys of the bundle are not signed by its identity.
    fileprivate init(_ cursor: inout ByteCursor) throws(EnvelopeError) {
        id = DeviceID(try cursor.uint64())
        let keys = try cursor.field()
        signature = try cursor.take(64)
        guard let bundle = try? PreKeyBundle(serialized: keys.span), (try? bundle.verify()) != nil else {
            throw .malformed
        }
        self.bundle = bundle
    }
}

/// The device list of an account with the keys of its devices.
///
///     form 1 (1 B) | device list (2 B length) | devices (1 B) | each: see ``DeviceKeys``
package struct PublishedKeys: Equatable, Sendable {
    /// Ours: bytes of the form. A list in all its versions has at most 6 KiB, and the keys of six devices 9 KiB.
    package static let maximumLength = 32 * 1024
    private static let form: UInt8 = 1

    package var deviceList: DeviceList
    package var devices: [DeviceKeys]

    package init(deviceList: DeviceList, devices: [DeviceKeys]) {
        (self.deviceList, self.devices) = (deviceList, devices)
    }

    /// The keys of devices that are in the current list, under the key that the list has for them, and that have
    /// confirmed it for an account.
    package func confirmed(for account: String) -> [DeviceKeys] {
        devices.filter { keys in
            deviceList.identity(of: keys.id) == keys.bundle.identity
                && keys.isConfirmed(root: deviceList.root, account: account)
        }
    }

    package var bytes: [UInt8] {
        var output: [UInt8] = [Self.form]
        output.append(field: deviceList.bytes)
        output.append(UInt8(devices.count))
        for keys in devices { keys.append(to: &output) }
        return output
    }

    /// Reads the form above. Checks the signatures of the list and of the bundles, not those of ``DeviceKeys``.
    ///
    /// - Throws: ``EnvelopeError``, also if a device has two entries.
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        guard bytes.count <= Self.maximumLength else { throw .malformed }
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        guard form == Self.form else { throw .unsupportedVersion(form) }
        deviceList = try DeviceList(try cursor.field())
        let count = Int(try cursor.byte())
        guard count <= DeviceList.deviceLimit else { throw .malformed }
        devices = []
        for _ in 0..<count {
            let keys = try DeviceKeys(&cursor)
            guard !devices.contains(where: { $0.id == keys.id }) else { throw .malformed }
            devices.append(keys)
        }
        guard cursor.isAtEnd else { throw .malformed }
    }
}

/// The request of a device to be added to the list of its account.
///
///     form 2 (1 B) | root key of the list (32 B) | see ``DeviceKeys``
///
/// Its signature is the proof that the sender holds the device's key, and the device's consent to this list.
package struct DeviceRequest: Equatable, Sendable {
    /// Ours: bytes of the form; the keys of one device have some 1.5 KiB.
    package static let maximumLength = 4 * 1024
    private static let form: UInt8 = 2

    package var root: IdentityKey
    package var keys: DeviceKeys

    package init(root: IdentityKey, keys: DeviceKeys) { (self.root, self.keys) = (root, keys) }

    package var bytes: [UInt8] {
        var output: [UInt8] = [Self.form]
        output += root.bytes
        keys.append(to: &output)
        return output
    }

    /// Reads the form above; the signature of the request is not checked.
    ///
    /// - Throws: ``EnvelopeError``
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        guard bytes.count <= Self.maximumLength else { throw .malformed }
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        guard form == Self.form else { throw .unsupportedVersion(form) }
        let key = try cursor.take(IdentityKey.byteCount)
        guard let root = try? IdentityKey(key.span) else { throw .malformed }
        self.root = root
        keys = try DeviceKeys(&cursor)
        guard cursor.isAtEnd else { throw .malformed }
    }
}
