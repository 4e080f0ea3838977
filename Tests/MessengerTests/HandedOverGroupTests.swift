import Devices
import DoubleRatchet
import Envelope
import Protection
import TestKit
import Testing

@testable import Messenger

/// Groups over a carrier with keys in band: no server keeps their versions.
@Suite struct HandedOverGroupTests {
    private typealias Pair = IntroductionTests.Pair

    private func change(_ change: GroupChange, of base: GroupID?, by device: World.Device) throws -> MessengerReply? {
        let reply = device.perform { .proposeGroup(ticket: $0, change, of: base) }
        guard case .proposal(let proposal)? = reply else { return reply }
        return device.perform {
            .publishedGroup(ticket: $0, proposal, blob: GroupReference.blob(at: device.id))
        }
    }

    /// Versions are at their members: a device that is named one asks the device that has named it.
    @Test func aMemberHandsVersionsOver() throws {
        let pair = try Pair()
        try pair.meet()
        let (alice, bob) = (pair.alice, pair.bob)
        var random = SeededGenerator(seed: 13)
        _ = try change(.create(name: "team", metadata: [], members: ["bob"]), of: nil, by: alice)
        let id = try #require(alice.machine.groups.first?.id)
        alice.send("one", in: id)
        pair.deliver()
        let first = try #require(bob.machine.wantedGroups.first)
        #expect(bob.machine.wantedGroups.count == 1 && first.holder == alice.id && bob.machine.groups.isEmpty)
        #expect(try alice.machine.blob(of: first, for: "mallory", random: &random) == nil)
        #expect(try bob.machine.blob(of: first, for: "alice", random: &random) == nil)
        let blob = try #require(try alice.machine.blob(of: first, for: "bob", random: &random))
        bob.perform { .readGroup(ticket: $0, first, blob, hasKeys: false) }
        #expect(bob.machine.groups.map(\.content.name) == ["team"] && bob.machine.wantedGroups.isEmpty)
        #expect(bob.texts(in: id) == ["one"])
        // Bob has it too, and says so in his messages.
        bob.send("two", in: id)
        pair.deliver()
        #expect(Set(alice.texts(in: id)) == ["one", "two"])
        #expect(bob.machine.groups.first.map(bob.machine.reference)?.holder == bob.id)
        // The version that removes him is his business, and the next one is not.
        _ = try change(.remove(["bob"]), of: id, by: alice)
        let second = try #require(alice.machine.groups.first?.reference)
        #expect(try alice.machine.blob(of: second, for: "bob", random: &random) != nil)
        _ = try change(.rename("others"), of: id, by: alice)
        let third = try #require(alice.machine.groups.first?.reference)
        #expect(try alice.machine.blob(of: third, for: "bob", random: &random) == nil)
        #expect(try alice.machine.blob(of: first, for: "bob", random: &random) != nil)
    }

    /// A message names the device that has sealed it, and no other.
    @Test func messagesNameTheirDevice() throws {
        #expect(GroupReference.blob(at: DeviceID(0x1F)) == "member 000000000000001f")
        let form = GroupReference(
            group: try #require(GroupID(String(repeating: "0", count: 32))), digest: [], key: [], blob: "")
        for blob in ["", "member", "member ", "member 1f", "member 000000000000001f ", "blob 000000000000001f"] {
            var reference = form
            reference.blob = blob
            #expect(reference.holder == nil)
        }
        let pair = try Pair()
        try pair.meet()
        let reply = pair.alice.perform {
            .proposeGroup(ticket: $0, .create(name: "team", metadata: [], members: ["bob"]), of: nil)
        }
        guard case .proposal(let proposal)? = reply else { throw EnvelopeError.malformed }
        pair.alice.perform { .publishedGroup(ticket: $0, proposal, blob: "blob of a server") }
        // Whatever the row says, what is sent names the sender.
        #expect(pair.alice.machine.groups.first?.reference.holder == nil)
        pair.deliver()
        #expect(pair.bob.machine.wantedGroups.map(\.holder) == [pair.alice.id])
    }

    @Test func aGroupInLinesIsBounded() throws {
        let pair = try Pair()
        try pair.meet()
        _ = try change(.create(name: "team", metadata: [], members: ["bob"]), of: nil, by: pair.alice)
        let id = try #require(pair.alice.machine.groups.first?.id)
        var refusal: MessengerRefusal?
        for number in UInt8(0)..<20 where refusal == nil {
            let data = [UInt8](repeating: number, count: GroupContent.metadataLimit)
            if case .refused(let reason)? = try change(.metadata(data), of: id, by: pair.alice) { refusal = reason }
            pair.deliver()
        }
        #expect(refusal == .groupLimit)
        let chain = try #require(pair.alice.machine.groups.first?.chain)
        #expect(chain.bytes.count <= MessengerParticipants.lineGroupLimit)
        let text = String(repeating: "x", count: 1201)
        let reply = pair.alice.perform { .send(ticket: $0, SendJob(in: .group(id), text: text)) }
        guard case .refused(.tooLong)? = reply else {
            Issue.record("a text of \(text.count) bytes is not refused")
            return
        }
    }
}
