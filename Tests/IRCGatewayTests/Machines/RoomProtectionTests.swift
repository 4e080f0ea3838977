import Devices
import DoubleRatchet
import Envelope
import IRCCodec
import Protection
import Reports
import RequestQueue
import TestKit
import Testing

@testable import IRCGateway

/// The protection of a sidecar's rooms as transcripts.
@Suite struct RoomProtectionTests {
    private let peers = PeerCache()
    private let latches = LatchTable()
    private var rooms: RoomProtection
    private var people: SidecarPeople
    private static let now: Int64 = 9

    /// Alice is in a room with bob, whose keys are known.
    init() throws {
        rooms = RoomProtection(peers, latches)
        people = SidecarPeople(peers, latches)
        var random = SeededGenerator(seed: 1)
        let identity = IdentityKeyPair(random: &random)
        let device = ListedDevice(id: DeviceID(2), identity: identity.publicKey)
        let name = AccountID.nick("bob")
        peers[name] = Peer(name: name, deviceList: DeviceList(of: device, identity: identity), since: 1)
        try learn(":alice!a@h JOIN #room")
        try learn(":srv 353 alice = #room :@bob alice")
    }

    private mutating func learn(_ line: String) throws {
        people.learn(try parsed(line), own: "alice", tagsAccounts: false, ServerSupport())
    }

    /// Carol, who has no keys, joins a sealed room.
    private mutating func carolJoins() throws -> [RoomProtection.Action] {
        _ = rooms.noteSealed("#room", people)
        try learn(":carol!c@h JOIN #room")
        return rooms.check("#room", people, now: Self.now)
    }

    @Test mutating func aRoomIsSealedOnceAndStoredEachTime() {
        #expect(!rooms.isSealed("#room") && !rooms.wasSealed("#room"))
        let first = rooms.noteSealed("#room", people)
        let store = RoomProtection.Action.store(isSealed: true, room: "#room")
        #expect(first.first == store && first.count == 2)
        let again = rooms.noteSealed("#room", people)
        #expect(again == [store] && rooms.isSealed("#room") && rooms.wasSealed("#room"))
        let unchanged = rooms.check("#room", people, now: Self.now)
        #expect(unchanged.isEmpty, "all members have keys")
    }

    @Test mutating func aMemberWithoutKeysMakesItPlaintextAfterAWhile() throws {
        let actions = try carolJoins()
        #expect(actions == [.notify(Notices.roomPlain("#room", ["carol"]), room: "#room")])
        let again = rooms.check("#room", people, now: Self.now)
        #expect(again.isEmpty && !rooms.isSealed("#room"))
        let early = rooms.plaintext(to: "#room", people, now: Self.now)
        #expect(early.isEarly && early.actions == [.announce(Notices.plainAnnouncement(["carol"]), room: "#room")])
        let second = rooms.plaintext(to: "#room", people, now: Self.now + 1)
        #expect(second.isEarly && second.actions.isEmpty, "announced already")
        let late = rooms.plaintext(to: "#room", people, now: Self.now + RoomProtection.readingTime)
        #expect(!late.isEarly && late.actions == [.store(isSealed: false, room: "#room")])
        let next = rooms.plaintext(to: "#room", people, now: Self.now + RoomProtection.readingTime)
        #expect(!next.isEarly && next.actions.isEmpty)
    }

    @Test mutating func anotherSidecarsAnnouncementIsNotRepeated() throws {
        _ = try carolJoins()
        rooms.received(notice: Notices.plainAnnouncementStart.utf8, in: "#room", people)
        let early = rooms.plaintext(to: "#room", people, now: Self.now)
        #expect(early.isEarly && early.actions.isEmpty)
        rooms.received(notice: Notices.sealedAnnouncementStart.utf8, in: "#room", people)
        let actions = rooms.beforeSealing(in: "#room", written: "#Room", isOnBareServer: true, people)
        #expect(
            actions == [.notify(Notices.roomOutsiders("#Room", ["carol"], isProtected: false), room: "#room")],
            "the members without keys have the announcement")
    }

    /// A restart must not skip the notice.
    @Test mutating func aRoomThatTheStoreHasAsSealedIsCheckedToo() throws {
        _ = peers.setSealed(true, room: "#room")
        #expect(rooms.wasSealed("#room") && !rooms.isSealed("#room"))
        try learn(":carol!c@h JOIN #room")
        let actions = rooms.check("#room", people, now: Self.now)
        #expect(actions == [.notify(Notices.roomPlain("#room", ["carol"]), room: "#room")])
    }

    @Test mutating func aProtectedRoomNeverBecomesPlaintext() throws {
        _ = latches.raise(.ofRoom("#room"), to: .device)
        let actions = try carolJoins()
        #expect(actions.isEmpty && rooms.isSealed("#room"))
    }

    @Test mutating func noticesBeforeSealingAreSentOnce() throws {
        _ = latches.raise(.ofRoom("#room"), to: .device)
        try learn(":carol!c@h JOIN #room")
        let first = rooms.beforeSealing(in: "#room", written: "#Room", isOnBareServer: true, people)
        #expect(
            first == [
                .notify(Notices.roomOutsiders("#Room", ["carol"], isProtected: true), room: "#room"),
                .announce(Notices.sealedAnnouncement(["carol"]), room: "#room"),
                .requestProtection(room: "#room", nicks: ["bob"]),
            ])
        let again = rooms.beforeSealing(in: "#room", written: "#Room", isOnBareServer: true, people)
        #expect(again.isEmpty)
        rooms.decided(.plain, "#room", readers: [])
        let undecided = rooms.beforeSealing(in: "#room", written: "#Room", isOnBareServer: true, people)
        #expect(undecided == [.requestProtection(room: "#room", nicks: ["bob"])])
        rooms.decided(.protect, "#room", readers: ["bob"])
        let decided = rooms.beforeSealing(in: "#room", written: "#Room", isOnBareServer: true, people)
        #expect(decided.isEmpty)
    }

    @Test mutating func behindAGatewayOnlyThePersonIsNotified() throws {
        try learn(":carol!c@h JOIN #room")
        let actions = rooms.beforeSealing(in: "#room", written: "#Room", isOnBareServer: false, people)
        #expect(actions == [.notify(Notices.roomOutsiders("#Room", ["carol"], isProtected: false), room: "#room")])
    }

    @Test mutating func aRequestOfAMemberIsShownAtIntervals() {
        let bob = Nick(written: "Bob", folded: "bob")
        var random = SeededGenerator(seed: 2)
        let request = RoomRequest(
            act: .protect, number: 1, room: "#room", network: "net", device: DeviceID(2),
            identity: IdentityKeyPair(random: &random))
        let times = [0, RoomProtection.requestPause - 1, RoomProtection.requestPause]
        let shown = times.map { rooms.received(request, by: bob, network: "net", now: $0) }
        let notice = [RoomProtection.Action.notify(Notices.asks("Bob", .protect, "#room"), room: "#room")]
        #expect(shown == [notice, [], notice])
        let elsewhere = rooms.received(request, by: bob, network: "other", now: 0)
        #expect(elsewhere == [.notify(Notices.requestElsewhere("Bob", "#room"), room: "#room")])
        _ = latches.raise(.ofRoom("#room"), to: .device)
        let late = rooms.received(request, by: bob, network: "net", now: 2 * RoomProtection.requestPause)
        #expect(late.isEmpty, "it is protected already")
    }
}
