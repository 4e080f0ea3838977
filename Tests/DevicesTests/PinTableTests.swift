import Devices
import DoubleRatchet
import Envelope
import Protection
import TestKit
import Testing

/// What device lists of others mean to a table of pins.
@Suite struct PinTableTests {
    private let alice = AccountID.services("alice")
    private let carol = AccountID.services("carol")
    private var random = SeededGenerator(seed: 40)

    /// A device with the list that it has made.
    private final class Device {
        let identity: IdentityKeyPair
        let id: DeviceID
        let list: DeviceList

        init(_ number: UInt64, _ random: inout SeededGenerator) {
            identity = IdentityKeyPair(random: &random)
            id = DeviceID(number)
            list = DeviceList(of: ListedDevice(id: id, identity: identity.publicKey), identity: identity)
        }

        var entry: ListedDevice { ListedDevice(id: id, identity: identity.publicKey) }
    }

    private func adding(_ device: Device, to list: DeviceList, by signer: Device) throws -> DeviceList {
        guard let longer = list.adding(device.entry, by: signer.id, signer.identity) else { throw LimitReached() }
        return longer
    }

    private func refusal(_ assessment: PinTable.Assessment) -> PinTable.Refusal? {
        guard case .refused(let refusal) = assessment else { return nil }
        return refusal
    }

    /// Assesses a list, and pins it.
    private func pin(_ list: DeviceList, _ id: DeviceID, _ name: AccountID, in pins: inout PinTable) throws {
        guard case .new(let peer) = pins.assess(list, with: id, as: [name], at: 5) else {
            throw EnvelopeError.malformed
        }
        #expect(peer.name == name && peer.since == 5 && !peer.isVerified)
        pins.put(peer)
    }

    @Test mutating func aLaterVersionRenewsAPin() throws {
        let (own, phone, laptop) = (Device(1, &random), Device(2, &random), Device(3, &random))
        var pins = PinTable(device: own.id, deviceList: own.list)
        try pin(phone.list, phone.id, alice, in: &pins)
        let longer = try adding(laptop, to: phone.list, by: phone)
        guard case .known(let peer, isRenewed: true) = pins.assess(longer, with: laptop.id, as: [alice], at: 6) else {
            Issue.record("a later version is not known")
            return
        }
        #expect(peer.deviceList == longer && peer.since == 5)
        pins.put(peer)
        // The version before does not take it back.
        guard case .known(let same, isRenewed: false) = pins.assess(phone.list, with: phone.id, as: [alice], at: 7)
        else {
            Issue.record("an earlier version is not known")
            return
        }
        #expect(same.deviceList == longer)
        // A removed device is refused, by its owner's name and by any other.
        guard let shorter = longer.removing(laptop.id, by: phone.id, phone.identity) else { throw LimitReached() }
        guard case .known(let last, isRenewed: true) = pins.assess(shorter, with: phone.id, as: [alice], at: 8) else {
            Issue.record("a shorter version is not known")
            return
        }
        pins.put(last)
        #expect(refusal(pins.assess(longer, with: laptop.id, as: [alice], at: 9)) == .notListed)
        #expect(pins.devices(of: alice) == [phone.entry])
    }

    @Test mutating func otherKeysAreOfferedAndNeverPinnedByThemselves() throws {
        let (own, phone, other) = (Device(1, &random), Device(2, &random), Device(3, &random))
        var pins = PinTable(device: own.id, deviceList: own.list)
        try pin(phone.list, phone.id, alice, in: &pins)
        #expect(pins.verify(alice)?.isVerified == true && pins.accept(alice) == nil)
        guard case .changed(let peer) = pins.assess(other.list, with: other.id, as: [alice], at: 6) else {
            Issue.record("other keys are not offered")
            return
        }
        #expect(peer.deviceList == phone.list && peer.offered == other.list)
        #expect(pins.devices(of: alice) == [phone.entry], "an assessment changes nothing")
        pins.put(peer)
        #expect(pins.devices(of: alice).isEmpty && pins.verify(alice) == nil)
        #expect(pins.owner(of: other.id) == nil && pins.identity(of: other.id) == nil)
        #expect(pins.accept(alice) == [phone.entry])
        #expect(pins.devices(of: alice) == [other.entry] && pins.peers[alice]?.isVerified == false)
        #expect(pins.owner(of: other.id) == alice)
        pins.remove(alice)
        #expect(pins.peers.isEmpty && pins.owner(of: other.id) == nil)
    }

