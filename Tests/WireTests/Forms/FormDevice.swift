import Devices
import DoubleRatchet
import Envelope
import TestKit

/// The keys of one device, made once: a key generation for each input would take most of a fuzzer's time.
final class FormDevice: Sendable {
    /// Two devices of one person, then one of each of two others.
    static let all = (1...4).map { FormDevice($0) }

    let id: DeviceID
    let identity: IdentityKeyPair
    let bundle: PreKeyBundle
    let oneTime: [OneTimePreKey.Public]
    /// A list of this device alone.
    let list: DeviceList

    private init(_ number: UInt64) {
        var random = SeededGenerator(seed: number)
        id = DeviceID(number << 32 | number)
        identity = IdentityKeyPair(random: &random)
        var (store, changes) = (PreKeyStore(), [PreKeyChange]())
        bundle = store.bundle(identity: identity, at: 0, random: &random, &changes)
        oneTime = store.makeOneTimeKeys(3, at: 0, random: &random, &changes)
        list = DeviceList(of: ListedDevice(id: id, identity: identity.publicKey), identity: identity)
    }

    var listed: ListedDevice { ListedDevice(id: id, identity: identity.publicKey) }

    func sign(_ message: [UInt8], _ context: String) -> [UInt8] { identity.sign(message.span, context: context) }

    /// A list that has grown and shrunk as the input says.
    static func list(_ input: inout FormInput) -> DeviceList {
        var list = all[input.byte() % all.count].list
        for _ in 0..<input.byte() % 4 {
            let (signer, other) = (all[input.byte() % all.count], all[input.byte() % all.count])
            let longer =
                input.byte() % 3 > 0
                ? list.adding(other.listed, by: signer.id, signer.identity)
                : list.removing(other.id, by: signer.id, signer.identity)
            list = longer ?? list
        }
        return list
    }
}
