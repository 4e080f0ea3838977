import CapableApp
import DeviceDirectory
import Devices
import Envelope
import Foundation
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import StorePort
import Testing
import Vault

extension JSONWorld {
    /// A call of the control plane.
    func call(_ method: String, _ path: String, as token: String?, _ message: [UInt8]? = nil) -> Answer {
        let body = message.map { #"{"message":"\#(Data($0).base64EncodedString())"}"# } ?? ""
        return send(method, "/_pawl/v1/" + path, as: token, body) ?? Answer(status: 0, text: "")
    }

    func challenge(_ token: String) -> [UInt8] { call("POST", "challenge", as: token).bytes("challenge") }

    /// Somebody with a device of their own, proven.
    func device(_ name: String, id: UInt64, as token: String? = nil) -> AppDevice {
        let device = AppDevice(name, id: id)
        let token = token ?? "t-\(name)"
        #expect(call("PUT", "device", as: token, device.publication(over: challenge(token))).status == 200)
        return device
    }

    /// Begins sessions with all devices of somebody.
    func beginSessions(_ device: AppDevice, _ name: String) throws {
        let found = call("POST", "accounts/\(name)/bundles", as: "t-\(device.account)")
        #expect(found.status == 200)
        try device.begin(found.bytes("message"))
    }

    func sendEnvelope(_ envelope: [UInt8], in room: String, as token: String, id: String = "1") -> Answer? {
        send(
            "POST", "/c/\(room)", as: token,
            #"{"id":"\#(id)","text":"\#(Self.base64(envelope))","encrypted":true}"#)
    }

    static func base64(_ bytes: [UInt8]) -> String {
        Data(bytes).base64EncodedString().trimmingCharacters(in: CharacterSet(charactersIn: "="))
    }

    func latch(_ room: String) -> Protection {
        environment.latches.latch(of: ConversationID(.room(room), .room(room)))
    }
}

extension JSONWorld.Answer {
    func bytes(_ path: String) -> [UInt8] { Base64.decode(Array((self[path] ?? "").utf8)) ?? [] }
}

/// Clients of a JSON backend that can encrypt by themselves.
@Suite struct CapableClientTests {
    let secret = "the canary sings"

    private func pair(_ policy: Policy) throws -> (world: JSONWorld, alice: AppDevice, bob: AppDevice) {
        let world = try JSONWorld(policy)
        let (alice, bob) = (world.device("alice", id: 1), world.device("bob", id: 2))
        try world.beginSessions(alice, "bob")
        return (world, alice, bob)
    }

    @Test(arguments: [Policy.observe, .opportunistic, .hosted, .required]) func capablePeopleAreEndToEnd(
        _ policy: Policy
    ) throws {
        let (world, alice, bob) = try pair(policy)
        let envelope = try alice.seal(secret, in: "pair")
        #expect(world.sendEnvelope(envelope, in: "pair", as: "t-alice")?.status == 201)
        let stored = try #require(world.backend.messages["pair"]?.first)
        #expect(stored.body == #"{"id":"1","text":"\#(JSONWorld.base64(envelope))","encrypted":true}"#)
        let read = try #require(world.send("GET", "/c/pair", as: "t-bob"))
        #expect(read.bytes("messages[0].data.text") == envelope)
        #expect(try bob.open(read.bytes("messages[0].data.text"), in: "pair") == #"{"text":"\#(secret)"}"#)
        #expect(world.environment.tally[.sentDevice] == 1)
        #expect(world.environment.tally[.sentGateway] == 0)
        #expect(world.latch("pair") == .device)
        #expect(
            !world.backend.received.contains { $0.contains("_pawl") }, "the backend sees nothing of the control plane")
    }

    @Test func aLegacyReaderIsNotifiedInWords() throws {
        let (world, alice, _) = try pair(.hosted)
        world.backend.tokens["t-bob-phone"] = "bob"
        _ = world.sendEnvelope(try alice.seal(secret, in: "pair"), in: "pair", as: "t-alice")
        let read = try #require(world.send("GET", "/c/pair", as: "t-bob-phone"))
        #expect(read["messages[0].data.text"] == Notices.forOwnDevice(from: "alice"))
        #expect(read["messages[0].data.encrypted"] == nil)
    }

    @Test func hostedMessagesAreOpenedForBoth() throws {
        let (world, _, _) = try pair(.hosted)
        world.send("GET", "/me", as: "t-carol")
        world.backend.rooms["mixed"] = ["alice", "carol"]
        #expect(world.send("POST", "/c/mixed", as: "t-alice", #"{"id":"9","text":"\#(secret)"}"#)?.status == 201)
        #expect(!world.backend.hasReceived(secret))
        for token in ["t-alice", "t-carol"] {
            #expect(world.send("GET", "/c/mixed", as: token)?["messages[0].data.text"] == secret)
        }
        #expect(world.latch("mixed") == .gateway)
    }

    /// Whoever can encrypt to somebody who can does not send words, nor does another client of theirs once it was done.
    @Test func wordsDoNotFollowEnvelopes() throws {
        let (world, alice, _) = try pair(.hosted)
        let words = #"{"id":"5","text":"\#(secret)"}"#
        #expect(world.send("POST", "/c/pair", as: "t-alice", words)?["error"] == "pawl_unsealed")
        world.backend.tokens["t-alice-phone"] = "alice"
        _ = world.sendEnvelope(try alice.seal("x", in: "pair"), in: "pair", as: "t-alice")
        #expect(world.send("POST", "/c/pair", as: "t-alice-phone", words)?["error"] == "pawl_latched")
        #expect(!world.backend.hasReceived(secret))
        #expect(world.backend.messages["pair"]?.count == 1)
        // What the backend puts in by itself is withheld.
        world.backend.messages["pair"]?.append(.init(id: "m9", sender: "bob", body: #"{"text":"\#(secret)"}"#))
        #expect(world.send("GET", "/c/pair?since=1", as: "t-alice")?.text.contains(secret) == false)
    }

    /// A group that has been end to end stays so, although one of its members has no device any more.
    @Test func wordsDoNotFollowEnvelopesInAGroup() throws {
        let (world, alice, _) = try pair(.hosted)
        world.send("GET", "/me", as: "t-carol")
        world.backend.rooms["three"] = ["alice", "bob", "carol"]
        world.environment.latches.raise(ConversationID(.room("three"), .room("three")), to: .device)
        world.backend.tokens["t-alice-phone"] = "alice"
        for token in ["t-alice", "t-alice-phone", "t-carol"] {
            let answer = world.send("POST", "/c/three", as: token, #"{"id":"\#(token)","text":"\#(secret)"}"#)
            #expect(answer?["error"] == "pawl_latched", "\(token): \(answer?.text ?? "")")
        }
        #expect(!world.backend.hasReceived(secret) && world.backend.messages["three"] == nil)
        #expect(world.sendEnvelope(try alice.seal(secret, in: "three"), in: "three", as: "t-alice")?.status == 201)
    }

    @Test func requiredRefusesWhoeverHasNoDevice() throws {
        let (world, alice, _) = try pair(.required)
        world.send("GET", "/me", as: "t-carol")
        world.backend.rooms["mixed"] = ["alice", "carol"]
        let envelope = try alice.seal(secret, in: "mixed")
        #expect(world.sendEnvelope(envelope, in: "mixed", as: "t-alice")?["error"] == "pawl_required")
        #expect(world.sendEnvelope(envelope, in: "all", as: "t-alice")?["error"] == "pawl_room")
        #expect(
            world.send("POST", "/c/mixed", as: "t-carol", #"{"id":"1","text":"\#(secret)"}"#)?["error"]
                == "pawl_required")
        #expect(world.backend.messages.isEmpty)
    }

    @Test func anEnvelopeForLegacyReadersIsTheClientsChoice() throws {
        let (world, alice, _) = try pair(.hosted)
        #expect(world.sendEnvelope(try alice.seal(secret, in: "all"), in: "all", as: "t-alice")?.status == 201)
        #expect(world.latch("all") == .plaintext)
        #expect(world.send("GET", "/c/all", as: "t-carol")?.text.contains(Notices.forOwnDevice(from: "alice")) == true)
    }

    // MARK: Attacks

    @Test func anEnvelopeOfSomebodyElsesDeviceDoesNotPass() throws {
        let (world, alice, _) = try pair(.hosted)
        world.send("GET", "/me", as: "t-eve")
        let envelope = try alice.seal(secret, in: "pair")
        #expect(world.sendEnvelope(envelope, in: "all", as: "t-eve")?["error"] == "pawl_other_device")
        #expect(world.backend.messages.isEmpty)
        // What the backend shows under another name is nobody's.
        world.backend.messages["pair"] = [
            .init(id: "m1", sender: "carol", body: #"{"text":"\#(JSONWorld.base64(envelope))","encrypted":true}"#)
        ]
        let read = try #require(world.send("GET", "/c/pair", as: "t-bob"))
        #expect(read["messages[0].data.text"] == Notices.notOpened(.wrongSource, from: "carol"))
    }

    @Test(arguments: ["no envelope", "header and words", "no recipients"]) func aFlagMakesNoEnvelope(_ kind: String)
        throws
    {
        let (world, _, _) = try pair(.hosted)
        world.send("GET", "/me", as: "t-carol")
        world.backend.rooms["mixed"] = ["alice", "carol"]
        let header: [UInt8] = [0x12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
        let text =
            kind == "no envelope"
            ? secret : JSONWorld.base64(header + (kind == "no recipients" ? [0] : []) + Array(secret.utf8))
        #expect(
            world.send("POST", "/c/mixed", as: "t-alice", #"{"id":"1","text":"\#(text)","encrypted":true}"#)?.status
                == 201)
        #expect(world.environment.tally[.sentGateway] == 1 && world.environment.tally[.sentDevice] == 0)
        #expect(!world.backend.hasReceived(text))
    }

    @Test func aChallengeCountsOnceAndForItsLoginOnly() throws {
        let world = try JSONWorld(.hosted)
        let (alice, eve) = (AppDevice("alice", id: 1), AppDevice("eve", id: 3))
        let challenge = world.challenge("t-alice")
        // Stolen: another login has no challenge, and the account is part of what is signed.
        #expect(
            world.call("PUT", "device", as: "t-eve", alice.publication(over: challenge))["error"] == "pawl_no_challenge"
        )
        let own = world.challenge("t-eve")
        #expect(world.call("PUT", "device", as: "t-eve", alice.publication(over: own))["error"] == "pawl_refused")
        #expect(world.call("PUT", "device", as: "t-eve", eve.publication(over: own))["error"] == "pawl_no_challenge")
        // Repeated.
        let publication = alice.publication(over: challenge)
        #expect(world.call("PUT", "device", as: "t-alice", publication)["device"] == alice.name)
        #expect(world.call("PUT", "device", as: "t-alice", publication)["error"] == "pawl_no_challenge")
        _ = world.challenge("t-alice")
        #expect(world.call("PUT", "device", as: "t-alice", publication)["error"] == "pawl_refused")
        // Late.
        let late = alice.publication(over: world.challenge("t-alice"))
        world.now.monotonic += 121_000_000_000
        #expect(world.call("PUT", "device", as: "t-alice", late)["error"] == "pawl_no_challenge")
        // Somebody else's device, proven with their keys for this login.
        #expect(
            world.call("PUT", "device", as: "t-eve", alice.publication(over: world.challenge("t-eve"), for: "eve"))[
                "message"]?.contains("belongs to another account") == true)
        #expect(world.environment.directory[.services("eve")] == nil)
    }

    @Test func withoutALoginThereIsNoCall() throws {
        let world = try JSONWorld(.observe)
        #expect(world.call("POST", "challenge", as: nil)["error"] == "pawl_not_logged_in")
        #expect(world.call("POST", "challenge", as: "t-nobody").status == 401)
        #expect(world.call("GET", "me", as: "t-alice")["account"] == "alice")
        #expect(world.call("GET", "nothing", as: "t-alice").status == 404)
        #expect(world.call("POST", "accounts/bob/bundles", as: "t-alice")["error"] == "pawl_not_proven")
        #expect(world.call("GET", "accounts/bob/devices", as: "t-alice").status == 403)
        #expect(world.call("PUT", "list", as: "t-alice", [19, 1]).status == 403)
        world.backend.isUp = false
        #expect(world.call("GET", "me", as: "t-carol").status == 502)
        #expect(!world.backend.received.contains { $0.contains("_pawl") })
    }

    /// A login that has ended is good for nothing that the gateway does by itself, though the backend has vouched for it lately.
    @Test func aLoginThatHasEndedCallsNoMore() throws {
        let world = try JSONWorld(.hosted)
        world.backend.tokens["t-alice-old"] = "alice"
        _ = world.device("alice", id: 1, as: "t-alice-old")
        world.send("GET", "/me", as: "t-bob")
        world.backend.tokens["t-alice-old"] = nil
        world.now.monotonic += CredentialCache.memoryForCalls
        for (method, path) in [
            ("POST", "challenge"), ("GET", "messages"), ("PUT", "device"), ("PUT", "list"), ("GET", "me"),
        ] {
            #expect(world.call(method, path, as: "t-alice-old")["error"] == "pawl_not_logged_in", "\(path)")
        }
    }

    /// Names that only look alike are two people's: an accent that stands by itself, the sign of Kelvin for a K.
    @Test(arguments: [("zo\u{EB}", "zoe\u{308}"), ("K", "\u{212A}")])
    func namesAreTheirBytes(_ name: String, _ other: String) throws {
        #expect(name == other, "to Swift")
        #expect(AccountID.services(name) != .services(other))
        #expect(AccountID.services(name) < .services(other) || AccountID.services(other) < .services(name))
        #expect(Set([AccountID.room(name), .room(other), .room(name)]).count == 2)
        let world = try JSONWorld(.hosted)
        (world.backend.tokens["t-one"], world.backend.tokens["t-two"]) = (name, other)
        world.backend.people.insert(name)
        let first = world.device(name, id: 1, as: "t-one")
        let second = world.device(other, id: 2, as: "t-two")
        #expect(world.environment.directory[.services(name)]?.devices.map(\.id) == [DeviceID(first.id)])
        #expect(world.environment.directory[.services(other)]?.devices.map(\.id) == [DeviceID(second.id)])
        // Over a restart as well.
        let again = try JSONWorld(.hosted, store: world.store)
        #expect(again.environment.directory[.services(name)]?.devices.map(\.id) == [DeviceID(first.id)])
        // And who is in a room.
        world.environment.conversations.remember([.services("alice")], of: name, now: 0)
        #expect(world.environment.conversations.members(of: other, now: 1) == nil)
    }

    /// What stands behind the space of a room's name does not change that it is a room's.
    @Test func aRoomStaysOne() {
        #expect(AccountID.room("\u{301}x").roomName == "\u{301}x")
        #expect(AccountID.room("x", status: "\u{301}").roomName == "x")
        #expect(AccountID.room("x", status: "@").isPartOfRoom)
    }

    /// A write would wait for the account's next login, and go with that.
    @Test func aLoginThatHasEndedWritesNoMore() throws {
        let world = try JSONWorld(.hosted)
        world.backend.tokens["t-alice-old"] = "alice"
        for token in ["t-alice-old", "t-bob"] { world.send("GET", "/me", as: token) }
        world.backend.tokens["t-alice-old"] = nil
        world.queueIsOpen = false
        world.now.monotonic += CredentialCache.memoryForWrites
        #expect(world.send("POST", "/c/pair", as: "t-alice-old", #"{"id":"1","text":"\#(secret)"}"#)?.status == 401)
        #expect(world.writes.isEmpty)
    }

    /// While the backend is away, what it said before goes on counting: people write, and the queue keeps it.
    @Test func peopleWriteWhileTheBackendIsAway() throws {
        let world = try JSONWorld(.hosted)
        for token in ["t-alice", "t-bob"] { world.send("GET", "/me", as: token) }
        world.backend.isUp = false
        world.now.monotonic += CredentialCache.memoryForWrites
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#)
        #expect(world.writes.count == 1)
        world.now.monotonic += CredentialCache.memory
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"\#(secret)"}"#)
        #expect(world.writes.count == 1)
    }

    /// Whatever a backend could take for one of the gateway's paths reaches none, under every policy but `off`.
    @Test(arguments: [
        "/_pawl", "/_pawl/v1/me", "/%5Fpawl/v1/me", "/_pa%77l/v1/me", "//_pawl/v1/me", "/./_pawl/v1/me",
        "/x/../_pawl/v1/me", "/x/%2e%2E/_pawl/v1/me", "/_pawl;a=b/v1/me", "/_pawl%2Fv1/me", "/%5fpawl/%zz",
        "/\\_pawl/v1/me",
        "/_pawl/v1/me?x=/..", "/_pawl/../x",
    ]) func thePathsAreTheGatewaysHoweverTheyAreWritten(_ target: String) throws {
        let world = try JSONWorld(.observe)
        let answer = world.send("GET", target, as: "t-alice")
        #expect(answer?.status == 200 || answer?["error"] == "pawl_unknown_call")
        #expect(!world.backend.received.contains { !$0.hasPrefix("GET /me ") })
    }

    @Test(arguments: ["/_pawlx/v1/me", "/x/_pawl/v1/me", "/%255Fpawl/v1/me", "/_PAWL/v1/me"])
    func otherPathsAreTheBackends(_ target: String) throws {
        let world = try JSONWorld(.observe)
        #expect(world.send("GET", target, as: "t-alice")?.status == 404)
        #expect(world.backend.received.last?.hasPrefix("GET \(target) ") == true)
    }

    @Test func underOffThePathsAreTheBackends() throws {
        let world = try JSONWorld(.off)
        #expect(world.call("GET", "me", as: "t-alice").status == 404)
        #expect(world.backend.received.contains { $0.contains("_pawl") })
    }

    @Test func aFloodOfCallsIsRefused() throws {
        let (world, _, _) = try pair(.hosted)
        var last = 200
        for _ in 0..<260 where last == 200 { last = world.call("POST", "accounts/bob/bundles", as: "t-alice").status }
        #expect(last == 429)
        #expect(world.call("GET", "me", as: "t-bob").status == 200, "others are not concerned")
        world.now.monotonic += 61_000_000_000
        #expect(world.call("GET", "me", as: "t-alice").status == 200)
    }

    // MARK: Several devices

    @Test func theMasterDeviceAdoptsAndRemovesAnother() throws {
        let (world, alice, bob) = try pair(.hosted)
        world.backend.tokens["t-bob-tablet"] = "bob"
        let tablet = AppDevice("bob", id: 4)
        // Whoever has the login alone would begin the account anew; the tablet waits until it is adopted.
        #expect(world.call("PUT", "list", as: "t-bob", bob.adopting(tablet)).status == 200)
        #expect(
            world.call("PUT", "device", as: "t-bob-tablet", tablet.publication(over: world.challenge("t-bob-tablet")))
                .status == 200)
        #expect(world.environment.directory[.services("bob")]?.published.count == 2)
        try world.beginSessions(alice, "bob")
        let envelope = try alice.seal(secret, in: "pair")
        _ = world.sendEnvelope(envelope, in: "pair", as: "t-alice")
        let read = try #require(world.send("GET", "/c/pair", as: "t-bob-tablet"))
        #expect(try tablet.open(read.bytes("messages[0].data.text"), in: "pair") == #"{"text":"\#(secret)"}"#)

        #expect(world.call("PUT", "list", as: "t-bob", bob.removing(tablet)).status == 200)
        #expect(world.call("GET", "me", as: "t-bob-tablet")["device"] == nil)
        try tablet.begin(world.call("POST", "accounts/alice/bundles", as: "t-bob").bytes("message"))
        #expect(
            world.sendEnvelope(try tablet.seal("x", in: "pair"), in: "pair", as: "t-bob-tablet")?["error"]
                == "pawl_other_device")
        // It cannot come back by itself.
        let again = tablet.publication(over: world.challenge("t-bob-tablet"))
        #expect(world.call("PUT", "device", as: "t-bob-tablet", again)["error"] == "pawl_refused")
    }

    @Test func prekeysAreUsedUpOnceAndReplenished() throws {
        let (world, alice, bob) = try pair(.hosted)
        let left = { Int(world.call("GET", "me", as: "t-bob")["one_time"] ?? "") }
        #expect(left() == 19)
        _ = world.call("GET", "accounts/bob/devices", as: "t-alice")
        #expect(left() == 19)
        try world.beginSessions(alice, "bob")
        #expect(left() == 18)
        #expect(world.call("PUT", "keys", as: "t-bob", bob.replenishment(5))["one_time"] == "23")
    }

    private func oneTime(_ message: [UInt8]) throws -> [[UInt8]] {
        guard case .found(.capable(_, _, let devices)) = try DirectoryMessage(message) else { return [] }
        return devices.flatMap { device in device.oneTime.map { DirectoryMessage.bytes([$0]) } }
    }

    /// The one-time prekeys that an account gets.
    private func take(of name: String, for asker: AccountID, in world: JSONWorld) throws -> [[UInt8]] {
        let replies = world.perform(
            .directory(
                DirectoryJob(
                    connection: ConnectionID(1), id: 1, account: asker,
                    request: .find(.services(name), connections: []))))
        return try replies.flatMap { reply in
            if case .directory(id: 1, let message) = reply { try oneTime(message.bytes) } else { [[UInt8]]() }
        }
    }

    /// One account uses up its share; others still get prekeys, and a day later it does too.
    @Test func oneAccountCannotDrainThePrekeysOfAnother() throws {
        let (world, _, _) = try pair(.hosted)
        _ = world.device("carol", id: 3)
        var taken: [[UInt8]] = []
        for _ in 0..<100 {
            let found = world.call("POST", "accounts/bob/bundles", as: "t-carol")
            #expect(found.status == 200, "the last resort is there for everybody")
            taken += try oneTime(found.bytes("message"))
        }
        #expect(taken.count == 8 && Set(taken).count == 8)
        #expect(world.call("GET", "me", as: "t-bob")["one_time"] == "11")
        #expect(try take(of: "bob", for: .services("alice"), in: world).count == 1)
        // An asker without an account gets none.
        #expect(try take(of: "bob", for: .connection(5), in: world).isEmpty)
        // The share outlives the process.
        let later = try JSONWorld(.hosted, backend: world.backend, store: world.store)
        #expect(try take(of: "bob", for: .services("carol"), in: later).isEmpty)
        later.now.wall += 86_400_000 - 120_000
        #expect(try take(of: "bob", for: .services("carol"), in: later).isEmpty)
        later.now.wall += 180_000
        let next = try take(of: "bob", for: .services("carol"), in: later)
        #expect(next.count == 1 && Set(taken).isDisjoint(with: next))
    }

    /// A publication whose answer was lost is repeated after somebody has got a prekey of it.
    @Test func aRepeatedPublicationBringsNoPrekeyBack() throws {
        let (world, _, bob) = try pair(.hosted)
        let keys = bob.replenishment(5)
        #expect(world.call("PUT", "keys", as: "t-bob", keys)["one_time"] == "24")
        var taken: Set<[UInt8]> = []
        for number in 0..<24 {
            let some = try take(of: "bob", for: .services("asker\(number)"), in: world)
            #expect(some.count == 1)
            taken.formUnion(some)
        }
        #expect(taken.count == 24)
        #expect(world.call("PUT", "keys", as: "t-bob", keys)["one_time"] == "0")
        let later = try JSONWorld(.hosted, backend: world.backend, store: world.store)
        #expect(try take(of: "bob", for: .services("somebody"), in: later).isEmpty)
    }

    /// A hand-out that was not committed is none: nobody has got the prekey, and the next asker gets it.
    @Test func aHandOutIsCommittedBeforeItIsAnswered() throws {
        let (world, _, _) = try pair(.hosted)
        world.store.failNextCommit()
        #expect(try take(of: "bob", for: .services("carol"), in: world).isEmpty)
        #expect(world.call("GET", "me", as: "t-bob")["one_time"] == "19")
        #expect(try take(of: "bob", for: .services("carol"), in: world).count == 1)
        let later = try JSONWorld(.hosted, backend: world.backend, store: world.store)
        #expect(later.environment.directory[.services("bob")]?.oneTime.values.first == 18)
    }

    /// A device that proves itself again without prekeys keeps those that are there.
    @Test func aNewProofKeepsThePrekeys() throws {
        let (world, _, bob) = try pair(.hosted)
        let proof = bob.publication(over: world.challenge("t-bob"), oneTime: 0)
        #expect(world.call("PUT", "device", as: "t-bob", proof)["one_time"] == "19")
        #expect(world.call("GET", "messages", as: "t-bob")["one_time"] == "19", "a page tells that few are left")
        _ = world.call("PUT", "keys", as: "t-bob", bob.replenishment(30))
        #expect(world.call("GET", "messages", as: "t-bob")["one_time"] == nil)
    }

    /// A store that was set back hands out none of the prekeys that it has: some were handed out since.
    @Test func aRestoredDirectoryHandsOutNoUsedPrekey() throws {
        let (world, _, bob) = try pair(.hosted)
        let row = try #require(try world.store.records(.directoryDevice).first { $0.name == "2" })
        let kept = try #require(row.withoutOneTimeKeys)
        _ = try world.store.commit([[.putRecord(kept)]])
        let later = try JSONWorld(.hosted, backend: world.backend, store: world.store)
        #expect(try take(of: "bob", for: .services("carol"), in: later).isEmpty)
        let proof = bob.publication(over: later.challenge("t-bob"), oneTime: 0)
        #expect(later.call("PUT", "device", as: "t-bob", proof)["one_time"] == "0")
        _ = later.call("PUT", "keys", as: "t-bob", bob.replenishment(3))
        #expect(try take(of: "bob", for: .services("carol"), in: later).count == 1)
    }

    /// What a client may do ends with an operator's act.
    @Test func anOperatorsActEndsTheProof() throws {
        let (world, alice, _) = try pair(.hosted)
        let nobody = ConnectionID(0)
        _ = world.perform(
            .directory(
                DirectoryJob(
                    connection: nobody, id: 0, account: .services("alice"), request: .block(.services("alice"), true))))
        #expect(world.call("POST", "accounts/bob/bundles", as: "t-alice")["error"] == "pawl_not_proven")
        #expect(
            world.sendEnvelope(try alice.seal(secret, in: "pair"), in: "pair", as: "t-alice")?["error"]
                == "pawl_other_device")
    }
}