    @Test mutating func whatBelongsElsewhereIsRefused() throws {
        let (own, phone, laptop) = (Device(1, &random), Device(2, &random), Device(3, &random))
        var pins = PinTable(device: own.id, deviceList: own.list)
        try pin(phone.list, phone.id, alice, in: &pins)
        // Her list under another name that has a pin, and under one that has none.
        #expect(refusal(pins.assess(laptop.list, with: phone.id, as: [], at: 6)) == .notListed)
        try pin(laptop.list, laptop.id, carol, in: &pins)
        guard case .changed(let other) = pins.assess(phone.list, with: phone.id, as: [carol], at: 6),
            case .known(let same, isRenewed: false) = pins.assess(
                phone.list, with: phone.id, as: [.services("eve")], at: 6)
        else {
            Issue.record("a list under another name is its own list or a change, never a new pin")
            return
        }
        #expect(other.name == carol && other.deviceList == laptop.list && same.name == alice)
        // A fork has the same first key.
        let third = Device(4, &random)
        let one = try adding(third, to: phone.list, by: phone)
        let fourth = Device(5, &random)
        let two = try adding(fourth, to: phone.list, by: phone)
        guard case .known(let peer, isRenewed: true) = pins.assess(one, with: phone.id, as: [alice], at: 7) else {
            Issue.record("a later version is not known")
            return
        }
        pins.put(peer)
        #expect(refusal(pins.assess(two, with: phone.id, as: [alice], at: 8)) == .belongsElsewhere)
        // Another key for a known device.
        let thief = Device(2, &random)
        #expect(pins.contradicts(thief.list))
        #expect(refusal(pins.assess(thief.list, with: thief.id, as: [.services("eve")], at: 8)) == .belongsElsewhere)
        // A list that only begins like our own.
        #expect(refusal(pins.assess(own.list, with: DeviceID(99), as: [alice], at: 8)) == nil)
        let mine = try adding(fourth, to: own.list, by: own)
        guard case .own(let list) = pins.assess(mine, with: fourth.id, as: [alice], at: 8) else {
            Issue.record("the own list is not recognised")
            return
        }
        pins.deviceList = list
        #expect(pins.owner(of: fourth.id) == .own && pins.owner(of: own.id) == nil)
    }

    @Test mutating func theTableHasALimit() {
        let (own, phone, other) = (Device(1, &random), Device(2, &random), Device(3, &random))
        var pins = PinTable(device: own.id, deviceList: own.list)
        for number in 0..<PinTable.peerLimit {
            pins.put(Peer(name: .services("peer\(number)"), deviceList: phone.list, since: 0))
        }
        #expect(refusal(pins.assess(other.list, with: other.id, as: [alice], at: 1)) == .tooMany)
        pins.remove(.services("peer0"))
        #expect(refusal(pins.assess(other.list, with: other.id, as: [alice], at: 1)) == nil)
    }

    // MARK: Introductions

    @Test mutating func anIntroductionIsTakenOnce() throws {
        let (phone, laptop) = (Device(2, &random), Device(3, &random))
        let list = try adding(laptop, to: phone.list, by: phone)
        var store = PreKeyStore()
        var changes: [PreKeyChange] = []
        let bundle = store.bundleForOne(identity: phone.identity, at: 0, random: &random, &changes)
        var peer = Peer(name: alice, deviceList: list, since: 0)
        for (time, isNew) in [(10, true), (10, false), (9, false), (11, true)] as [(Int64, Bool)] {
            let bytes = Introduction(time: time, deviceList: list, bundle: bundle, device: phone.id)
                .bytes(signedBy: phone.identity)
            let introduction = try Introduction(bytes, from: phone.id)
            #expect(peer.takes(introduction) == isNew && introduction.time == time)
        }
        #expect(peer.hasConfirmed(phone.id) && !peer.hasConfirmed(laptop.id))
        #expect(try Peer(name: alice, bytes: peer.bytes) == peer)
    }

