import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import Protection
import TestKit
import Vault

/// Somebody with keys of their own and no rules.
final class Forger: Sendable {
    let identity: IdentityKeyPair
    let device: DeviceID
    let deviceList: DeviceList
    let bundle: PreKeyBundle

    init(seed: UInt64, device number: UInt64? = nil, lists others: [ListedDevice] = []) {
        var random = SeededGenerator(seed: seed &+ 0xF0F0)
        let keys = IdentityKeyPair(random: &random)
        device = DeviceID(number ?? (seed &+ 1) << 20)
        let signed = SignedPreKey(id: 1, identity: keys, random: &random)
        let kem = KEMPreKey(id: 2, isLastResort: true, identity: keys, random: &random)
        let once = OneTimePreKey(id: 3, random: &random)
        bundle = PreKeyBundle(
            identity: keys.publicKey, signedPreKey: signed.publicKey, kemPreKey: kem.publicKey,
            oneTimePreKey: once.publicKey)
        var deviceList = DeviceList(of: ListedDevice(id: device, identity: keys.publicKey), identity: keys)
        for other in others { deviceList = deviceList.adding(other, by: device, keys) ?? deviceList }
        self.deviceList = deviceList
        identity = keys
    }

    /// A version of the list with one more device.
    func listing(_ other: ListedDevice) -> DeviceList? { deviceList.adding(other, by: device, identity) }

    /// What the directory has of the device.
    var published: PublishedDevice {
        let keys = PreKeyBundle(
            identity: bundle.identity, signedPreKey: bundle.signedPreKey, kemPreKey: bundle.kemPreKey,
            oneTimePreKey: nil)
        return PublishedDevice(id: device, bundle: keys, oneTime: [])
    }

    /// A proof of the device for an account that the backend has let in, with a challenge that was given.
    ///
    /// - Parameter list: the list to publish, in place of ``deviceList``.
    func publication(as account: AccountID, by connection: ConnectionID, _ list: DeviceList? = nil) -> IRCJob {
        let nonce = [UInt8](repeating: 1, count: 32)
        let message = DirectoryMessage.proof(
            nonce: nonce, account: account.text, list ?? deviceList, published, signedBy: identity)
        guard case .publish(let deviceList, let device, let signature) = message else { return .tick }
        return .directory(
            DirectoryJob(
                connection: connection, id: 1, account: account,
                request: .publish(deviceList, device, signature: signature, nonce: nonce)))
    }

    func introduction(time: Int64) -> Envelope { introduction(time: time, form: nil) }

    /// An introduction as a program of another version would sign it.
    func introduction(time: Int64, form: UInt8?) -> Envelope {
        var content = Introduction(time: time, deviceList: deviceList, bundle: bundle, device: device).bytes(
            signedBy: identity)
        if let form {
            content = [form] + content.dropFirst().dropLast(64)
            var signed = content
            signed.append(bigEndian: device.value)
            content += identity.sign(signed.span, context: "pawl introduction")
        }
        return Envelope(
            kind: .introduction, sender: device, messageID: MessageID(UInt64(bitPattern: time)),
            ratchetMessage: content)
    }

    /// An envelope as lines of somebody, to a target.
    static func lines(_ envelope: Envelope, _ source: String, _ verb: String, _ target: String) -> [String] {
        let id = UInt32(truncatingIfNeeded: envelope.messageID.value)
        return (Armour.split(envelope.bytes, id: id, capacity: 380) ?? []).map {
            ":\(source) \(verb) \(target) :" + String(decoding: $0, as: UTF8.self)
        }
    }
}

extension World {
    /// The backend says lines to a client that nobody has sent.
    func forge(_ client: Client, _ lines: [String]) {
        backend.people[client.front?.id ?? client.id]?.inbox += lines
        settle()
    }

    func root(_ name: AccountID) -> IdentityKey? { environment.peers?[name]?.deviceList.root }
}

extension World.Client {
    /// Texts of the PRIVMSGs that were shown under a nick, or to a target.
    func shown(from nick: String? = nil, to target: String? = nil) -> [String] {
        read.filter { line in
            line.contains(" PRIVMSG ") && nick.map { line.contains(":\($0)!") } != false
                && target.map { line.contains(" PRIVMSG \($0) ") } != false
        }.map { String($0.split(separator: " :", maxSplits: 1).last ?? "") }
    }

    /// Whether a text was shown as a notice; false for a failure that shows nothing.
    ///
    /// What has to be shown is named whole, by its function in ``Notices``. What must not be shown is named by words that
    /// stand in it whoever it is about, so that no argument narrows the check.
    func wasNotified(_ notice: String?) -> Bool {
        guard let notice else { return false }
        return read.contains { $0.contains(" NOTICE ") && $0.contains(notice) }
    }
}
