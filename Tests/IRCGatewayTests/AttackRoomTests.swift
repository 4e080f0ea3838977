import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCCodec
import IRCGateway
import NIOCore
import Protection
import Reports
import StorePort
import Testing

/// Attacks on a room of three people with sidecars.
@Suite struct AttackRoomTests {
    let worlds: [World]
    let people: [World.Client]

    init() throws {
        let alice = try World(.opportunistic, seed: 1, sidecar: true)
        let bob = try World(.opportunistic, seed: 2, beside: alice, sidecar: true)
        let carol = try World(.opportunistic, seed: 3, beside: bob, sidecar: true)
        worlds = [alice, bob, carol]
        people = zip(worlds, ["alice", "bob", "carol"]).map { $0.connect($1) }
        for index in 0..<3 { send(index, line: "JOIN #room") }
        for index in 0..<3 { send(index, "hello") }
    }

    private func send(_ index: Int, line: String) { worlds[index].send(people[index], line) }

    private func send(_ index: Int, _ text: String) { send(index, line: "PRIVMSG #room :\(text)") }

    private func sealed(_ index: Int) -> [String] {
        people[index].shown(to: "#room").filter { $0.hasPrefix("[e2e") && !$0.hasSuffix("hello") }
    }

    private var backend: SimulatedBackend { worlds[0].backend }

    /// The backend tells everybody but carol that she is out.
    private func kickBehindHerBack() {
        backend.delayed[people[2].id] = []
        backend.kick(people[2].id, from: "#room", by: people[0].id)
        worlds[0].settle()
        backend.delayed[people[2].id] = nil
    }

    /// Keys, messages and introductions, all of them twice and backwards.
    @Test func copiesChangeNothing() {
        var lines: [String] = []
        backend.relay = {
            lines.append($0)
            return [$0]
        }
        for index in 0..<3 { send(index, "secret \(index)") }
        backend.relay = { [$0] }
        let before = (0..<3).map(sealed)
        let seen = backend.seen.count
        for copies in [lines, lines.reversed()] {
            for (index, nick) in ["alice", "bob", "carol"].enumerated() {
                let own = copies.filter {
                    !$0.hasPrefix(":\(nick)!") && ($0.contains(" \(nick) :") || $0.contains(" #room :"))
                }
                worlds[index].forge(people[index], own)
            }
        }
        #expect((0..<3).map(sealed) == before)
        #expect(before.allSatisfy { $0.count == 2 })
        #expect(backend.seen.count == seen)
        #expect(worlds.allSatisfy { $0.environment.tally[.openForgotten] + $0.environment.tally[.openCopy] > 0 })
    }

    @Test func aMemberWhoWasRemovedAndGoesOnSendingIsWithheld() {
        for index in 0..<3 { send(index, "secret \(index)") }
        var late: [String] = []
        backend.relay = { line in
            if line.contains(":carol!") { late.append(line) }
            return line.contains(":carol!") ? [] : [line]
        }
        // Said while she was there, and kept back; and said when she was out and did not know.
        send(2, "kept back")
        kickBehindHerBack()
        let count = (sealed(0).count, sealed(1).count)
        let before = backend.seen.count
        send(2, "too late")
        let tooLate = backend.seen.dropFirst(before).filter { $0.contains("PRIVMSG #room :?PAWL") }
        #expect(!late.isEmpty && !tooLate.isEmpty)
        backend.relay = { [$0] }
        for index in 0..<2 {
            let lines = late.filter { $0.contains("#room") || $0.contains(index == 0 ? " alice " : " bob ") }
            worlds[index].forge(people[index], lines + tooLate.map { ":carol!carol@host.test " + $0 })
        }
        #expect((sealed(0).count, sealed(1).count) == count)
        for index in 0..<2 {
            #expect(people[index].wasNotified(Notices.failure(.notInRoom, from: "carol")))
            #expect(worlds[index].environment.tally[.openNotInRoom] > 0)
        }
        send(0, "secret on")
        #expect(sealed(1).last == "[e2e] secret on")
    }

    /// She does not know that she is out, is delivered everything, and asks for the key.
    @Test func aMemberWhoWasRemovedAndGoesOnListeningReadsNothing() {
        for index in 0..<3 { send(index, "secret \(index)") }
        kickBehindHerBack()
        var lines: [String] = []
        backend.relay = {
            lines.append($0)
            return [$0]
        }
        for round in 0..<3 {
            for index in 0..<2 { send(index, "secret round \(round)") }
            worlds[2].forge(people[2], lines)
            lines = []
            for world in worlds { world.advance(seconds: 20) }
        }
        #expect(!people[2].read.contains { $0.contains("secret round") })
        #expect(people[2].wasNotified(Notices.failure(.keyMissing, from: "alice")))
        #expect(worlds[2].environment.tally[.openKeyMissing] > 0)
        #expect(sealed(1).filter { $0.contains("round") }.count == 3)
    }