    @Test mutating func anAlteredIntroductionIsRefused() throws {
        let (phone, laptop) = (Device(2, &random), Device(3, &random))
        let list = try adding(laptop, to: phone.list, by: phone)
        var store = PreKeyStore()
        var changes: [PreKeyChange] = []
        let bundle = store.bundleForOne(identity: phone.identity, at: 0, random: &random, &changes)
        let bytes = Introduction(time: 1, deviceList: list, bundle: bundle, device: phone.id)
            .bytes(signedBy: phone.identity)
        // Made for another device, by another device, and cut or altered at random places.
        #expect(throws: EnvelopeError.malformed) { try Introduction(bytes, from: laptop.id) }
        #expect(throws: EnvelopeError.malformed) { try Introduction(bytes + [0], from: phone.id) }
        let foreign = Introduction(time: 1, deviceList: list, bundle: bundle, device: phone.id)
            .bytes(signedBy: laptop.identity)
        #expect(throws: EnvelopeError.malformed) { try Introduction(foreign, from: phone.id) }
        #expect(throws: EnvelopeError.outdated(1)) { try Introduction([1] + bytes.dropFirst(), from: phone.id) }
        for _ in 0..<60 {
            let place = random.below(bytes.count)
            #expect(throws: EnvelopeError.self) { try Introduction(Array(bytes.prefix(place)), from: phone.id) }
            var altered = bytes
            altered[place] ^= UInt8(1 << random.below(8))
            #expect(throws: EnvelopeError.self, "byte \(place)") { try Introduction(altered, from: phone.id) }
        }
    }

    // MARK: Bytes

    @Test mutating func aStoredPeerIsReadBackOrRefused() throws {
        let (phone, laptop) = (Device(2, &random), Device(3, &random))
        var peer = Peer(name: alice, deviceList: phone.list, since: 77)
        peer.isVerified = true
        peer.isEstablished = true
        peer.offered = laptop.list
        let bytes = peer.bytes
        #expect(try Peer(name: alice, bytes: bytes) == peer)
        for count in 0..<bytes.count {
            #expect(throws: EnvelopeError.self, "\(count) bytes") {
                try Peer(name: alice, bytes: Array(bytes.prefix(count)))
            }
        }
        #expect(throws: EnvelopeError.unsupportedVersion(2)) { try Peer(name: alice, bytes: [2] + bytes.dropFirst()) }
        // What is read is written as it was.
        for _ in 0..<300 {
            var altered = bytes
            altered[random.below(altered.count)] ^= UInt8(1 << random.below(8))
            guard let read = try? Peer(name: alice, bytes: altered) else { continue }
            #expect(try Peer(name: alice, bytes: read.bytes) == read)
        }
        for length in 0..<200 {
            let noise = random.bytes(length)
            #expect(throws: EnvelopeError.self) { try Peer(name: alice, bytes: noise) }
            #expect(throws: EnvelopeError.self) { try DeviceList(noise) }
        }
    }

    @Test mutating func bothSidesComputeTheSameSafetyNumber() throws {
        let (own, phone, other) = (Device(1, &random), Device(2, &random), Device(3, &random))
        let number = own.list.safetyNumber(with: phone.list)
        #expect(phone.list.safetyNumber(with: own.list).description == number.description)
        let longer = try adding(other, to: phone.list, by: phone)
        #expect(own.list.safetyNumber(with: longer).description == number.description)
        #expect(own.list.safetyNumber(with: other.list).description != number.description)
    }
}
