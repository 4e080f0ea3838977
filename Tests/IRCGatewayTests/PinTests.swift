import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import Protection
import Reports
import TestKit
import Testing

/// Whose keys are whose.
@Suite struct PinTests {
    /// Somebody gives another person's device number to a key of their own: sessions go by that number.
    @Test func aDeviceNumberIsNotTakenOver() throws {
        let alice = try World(.opportunistic, seed: 1, sidecar: true)
        let bob = try World(.opportunistic, seed: 2, beside: alice, sidecar: true)
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        alice.send(first, "PRIVMSG bob :hello")
        let device = try #require(bob.environment.peers?.own?.device)
        var random = SeededGenerator(seed: 99)
        let identity = IdentityKeyPair(random: &random)
        let deviceList = DeviceList(
            of: ListedDevice(id: device, identity: identity.publicKey), identity: identity)
        let signed = SignedPreKey(id: 1, identity: identity, random: &random)
        let kem = KEMPreKey(id: 2, isLastResort: true, identity: identity, random: &random)
        let once = OneTimePreKey(id: 3, random: &random)
        let bundle = PreKeyBundle(
            identity: identity.publicKey, signedPreKey: signed.publicKey, kemPreKey: kem.publicKey,
            oneTimePreKey: once.publicKey)
        let introduction = Introduction(time: 1, deviceList: deviceList, bundle: bundle, device: device)
        let envelope = Envelope(
            kind: .introduction, sender: device, messageID: MessageID(1),
            ratchetMessage: introduction.bytes(signedBy: identity))
        let lines = try #require(Armour.split(envelope.bytes, id: 7, capacity: 350))
        for (id, person) in alice.backend.people where person.nick == "alice" {
            alice.backend.people[id]?.inbox += lines.map {
                ":mallory!m@host.test NOTICE alice :" + String(decoding: $0, as: UTF8.self)
            }
        }
        alice.settle()
        #expect(alice.environment.peers?[.nick("mallory")] == nil)
        alice.send(first, "PRIVMSG bob :secret")
        #expect(second.read.contains { $0.hasSuffix("[e2e] secret") })
    }

    /// Who has lost their keys takes the exchange for complete: they read, once, that the other side shows nothing of theirs.
    @Test func anOwnerOfNewKeysIsNotified() throws {
        let alice = try World(.opportunistic, seed: 1, sidecar: true)
        let bob = try World(.opportunistic, seed: 2, beside: alice, sidecar: true)
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        alice.send(first, "PRIVMSG bob :hello")
        bob.send(second, "PRIVMSG alice :secret")
        bob.close(second)
        let again = try World(.opportunistic, seed: 3, beside: alice, sidecar: true)
        let client = again.connect("bob")
        for text in ["hello", "are you there?", "?"] {
            again.send(client, "PRIVMSG alice :\(text)")
            again.advance(seconds: 61)
        }
        #expect(first.wasNotified(Notices.changedKeys("bob")))
        #expect(client.read.count { $0.contains("?PAWL? Your encryption keys are not those that I know of you") } == 1)
    }

    /// Somebody has used bob's nick for a while. Alice keeps the keys that she knows, and writes to bob when he is back.
    @Test func knownKeysAreKeptWhenOthersAreShown() throws {
        let alice = try World(.opportunistic, seed: 1, sidecar: true)
        let bob = try World(.opportunistic, seed: 2, beside: alice, sidecar: true)
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        alice.send(first, "PRIVMSG bob :hello")
        bob.send(second, "PRIVMSG alice :secret")
        bob.close(second)
        let mallory = try World(.opportunistic, seed: 3, beside: alice, sidecar: true)
        let thief = mallory.connect("bob")
        mallory.send(thief, "PRIVMSG alice :hello")
        #expect(alice.environment.peers?[.nick("bob")]?.offered != nil)
        mallory.close(thief)

        let again = try World(.opportunistic, store: bob.store, seed: 4, beside: alice, sidecar: true)
        let client = again.connect("bob")
        alice.send(first, "PRIVMSG bob :secret one")
        alice.pendingJobs.append(.sidecar(.decide(.nick("bob"), .keep)))
        alice.settle()
        #expect(alice.environment.peers?[.nick("bob")]?.offered == nil)
        alice.send(first, "PRIVMSG bob :secret two")
        #expect(client.shown(from: "alice") == ["[e2e] secret two"])
        #expect(!thief.read.contains { $0.contains("secret two") } && !alice.canary.contains("secret"))
    }

    @Test func anAccountNameHoldsNoSpace() {
        #expect(AccountID.services("own device") != .own)
        #expect(AccountID.services("room #room").roomName == nil)
        #expect(AccountID.services("alice").text == "alice")
    }
}