    /// The first question for a key is lost, in a room in which people go on talking.
    @Test func aKeyIsAskedForAgain() {
        backend.relay = { $0.contains("NOTICE bob") || $0.contains("NOTICE alice") ? [] : [$0] }
        send(0, "secret one")
        backend.relay = { [$0] }
        for round in 0..<8 {
            for world in worlds { world.advance(seconds: 4) }
            send(0, "secret round \(round)")
        }
        #expect(sealed(1).last == "[e2e] secret round 7")
    }

    /// A key is taken from its owner only, under the owner's name.
    @Test func keyMessagesOfOthersGiveNoKey() {
        var controlLines: [String] = []
        backend.relay = { line in
            if line.contains("NOTICE alice :?PAWL") {
                controlLines.append(line)
                return []
            }
            return [line]
        }
        send(1, "secret under bob's key")
        backend.relay = { [$0] }
        // The letter with bob's key comes as if it were carol's, then the message as well.
        worlds[0].forge(people[0], controlLines.map { $0.replacing(":bob!", with: ":carol!") })
        #expect(!sealed(0).contains { $0.contains("secret") })
        #expect(worlds[0].environment.tally[.openWrongSource] > 0)
        worlds[0].forge(people[0], controlLines)
        send(1, "secret again")
        #expect(sealed(0).last == "[e2e] secret again")
    }
}

/// Attacks on the control plane, from both sides.
@Suite struct AttackFrontTests {
    let front: World
    let alice: World

    init() throws {
        front = try World(.hosted, offers: SimulatedBackend.modern, seed: 1)
        alice = try World(.opportunistic, seed: 2, behind: front, sidecar: true)
    }

    /// A client that speaks frames by hand.
    final class Hand {
        let world: World
        let client: World.Client
        private var next: UInt32 = 0
        private var frames = ControlFrames()

        init(_ world: World, _ nick: String, account: String? = nil) {
            self.world = world
            client = world.open()
            for line in ["CAP LS 302", "CAP REQ :pawl/e2ee", "NICK \(nick)", "USER \(nick) 0 * :x", "CAP END"] {
                world.send(client, line)
            }
            if let account {
                world.backend.login(client.id, account)
                world.settle()
            }
        }

        /// What the gateway has said since the last call.
        func received() -> [DirectoryMessage] {
            defer { client.read = [] }
            return client.read.compactMap { text in
                guard text.contains(" PAWL "), let line = try? IRCLine(ByteBuffer(string: text)),
                    case .whole(_, let bytes) = frames.take(line, now: 0)
                else { return nil }
                return try? DirectoryMessage(bytes)
            }
        }

        @discardableResult func ask(_ message: DirectoryMessage) -> [DirectoryMessage] {
            next += 1
            for line in ControlFrames.lines(message.bytes, id: next) { world.send(client, line) }
            return received()
        }

        /// The last challenge.
        func challenge() -> (nonce: [UInt8], account: String)? {
            received().compactMap { message -> ([UInt8], String)? in
                if case .challenge(let nonce, let account) = message { return (nonce, account) }
                return nil
            }.last
        }
    }

    private func proof(_ forger: Forger, _ nonce: [UInt8], _ account: String) -> DirectoryMessage {
        let bundle = PreKeyBundle(
            identity: forger.bundle.identity, signedPreKey: forger.bundle.signedPreKey,
            kemPreKey: forger.bundle.kemPreKey, oneTimePreKey: nil)
        let device = PublishedDevice(
            id: forger.device, bundle: bundle, oneTime: forger.bundle.oneTimePreKey.map { [$0] } ?? [])
        return .proof(nonce: nonce, account: account, forger.deviceList, device, signedBy: forger.identity)
    }

    private func isRefusal(_ answers: [DirectoryMessage], _ words: String) -> Bool {
        answers.contains { if case .refused(let reason) = $0 { reason.contains(words) } else { false } }
    }

