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

    /// Someone has used the peer's name for a while. The known keys are used again, and the others can be offered again.
    @Test mutating func otherKeysCanBeDropped() throws {
        let (own, phone, other) = (Device(1, &random), Device(2, &random), Device(3, &random))
        var pins = PinTable(device: own.id, deviceList: own.list)
        try pin(phone.list, phone.id, alice, in: &pins)
        let (verified, dropped) = (pins.verify(alice), pins.keep(alice))
        #expect(verified != nil && dropped == nil)
        for _ in 0..<2 {
            guard case .changed(let peer) = pins.assess(other.list, with: other.id, as: [alice], at: 6) else {
                Issue.record("other keys are not offered")
                return
            }
            pins.put(peer)
            #expect(pins.devices(of: alice).isEmpty)
            let kept = pins.keep(alice)
            #expect(kept?.offered == nil && kept?.isVerified == true && kept?.settledVersions == 0)
            #expect(pins.devices(of: alice) == [phone.entry])
        }
        // What the peer itself shows later is a later version, as ever.
        let longer = try adding(Device(4, &random), to: phone.list, by: phone)
        guard case .known(_, isRenewed: true) = pins.assess(longer, with: phone.id, as: [alice], at: 7) else {
            Issue.record("a later version is not known")
            return
        }
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
        guard case .forked(let eve, isNew: true) = pins.assess(two, with: phone.id, as: [alice], at: 8) else {
            Issue.record("a fork is not noticed")
            return
        }
        #expect(eve.deviceList == one && eve.offered == two && eve.isForked)
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
        // A fork of our own list, under any name.
        let forked = try adding(third, to: own.list, by: own)
        for names in [[alice], [AccountID.own]] {
            #expect(refusal(pins.assess(forked, with: own.id, as: names, at: 9)) == .forksOwnList)
        }
    }

    /// A stolen device signs a list of its own. Nothing is sent until the person has chosen one of the two lists, and
    /// after that the same device causes no second question.
    @Test(arguments: [true, false]) mutating func aForkWaitsForADecision(_ keeps: Bool) throws {
        let (own, phone, laptop) = (Device(1, &random), Device(2, &random), Device(3, &random))
        let (tablet, thief) = (Device(4, &random), Device(5, &random))
        var pins = PinTable(device: own.id, deviceList: own.list)
        let start = try adding(laptop, to: phone.list, by: phone)
        try pin(start, phone.id, alice, in: &pins)
        #expect(pins.verify(alice)?.isVerified == true && pins.keep(alice) == nil)
        // The phone removes the stolen laptop, and the laptop removes the phone.
        guard let right = start.removing(laptop.id, by: phone.id, phone.identity),
            let wrong = start.removing(phone.id, by: laptop.id, laptop.identity)
        else { throw LimitReached() }
        guard case .known(let renewed, isRenewed: true) = pins.assess(right, with: phone.id, as: [alice], at: 6) else {
            Issue.record("a later version is not known")
            return
        }
        pins.put(renewed)
        // Under another name it is the same fork.
        for (names, isNew) in [([AccountID.services("eve")], true), ([alice], false)] {
            guard case .forked(let peer, isNew) = pins.assess(wrong, with: laptop.id, as: names, at: 7) else {
                Issue.record("a fork is not noticed")
                return
            }
            #expect(peer.name == alice && peer.deviceList == right && peer.offered == wrong)
            #expect(try Peer(name: alice, bytes: peer.bytes).isForked)
            pins.put(peer)
            #expect(pins.devices(of: alice).isEmpty && pins.verify(alice) == nil)
        }
        // A later version of the known list is taken meanwhile, and decides nothing.
        let longer = try adding(tablet, to: right, by: phone)
        guard case .known(let later, isRenewed: true) = pins.assess(longer, with: phone.id, as: [alice], at: 8) else {
            Issue.record("a later version is not known")
            return
        }
        pins.put(later)
        #expect(pins.devices(of: alice).isEmpty)
        if keeps {
            #expect(pins.keep(alice)?.isVerified == true)
            #expect(pins.devices(of: alice) == [phone.entry, tablet.entry])
        } else {
            #expect(pins.accept(alice) == [phone.entry, tablet.entry])
            #expect(pins.devices(of: alice) == [laptop.entry] && pins.peers[alice]?.isVerified == false)
        }
        let peer = try #require(pins.peers[alice])
        #expect(try !peer.isForked && Peer(name: alice, bytes: peer.bytes) == peer)
        // The device that has lost can make as many lists as it likes.
        let (loser, list) = keeps ? (laptop, wrong) : (phone, longer)
        for late in [list, try adding(thief, to: list, by: loser)] {
            #expect(refusal(pins.assess(late, with: loser.id, as: [alice], at: 9)) == .belongsElsewhere)
        }
        // One that leaves the list later is noticed again.
        let (winner, kept) = keeps ? (phone, longer) : (laptop, wrong)
        let (one, two) = (try adding(thief, to: kept, by: winner), try adding(Device(6, &random), to: kept, by: winner))
        guard case .known(let last, isRenewed: true) = pins.assess(one, with: winner.id, as: [alice], at: 10) else {
            Issue.record("a later version is not known")
            return
        }
        pins.put(last)
        guard case .forked(_, isNew: true) = pins.assess(two, with: winner.id, as: [alice], at: 11) else {
            Issue.record("a later fork is not noticed")
            return
        }
    }

    /// A fork cannot hide behind the number of a device that is known with another key.
    @Test mutating func aForkWithAKnownNumberIsNoticedAndNotAccepted() throws {
        let (own, phone, laptop) = (Device(1, &random), Device(2, &random), Device(3, &random))
        var pins = PinTable(device: own.id, deviceList: own.list)
        try pin(try adding(laptop, to: phone.list, by: phone), phone.id, alice, in: &pins)
        let fork = try adding(Device(3, &random), to: phone.list, by: phone)
        guard case .forked(let peer, isNew: true) = pins.assess(fork, with: phone.id, as: [alice], at: 6) else {
            Issue.record("a fork is not noticed")
            return
        }
        pins.put(peer)
        #expect(pins.accept(alice) == nil && pins.devices(of: alice).isEmpty)
        #expect(pins.keep(alice) != nil && pins.devices(of: alice).count == 2)
    }

    /// A peer has shown another person's device with a key of its own. Once it is forgotten, that person can be known.
    @Test mutating func aForgottenPeerHoldsNoNumber() throws {
        let (own, phone, laptop) = (Device(1, &random), Device(2, &random), Device(3, &random))
        var pins = PinTable(device: own.id, deviceList: own.list)
        let (thief, eve) = (Device(2, &random), AccountID.services("eve"))
        try pin(try adding(laptop, to: thief.list, by: thief), thief.id, eve, in: &pins)
        try pin(laptop.list, laptop.id, carol, in: &pins)
        #expect(refusal(pins.assess(phone.list, with: phone.id, as: [alice], at: 6)) == .belongsElsewhere)
        pins.remove(eve)
        #expect(pins.identity(of: phone.id) == nil && pins.identity(of: laptop.id) == laptop.entry.identity)
        try pin(phone.list, phone.id, alice, in: &pins)
        #expect(refusal(pins.assess(thief.list, with: thief.id, as: [eve], at: 6)) == .belongsElsewhere)
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
        #expect(throws: EnvelopeError.unsupportedVersion(3)) { try Peer(name: alice, bytes: [3] + bytes.dropFirst()) }
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
