import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCCodec
import NIOCore
import Protection
import RequestQueue
import TestKit
import Testing

@testable import IRCGateway

/// A line as a machine reads it.
func parsed(_ text: String) throws -> IRCLine { try IRCLine(ByteBuffer(string: text)) }

/// A client's own device, alone.
@Suite struct ClientDeviceTests {
    private let device = ClientDevice(DirectoryCache())

    @Test func aDeviceIsProvenAfterItsChallenge() {
        #expect(device.id == nil && device.nonce == nil)
        device.challenged(nonce: [1])
        #expect(device.id == nil && device.nonce == [1])
        #expect(device.proved(DeviceID(7)))
        #expect(device.id == DeviceID(7))
        device.withdraw()
        #expect(device.id == nil && device.nonce == [1], "the same account may prove it again")
        device.challenged(nonce: [2])
        #expect(device.proved(DeviceID(8)) && device.id == DeviceID(8))
    }

    /// The answer to a proof was on its way when the account changed.
    @Test func aProofOfAnEarlierAccountDoesNotCount() {
        device.challenged(nonce: [1])
        device.accountChanged()
        #expect(!device.proved(DeviceID(7)))
        #expect(device.id == nil && device.nonce == nil)
    }

    @Test func linesOfAnEnvelopeAreTakenOnce() {
        let line = ByteBuffer(string: "part\r\n")
        func key(_ source: String, _ id: UInt32) -> FragmentAssembler.Key {
            .init(source: source + "!b@h", target: "alice", id: id)
        }
        #expect(device.takeFragments(of: key("bob", 1)).isEmpty)
        for envelope in [key("bob", 1), key("bob", 2), key("bobby", 1)] {
            device.keep(line, of: envelope) { _ in true }
        }
        device.dropFragments { $0 != key("bob", 1) }
        #expect(device.takeFragments(of: key("bob", 1)).isEmpty && device.takeFragments(of: key("bob", 2)) == [line])
        #expect(device.takeFragments(of: key("bobby", 1)) == [line])
        #expect(device.takeFragments(of: key("bobby", 1)).isEmpty, "taken once")
        // Those of the other envelopes have been displaced.
        for id: UInt32 in 0..<9 { device.keep(line, of: key("bob", id)) { $0 == key("bob", 3) } }
        let kept = (0..<UInt32(9)).map { device.takeFragments(of: key("bob", $0)).count }
        #expect(kept == [0, 0, 0, 1, 0, 0, 0, 0, 1])
    }

    @Test func queriesAreLimitedInAMinute() {
        for _ in 0..<ClientDevice.questionLimit { #expect(device.mayAsk(now: 1)) }
        #expect(!device.mayAsk(now: 2))
        #expect(device.mayAsk(now: 2 + ClientDevice.questionPeriod))
    }

    @Test func aNoticeAboutASenderIsShownOnce() {
        #expect(device.isNoticeDue(of: "bob") && !device.isNoticeDue(of: "bob"))
        for number in 0..<ClientDevice.noticeLimit { _ = device.isNoticeDue(of: "sender\(number)") }
        #expect(!device.isNoticeDue(of: "carol"), "the table is full")
    }
}

/// The people whom a sidecar's connection sees, alone.
@Suite struct SidecarPeopleTests {
    private let peers = PeerCache()
    private let latches = LatchTable()

    /// Knows a person's keys under a name.
    private func know(_ name: AccountID) {
        var random = SeededGenerator(seed: 1)
        let identity = IdentityKeyPair(random: &random)
        let device = ListedDevice(id: DeviceID(2), identity: identity.publicKey)
        peers[name] = Peer(name: name, deviceList: DeviceList(of: device, identity: identity), since: 1)
    }

    private func people(_ lines: [String], tagsAccounts: Bool = false) throws -> SidecarPeople {
        var people = SidecarPeople(peers, latches)
        for line in lines {
            people.learn(try parsed(line), own: "alice", tagsAccounts: tagsAccounts, ServerSupport())
        }
        return people
    }

    private static let room = [":alice!a@h JOIN #room", ":srv 353 alice = #room :@bob +carol alice"]

    @Test func aRoomIsWholeWhileAllItsMembersHaveKeys() throws {
        know(.nick("bob"))
        var people = try people(Self.room)
        #expect(people.others(in: "#room") == ["bob", "carol"])
        #expect(people.withoutKeys(in: "#room") == ["carol"] && !people.isWhole("#room"))
        #expect(people.readers(in: "#room").map(\.nick) == ["bob"])
        people.learn(try parsed(":carol!c@h PART #room"), own: "alice", tagsAccounts: false, ServerSupport())
        #expect(people.isWhole("#room"))
        people.learn(try parsed(":dave!d@h JOIN #room"), own: "alice", tagsAccounts: false, ServerSupport())
        #expect(people.strangers(in: ["#room"]) == ["dave"])
    }