    @Test func nothingIsAnsweredWithoutAProof() {
        let first = alice.connect("alice", account: "alice")
        _ = first
        let hand = Hand(front, "mallory", account: "mallory")
        _ = hand.challenge()
        let forger = Forger(seed: 80)
        let before = front.environment.directory?[.services("alice")]
        for message in [
            DirectoryMessage.find(nick: "alice"), .list(forger.deviceList),
            .replenish(forger.bundle.oneTimePreKey.map { [$0] } ?? []),
        ] { #expect(isRefusal(hand.ask(message), "prove your device first")) }
        for message in [
            DirectoryMessage.found(.legacy), .done(oneTime: 3), .refused("you"), .low,
            .challenge(nonce: [UInt8](repeating: 0, count: 32), account: "alice"),
        ] { #expect(isRefusal(hand.ask(message), "a client may not send this message")) }
        #expect(front.environment.directory?[.services("alice")] == before)
        #expect(front.environment.directory?[.services("mallory")] == nil)
    }

    @Test func aProofHoldsForItsNonceAndItsLoginOnly() throws {
        let (one, two) = (Hand(front, "mallory", account: "mallory"), Hand(front, "eve", account: "eve"))
        let forger = Forger(seed: 81)
        let (mine, other) = (try #require(one.challenge()), try #require(two.challenge()))
        #expect(mine.nonce != other.nonce && mine.account == "mallory")
        // Under another's account, over another's nonce, and another's proof.
        #expect(isRefusal(one.ask(proof(forger, mine.nonce, "alice")), "the proof does not hold"))
        #expect(isRefusal(one.ask(proof(forger, other.nonce, "mallory")), "the proof does not hold"))
        let genuine = proof(forger, mine.nonce, "mallory")
        #expect(isRefusal(two.ask(genuine), "the proof does not hold"))
        #expect(front.environment.directory?.all.isEmpty == true)
        #expect(one.ask(genuine).contains { if case .done = $0 { true } else { false } })
        #expect(isRefusal(two.ask(proof(forger, other.nonce, "eve")), "in use under another name"))
        // After another login the old proof, and the old nonce, are worth nothing.
        front.backend.login(one.client.id, "alice")
        front.settle()
        #expect(isRefusal(one.ask(genuine), "does not hold"))
        #expect(isRefusal(one.ask(proof(forger, mine.nonce, "alice")), "does not hold"))
        #expect(isRefusal(one.ask(.find(nick: "eve")), "prove your device first"))
        #expect(front.environment.directory?[.services("alice")] == nil)
    }

    @Test func anEnvelopeOfAnotherDeviceDoesNotPassInPiecesEither() throws {
        let bob = try World(.opportunistic, seed: 3, behind: front, sidecar: true)
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        alice.send(first, "PRIVMSG bob :secret one")
        let hand = Hand(front, "mallory", account: "mallory")
        let forger = Forger(seed: 82)
        let challenge = try #require(hand.challenge())
        hand.ask(proof(forger, challenge.nonce, challenge.account))
        let device = try #require(alice.environment.peers?.own?.device)
        let forged = Envelope(
            sender: device, messageID: MessageID(1), ratchetMessage: [UInt8](repeating: 1, count: 900))
        let bodies = try #require(Armour.split(forged.bytes, id: 7, capacity: 300))
        #expect(bodies.count > 1)
        for body in bodies { front.send(hand.client, "PRIVMSG bob :" + String(decoding: body, as: UTF8.self)) }
        #expect(hand.client.read.contains { $0.contains(" 531 ") && $0.contains(Notices.otherDevice) })
        #expect(front.environment.tally[.openWrongSource] > 0)
        bob.advance(seconds: 60)
        #expect(second.shown().filter { $0.hasPrefix("[e2e") } == ["[e2e] secret one"])
    }

    @Test func framesOfAllKindsAreSurvived() throws {
        let hand = Hand(front, "mallory", account: "mallory")
        let long = String(repeating: "QUJD", count: 100)
        let lines =
            [
                "PAWL", "PAWL :", "PAWL * 0 1", "PAWL x 0 1 :QQ==", "PAWL 1 0 0 :QQ==", "PAWL 1 1 1 :QQ==",
                "PAWL 1 -1 1 :QQ==", "PAWL 1 0 129 :QQ==", "PAWL 99999999999999999999 0 1 :QQ==",
                "PAWL 1 0 99999999999999999999 :QQ==", "PAWL 1 0 1 :?", "PAWL 1 0 1 :", "PAWL 4294967295 0 1 :QQ==",
                "PAWL 1 0 1 :" + long, "PAWL 2 0 1 :EQ==", "PAWL 2 0 1 :EA==", "PAWL 3 0 1 :Eg==",
            ]
            + (0..<400).map { "PAWL \($0 + 10) 0 128 :\(long)" } + (0..<128).map { "PAWL 5 \($0) 128 :\(long)" }
        for line in lines { front.send(hand.client, line) }
        #expect(hand.client.isOpen)
        #expect(front.environment.tally[.badLines] > 0)
        #expect(isRefusal(hand.received(), "malformed"))
        #expect(!front.backend.seen.contains { $0.hasPrefix("PAWL") })
        // What hung is given up, and the client is served again.
        front.advance(seconds: 120)
        #expect(isRefusal(hand.ask(.find(nick: "alice")), "prove your device first"))
    }

    @Test func aFloodOfQuestionsIsBounded() throws {
        let first = alice.connect("alice", account: "alice")
        _ = first
        let hand = Hand(front, "mallory", account: "mallory")
        let challenge = try #require(hand.challenge())
        let forger = Forger(seed: 83)
        hand.ask(proof(forger, challenge.nonce, challenge.account))
        var (found, refused) = (0, 0)
        for _ in 0..<400 {
            for answer in hand.ask(.find(nick: "alice")) {
                if case .found(.capable) = answer { found += 1 }
                if case .refused = answer { refused += 1 }
            }
        }
        #expect(found > 200 && found <= 240 && refused >= 160)
        // Whoever is asked for still has keys, and others find her.
        let bob = try World(.opportunistic, seed: 4, behind: front, sidecar: true)
        let second = bob.connect("bob", account: "bob")
        bob.send(second, "PRIVMSG alice :secret")
        #expect(first.shown() == ["[e2e] secret"])
    }

    // MARK: A backend that plays the gateway in front

    private func pretender() throws -> (World, World.Client) {
        let world = try World(.opportunistic, offers: SimulatedBackend.modern + ["pawl/e2ee"], seed: 31, sidecar: true)
        return (world, world.connect("dora"))
    }

    private func frames(_ message: DirectoryMessage, id: UInt32 = 0) -> [String] {
        ControlFrames.lines(message.bytes, id: id).map { ":srv " + $0 }
    }

    @Test func endlessChallengesMakeNoEndlessKeys() throws {
        let (world, client) = try pretender()
        for number in 0..<200 {
            let nonce = [UInt8](repeating: UInt8(number), count: 32)
            world.forge(client, frames(.challenge(nonce: nonce, account: "dora")) + frames(.low))
        }
        let rows = try world.store.records(.preKey).count
        #expect(rows <= 510)
        let proofs = world.backend.seen.filter { $0.hasPrefix("PAWL ") && $0.contains(" 0 ") }.count
        #expect(proofs <= 12)
    }

    /// It names known keys for a nick of which nothing is known.
    @Test func aDirectoryThatLiesAboutNamesIsSeen() throws {
        let (world, client) = try pretender()
        let other = try World(.opportunistic, seed: 32, beside: world, sidecar: true)
        let emil = other.connect("emil")
        other.send(emil, "PRIVMSG dora :hello")
        world.send(client, "PRIVMSG emil :first")
        let own = try #require(other.environment.peers?.own)
        world.forge(client, frames(.done(oneTime: 3)))
        #expect(client.wasNotified(Notices.frontFound))
        world.send(client, "PRIVMSG frida :for frida")
        let asked = try #require(world.backend.seen.last { $0.hasPrefix("PAWL ") })
        let number = try #require(UInt32(asked.split(separator: " ")[1]))
        for account in ["emil", "own device", "nick emil"] {
            world.forge(client, frames(.found(.capable(account: account, own.deviceList, [])), id: number))
        }
        #expect(!world.canary.contains("for frida"))
        #expect(world.environment.peers?[AccountID(text: "own device")] == nil)
        world.send(client, "PRIVMSG frida :again")
        world.advance(seconds: 30)
        let wasReported =
            client.wasNotified(Notices.sealedFor("frida", name: "emil"))
            || client.read.contains { $0.contains(" 531 ") }
        #expect(wasReported)
    }

    /// Two questions about one nick: the answer that there are no keys comes behind the keys.
    @Test func aSecondAnswerOpensNothing() throws {
        let (world, client) = try pretender()
        world.backend.people[7] = .init(nick: "emil", user: "e", isRegistered: true)
        world.forge(client, frames(.done(oneTime: 3)))
        world.send(client, "PRIVMSG emil :secret one")
        world.send(client, "PRIVMSG emil :secret two")
        let asked = world.backend.seen.filter { $0.hasPrefix("PAWL ") }.suffix(2)
            .compactMap { UInt32($0.split(separator: " ")[1]) }
        #expect(asked.count == 2)
        let forger = Forger(seed: 84)
        let bundle = PreKeyBundle(
            identity: forger.bundle.identity, signedPreKey: forger.bundle.signedPreKey,
            kemPreKey: forger.bundle.kemPreKey, oneTimePreKey: nil)
        let device = PublishedDevice(
            id: forger.device, bundle: bundle, oneTime: forger.bundle.oneTimePreKey.map { [$0] } ?? [])
        world.forge(client, frames(.found(.capable(account: "emil", forger.deviceList, [device])), id: asked[0]))
        #expect(client.wasNotified(Notices.keysExchanged("emil")))
        for answer in [DirectoryMessage.found(.legacy), .refused("no")] {
            world.forge(client, frames(answer, id: asked[1]))
        }
        world.advance(seconds: 60)
        #expect(!world.canary.contains("secret"))
        #expect(world.backend.seen.filter { $0.contains("PRIVMSG emil :?PAWL") }.count > 1)
    }
}
