import Devices
import DoubleRatchet
import Envelope
import TestKit

/// A device of ours. Between two calls its sessions exist only as states, so what is refused changes nothing.
final class WireDevice {
    let id: DeviceID
    let identity: IdentityKeyPair
    var random: SeededGenerator
    private var store = PreKeyStore()
    private var sessions: [String: [UInt8]] = [:]

    init(_ id: UInt64) {
        self.id = DeviceID(id)
        random = SeededGenerator(seed: id)
        identity = IdentityKeyPair(random: &random)
    }

    var key: [UInt8] { identity.publicKey.bytes }

    /// A list of this device alone.
    var list: DeviceList {
        DeviceList(of: ListedDevice(id: id, identity: identity.publicKey), identity: identity)
    }

    func bundle(oneTime: Bool, oneTimeKEM: Bool = false) -> [UInt8] {
        var (changes, bytes): ([PreKeyChange], [UInt8]) = ([], [])
        let bundle =
            oneTime
            ? store.bundleForOne(identity: identity, withKEM: oneTimeKEM, at: 0, random: &random, &changes)
            : store.bundle(identity: identity, at: 0, random: &random, &changes)
        bundle.serialize(into: &bytes)
        return bytes
    }

    func oneTimeKeys(_ count: Int) -> [OneTimePreKey.Public] {
        var changes: [PreKeyChange] = []
        return store.makeOneTimeKeys(count, at: 0, random: &random, &changes)
    }

    func initiate(_ session: String, with bundle: [UInt8]) throws {
        let begun = try Session.initiate(
            identity: identity, with: try PreKeyBundle(serialized: bundle.span), expecting: nil, random: &random)
        guard let state = sessions[session] else { return keep(SessionRecord(begun), as: session) }
        var record = try SessionRecord(serialized: state.span)
        record.begin(begun)
        keep(record, as: session)
    }

    private func keep(_ record: borrowing SessionRecord, as session: String) {
        var bytes: [UInt8] = []
        record.serialize(into: &bytes)
        sessions[session] = bytes
    }

    /// The record of a session in the hands of a closure, which may advance it.
    func with<Result>(_ session: String, _ body: (inout SessionRecord) throws -> Result) throws -> Result {
        guard let state = sessions[session] else { throw RatchetError.differentSession }
        var record = try SessionRecord(serialized: state.span)
        let result = try body(&record)
        keep(record, as: session)
        return result
    }

    func encrypt(_ session: String, _ associated: [UInt8], _ text: [UInt8]) throws -> [UInt8] {
        try with(session) { record in
            var message: [UInt8] = []
            try record.encrypt(text.span, associatedData: associated.span, random: &random, into: &message)
            return message
        }
    }

    /// Wraps the key of a message for several devices.
    func add(
        to sealer: inout MultiRecipientSealer, _ device: DeviceID, _ session: String, _ associated: [UInt8]
    ) throws {
        guard let state = sessions[session] else { throw RatchetError.differentSession }
        var record = try SessionRecord(serialized: state.span)
        try sealer.add(device.value, &record, associatedData: associated, random: &random)
        keep(record, as: session)
    }

    /// Opens a message, which may begin the session.
    func decrypt(_ session: String, _ associated: [UInt8], _ message: [UInt8]) throws -> [UInt8] {
        var text: [UInt8] = []
        if sessions[session] != nil {
            do {
                _ = try with(session) { record in
                    try record.decrypt(message.span, associatedData: associated.span, into: &text)
                }
                return text
            } catch RatchetError.differentSession {
                // The message begins another one.
            }
        }
        let beginning = try store.begin(
            identity: identity, message: message.span, associatedData: associated.span, expecting: nil,
            plaintext: &text)
        var changes: [PreKeyChange] = []
        let begun = try beginning.commit(to: &store, at: 0, &changes)
        guard let state = sessions[session] else {
            keep(SessionRecord(begun), as: session)
            return text
        }
        var record = try SessionRecord(serialized: state.span)
        record.accept(begun)
        keep(record, as: session)
        return text
    }

    func refuses(_ session: String, _ associated: [UInt8], _ message: [UInt8]) -> Bool {
        do {
            _ = try decrypt(session, associated, message)
            return false
        } catch {
            return true
        }
    }
}

func refuses(_ body: () throws -> Void) -> Bool {
    do {
        try body()
        return false
    } catch {
        return true
    }
}