    /// Otherwise every JOIN in a large room would cost as much as the room is large.
    @Test func aLargeRoomHasNoStrangersToAskAbout() throws {
        let nicks = (0..<SidecarPeople.automaticMembers).map { "nick\($0)" }
        var people = try people([":alice!a@h JOIN #room", ":srv 353 alice = #room :" + nicks.joined(separator: " ")])
        people.learn(try parsed(":alice!a@h JOIN #other"), own: "alice", tagsAccounts: false, ServerSupport())
        people.learn(try parsed(":carol!c@h JOIN #other"), own: "alice", tagsAccounts: false, ServerSupport())
        #expect(people.strangers(in: ["#room"]).count == nicks.count)
        #expect(people.strangers(in: ["#other"]) == ["carol"], "the members of other rooms are not looked at")
        people.learn(try parsed(":dave!d@h JOIN #room"), own: "alice", tagsAccounts: false, ServerSupport())
        #expect(people.strangers(in: ["#room"]).isEmpty)
    }

    @Test func theRoomsOfAPersonFollowTheLines() throws {
        var people = try people(Self.room + [":alice!a@h JOIN #b", ":bob!b@h JOIN #b", ":bob!b@h NICK :rob"])
        #expect(people.rooms(of: "bob").isEmpty && people.rooms(of: "rob") == ["#b", "#room"])
        people.learn(try parsed(":rob!b@h QUIT :bye"), own: "alice", tagsAccounts: false, ServerSupport())
        #expect(people.rooms(of: "rob").isEmpty && people.others(in: "#room") == ["carol"])
    }

    /// A server that invents people must not fill memory; those who leave make room for others.
    @Test func theMembersOfAllRoomsAreLimited() {
        var members = RoomMembers()
        for room in ["#a", "#b"] { members.begin(room) }
        let many = (0..<RoomMembers.peopleLimit).map { "nick\($0)" }
        members.add(many, to: "#a", besides: "alice")
        members.add(["bob"], to: "#b", besides: "alice")
        #expect(!members.contains("bob", in: "#b"))
        members.remove("nick0", from: "#a")
        members.add(["bob"], to: "#b", besides: "alice")
        #expect(members.contains("bob", in: "#b"))
        members.end("#a")
        members.add(many, to: "#b", besides: "alice")
        #expect(members.count(in: "#b") == many.count + 1)
        members.begin("#b")
        members.add(["carol"], to: "#b", besides: "alice")
        #expect(members.others(in: "#b") == ["carol"])
    }

    /// Otherwise a change of nick would make a room plaintext.
    @Test func aMemberWhoChangesNickKeepsTheKeys() throws {
        know(.nick("bob"))
        var people = try people(Self.room + [":bob!b@h NICK :robert"])
        #expect(people.person("robert") == .capable(.nick("bob")))
        people.learn(try parsed(":robert!b@h QUIT"), own: "alice", tagsAccounts: false, ServerSupport())
        #expect(people.person("robert") == .outsider, "another person may take the nick")
    }

    /// The connection does not see when another person takes the nick.
    @Test func aNickOutsideSharedRoomsKeepsNoKeys() throws {
        know(.nick("bob"))
        let people = try people([":bob!b@h NICK :robert"])
        #expect(people.person("robert") == .outsider)
    }

    @Test func aPersonIsKnownByTheAccountThatTheBackendSends() throws {
        know(.services("bob"))
        #expect(try people([":rob!b@h JOIN #room"]).person("rob") == .outsider)
        let tagged = try people(["@account=bob :rob!b@h PRIVMSG alice :hi"], tagsAccounts: true)
        #expect(tagged.person("rob") == .capable(.services("bob")))
        #expect(tagged.accountNames("rob") == [.services("bob"), .nick("rob")])
    }

    @Test func keysThatAreNotAcceptedYetAreNoKeysOfARoom() throws {
        know(.nick("bob"))
        know(.nick("carol"))
        peers[.nick("bob")]?.offered = peers[.nick("bob")]?.deviceList
        let people = try people(Self.room)
        #expect(people.person("bob") == .changed(.nick("bob")))
        #expect(people.readers(in: "#room").map(\.nick) == ["carol"])
        #expect(people.isWhole("#room"), "a server could make it plaintext with keys of its own")
    }

    @Test func aPersonRemovedFromARoomSeesNobodyThere() throws {
        let people = try people(Self.room + [":op!o@h KICK #room alice :out"])
        #expect(people.others(in: "#room").isEmpty && !people.isWhole("#room") && people.rooms.isEmpty)
    }
}
