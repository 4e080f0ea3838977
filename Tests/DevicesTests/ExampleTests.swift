import Devices
import DoubleRatchet
import Envelope
import Protection
import Testing

/// What the articles throw if a list is full.
struct LimitReached: Error {}

/// The code of the articles in Devices.docc, with the public interface only. `DocumentationTests` compares the two.
@Suite struct ExampleTests {
    @Test func theTutorialRuns() throws {
        var random = SystemRandomSource()
        let now: Int64 = 1_800_000_000_000
        let bob = IdentityKeyPair(random: &random)
        let bobsID = DeviceID(1)
        let bobs = DeviceList(of: ListedDevice(id: bobsID, identity: bob.publicKey), identity: bob)
        var pins = PinTable(device: bobsID, deviceList: bobs)
        var preKeys = PreKeyStore()

        // Alice's phone.
        let phone = IdentityKeyPair(random: &random)
        let phoneID = DeviceID(.random(in: 1...UInt64.max))
        var alices = DeviceList(of: ListedDevice(id: phoneID, identity: phone.publicKey), identity: phone)

        // Her laptop makes its identity, and her phone signs a list with both.
        let laptop = IdentityKeyPair(random: &random)
        let laptopID = DeviceID(.random(in: 1...UInt64.max))
        let entry = ListedDevice(id: laptopID, identity: laptop.publicKey)
        guard let longer = alices.adding(entry, by: phoneID, phone) else { throw LimitReached() }
        alices = longer

        // Store `changes` before the introduction is sent.
        var changes: [PreKeyChange] = []
        let bundle = preKeys.bundleForOne(identity: phone, at: now, random: &random, &changes)
        let shown = Introduction(time: now, deviceList: alices, bundle: bundle, device: phoneID)
            .bytes(signedBy: phone)

        // Bob's device. The server says that this comes from `alice`.
        let introduction = try Introduction(shown, from: phoneID)
        let name = AccountID.services("alice")
        var session: Session?
        switch pins.assess(introduction.deviceList, with: introduction.device, as: [name], at: now) {
        case .new(var peer), .known(var peer, isRenewed: _):
            guard peer.takes(introduction) else { break }  // A copy.
            pins.put(peer)  // And store `peer.bytes` under its name.
            session = try Session.initiate(
                identity: bob, with: introduction.bundle,
                expecting: peer.deviceList.identity(of: introduction.device), random: &random)
        case .changed(let peer), .forked(let peer, isNew: _):
            pins.put(peer)  // Nothing is sent until a person decides.
        case .own(let list):
            if list.continues(pins.deviceList) { pins.deviceList = list }
        case .refused:
            break
        }
        let hasSession = session != nil
        #expect(hasSession)
        #expect(pins.devices(of: name).map(\.id) == [phoneID, laptopID] && pins.owner(of: phoneID) == name)

        // Both people see the same 60 digits.
        let digits = pins.deviceList.safetyNumber(with: alices).description
        #expect(alices.safetyNumber(with: bobs).description == digits)
        #expect(pins.verify(name)?.isVerified == true)

        // Somebody else's keys come under her name.
        let other = IdentityKeyPair(random: &random)
        let others = DeviceList(of: ListedDevice(id: DeviceID(7), identity: other.publicKey), identity: other)
        guard case .changed(let peer) = pins.assess(others, with: DeviceID(7), as: [name], at: now) else {
            throw LimitReached()
        }
        pins.put(peer)
        #expect(pins.devices(of: name).isEmpty && pins.verify(name) == nil)
        // The person has compared the new number and accepts it.
        guard let former = pins.accept(name) else { throw LimitReached() }
        // Store the peer, and end the sessions with the former devices.
        #expect(former.map(\.id) == [phoneID, laptopID])

        let stored = pins.peers.values.map { (name: $0.name.text, bytes: $0.bytes) }
        let storedList = pins.deviceList.bytes
        let peers = try stored.map { try Peer(name: AccountID(text: $0.name), bytes: $0.bytes) }
        pins = PinTable(device: bobsID, deviceList: try DeviceList(storedList), peers: peers)
        #expect(pins.devices(of: name).map(\.identity) == [other.publicKey])
        #expect(pins.peers[name]?.isVerified == false)
    }
}
