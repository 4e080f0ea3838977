import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import Protection
import Reports
import StorePort
import Testing
import Vault

/// Attacks on two people with sidecars, on a server without a gateway.
@Suite struct AttackTests {
    let alice: World
    let bob: World
    let people: (alice: World.Client, bob: World.Client)

    init() throws {
        (alice, bob) = try World.sidecars()
        people = (alice.connect("alice"), bob.connect("bob"))
    }

    private func exchangeKeys() { alice.send(people.alice, "PRIVMSG bob :hello") }

    /// Another known person of alice's.
    private func mallory() throws -> (World, World.Client) {
        let world = try World(.opportunistic, seed: 5, beside: bob, sidecar: true)
        let client = world.connect("mallory")
        world.send(client, "PRIVMSG alice :hello")
        alice.send(people.alice, "PRIVMSG mallory :first")
        #expect(client.shown().contains("[e2e] first"))
        return (world, client)
    }

    /// What is relayed while something is done.
    private func relayed(_ match: (String) -> Bool, while act: () -> Void) -> [String] {
        var lines: [String] = []
        alice.backend.relay = {
            lines.append($0)
            return [$0]
        }
        act()
        alice.backend.relay = { [$0] }
        return lines.filter(match)
    }

    // MARK: 1. Substituted keys

    /// At first contact nothing but the safety number can tell; the person is asked to compare it.
    @Test func substitutedAtFirstContactIsSeenByTheNumbers() throws {
        let forger = Forger(seed: 70)
        alice.backend.relay = { $0.contains("NOTICE alice :?PAWL") ? [] : [$0] }
        alice.send(people.alice, "PRIVMSG bob :hello")
        alice.backend.relay = { [$0] }
        alice.forge(
            people.alice, Forger.lines(forger.introduction(time: alice.now.wall), "bob!b@host.test", "NOTICE", "alice"))
        #expect(people.alice.wasNotified(Notices.keysExchanged("bob")))
        let own = try #require(alice.environment.peers?.own?.deviceList.root)
        let other = try #require(bob.environment.peers?.own?.deviceList.root)
        let seen = try #require(alice.root(.nick("bob")))
        let number = { (one: IdentityKey, two: IdentityKey) in
            SafetyNumber(
                .init(identifier: one.bytes, key: one), .init(identifier: two.bytes, key: two)
            ).description
        }
        #expect(number(own, seen) != number(other, own))
        // Bob himself shows other keys: nothing is sent to either.
        bob.send(people.bob, "PRIVMSG alice :hello")
        #expect(people.alice.wasNotified(Notices.changedKeys("bob")))
        alice.send(people.alice, "PRIVMSG bob :secret")
        #expect(people.alice.read.contains { $0.contains(" 531 ") })
        #expect(!people.bob.shown().contains("[e2e] secret") && !alice.canary.contains("secret"))
        #expect(alice.environment.tally[.refusedChangedKeys] == 1)
    }

    /// Each one with new keys: the row of bob stays small, and the sidecar alive.
    @Test func endlessSubstitutionsFillNothing() throws {
        exchangeKeys()
        for number in 0..<300 {
            let forger = Forger(seed: 1000 + UInt64(number))
            let introduction = forger.introduction(time: alice.now.wall + Int64(number))
            alice.forge(people.alice, Forger.lines(introduction, "bob!b@host.test", "NOTICE", "alice"))
        }
        let peer = try #require(alice.environment.peers?[.nick("bob")])
        #expect(peer.introduced.count <= 2)
        #expect(peer.deviceList.root == bob.environment.peers?.own?.deviceList.root)
        #expect(alice.environment.peers?.all.count == 1)
        alice.send(people.alice, "PRIVMSG bob :secret")
        #expect(!alice.canary.contains("secret"))
        #expect(people.alice.wasNotified(Notices.changedKeys("bob")))
        // The row can be read again.
        let row = try #require(try alice.store.record(.peer, name: AccountID.nick("bob").text))
        #expect(try Peer(name: peer.name, bytes: row.value) == peer)
    }

    /// Sessions go by the device's number: who takes bob's for keys of their own must not come between.
    @Test(arguments: ["bob", "mallory"]) func theNumberOfSomebodysDeviceIsNotFree(_ nick: String) throws {
        exchangeKeys()
        let id = try #require(bob.environment.peers?.own?.device)
        let forger = Forger(seed: 71, device: id.value)
        let introduction = forger.introduction(time: alice.now.wall + 1)
        alice.forge(people.alice, Forger.lines(introduction, "\(nick)!m@host.test", "NOTICE", "alice"))
        #expect(alice.environment.peers?[.nick("mallory")] == nil)
        #expect(alice.environment.tally[.openWrongSource] == 1)
        // The forger has signed it, so the notice must not claim that somebody else has.
        let notice = try #require(Notices.failure(.wrongSource, from: nick))
        #expect(people.alice.wasNotified(notice) && !notice.contains("sealed"))
        alice.send(people.alice, "PRIVMSG bob :secret")
        bob.send(people.bob, "PRIVMSG alice :well")
        #expect(people.bob.shown().last == "[e2e] secret")
        #expect(people.alice.shown().last == "[e2e] well")
    }

    /// A list may name a device without its consent; that gives its words to nobody.
    @Test func aListThatNamesSomebodysDeviceSpeaksForNobody() throws {
        exchangeKeys()
        let own = try #require(bob.environment.peers?.own)
        let forger = Forger(seed: 72, lists: own.deviceList.current)
        let introduction = forger.introduction(time: alice.now.wall + 1)
        alice.forge(people.alice, Forger.lines(introduction, "mallory!m@host.test", "NOTICE", "alice"))
        bob.send(people.bob, "PRIVMSG alice :still bob")
        #expect(people.alice.shown(from: "bob").last == "[e2e] still bob")
        alice.backend.relay = { [$0.replacing(":bob!", with: ":mallory!")] }
        bob.send(people.bob, "PRIVMSG alice :not mallory's")
        #expect(!people.alice.shown().contains("[e2e] not mallory's"))
        #expect(people.alice.wasNotified(Notices.failure(.wrongSource, from: "mallory")))
    }

    /// A removed device signs a list of its own. Nothing is sent until the person has decided; the notice comes once.
    @Test func aForkOfAKnownListIsNoticed() throws {
        let forger = Forger(seed: 73)
        let other = ListedDevice(id: DeviceID(4242), identity: Forger(seed: 74).identity.publicKey)
        let phone = ListedDevice(id: DeviceID(4244), identity: Forger(seed: 75).identity.publicKey)
        let (longer, another) = (forger.listing(other), forger.listing(phone))
        let (one, fork) = (try #require(longer), try #require(another))
        for (deviceList, time) in [(one, Int64(1)), (fork, 2), (fork, 3)] {
            let content = Introduction(
                time: alice.now.wall + time, deviceList: deviceList, bundle: forger.bundle, device: forger.device)
            let envelope = Envelope(
                kind: .introduction, sender: forger.device, messageID: MessageID(UInt64(time)),
                ratchetMessage: content.bytes(signedBy: forger.identity))
            alice.forge(people.alice, Forger.lines(envelope, "eve!e@host.test", "NOTICE", "alice"))
        }
        #expect(alice.environment.peers?[.nick("eve")]?.deviceList == one)
        #expect(alice.environment.peers?[.nick("eve")]?.offered == fork)
        let notice = Notices.forkedList(of: "eve", shownBy: "eve")
        #expect(people.alice.read.count { $0.contains(notice.prefix(60)) } == 1)
        alice.send(people.alice, "PRIVMSG eve :secret")
        #expect(people.alice.read.contains { $0.contains("accept eve") })
        #expect(!alice.canary.contains("secret"))
        alice.pendingJobs.append(.sidecar(.decide(.nick("eve"), .keep)))
        alice.settle()
        #expect(alice.environment.peers?[.nick("eve")]?.offered == nil)
        #expect(alice.environment.peers?[.nick("eve")]?.deviceList == one)
    }

    // MARK: 2. Stripped capabilities

    @Test func aFrontThatIsHiddenOpensNothing() throws {
        let front = try World(.hosted, offers: SimulatedBackend.modern, seed: 11)
        let one = try World(.opportunistic, seed: 12, behind: front, sidecar: true)
        let other = try World(.opportunistic, seed: 13, behind: front, sidecar: true)
        let (first, second) = (one.connect("dora", account: "dora"), other.connect("emil", account: "emil"))
        one.send(first, "PRIVMSG emil :secret one")
        other.send(second, "PRIVMSG dora :secret two")
        #expect(!first.wasNotified("had a gateway"))
        // The same people, and somebody between who takes the capabilities away.
        let bare = try World(.opportunistic, offers: [], store: one.store, seed: 14, sidecar: true)
        let bareOther = try World(.opportunistic, store: other.store, seed: 15, beside: bare, sidecar: true)
        let (again, peer) = (bare.connect("dora"), bareOther.connect("emil"))
        #expect(again.wasNotified(Notices.frontMissing))
        bare.send(again, "PRIVMSG emil :secret three")
        bareOther.send(peer, "PRIVMSG dora :secret four")
        #expect(peer.shown() == ["[e2e] secret three"])
        #expect(again.shown() == ["[e2e] secret four"])
        #expect(!bare.canary.contains("secret"))
        bare.forge(again, [":emil!e@host.test PRIVMSG dora :forged"])
        #expect(!again.shown().contains { $0.contains("forged") })
        #expect(again.wasNotified(Notices.withheld(from: "emil")) && bare.environment.tally[.withheld] == 1)
    }

    @Test func messageTagsThatAreStrippedChangeACounterOnly() throws {
        let one = try World(.opportunistic, offers: ["message-tags"], seed: 16, sidecar: true)
        let other = try World(.opportunistic, seed: 17, beside: one, sidecar: true)
        let (first, second) = (one.connect("dora"), other.connect("emil"))
        one.send(first, "PRIVMSG emil :hello")
        for id in one.backend.people.keys { one.backend.people[id]?.caps = [] }
        one.send(first, "PRIVMSG emil :secret")
        #expect(second.shown().last == "[e2e] secret")
        #expect(other.environment.tally[.envelopeWithoutFlag] > 0)
        #expect(!one.canary.contains("secret"))
    }

    // MARK: 3. Somebody else's nick

    @Test func aKnownPersonUnderAnothersNickIsWithheld() throws {
        exchangeKeys()
        let (mallory, client) = try self.mallory()
        alice.backend.relay = { [$0.replacing(":mallory!", with: ":bob!")] }
        mallory.send(client, "PRIVMSG alice :I am bob")
        #expect(!people.alice.shown().contains { $0.contains("I am bob") })
        #expect(people.alice.wasNotified(Notices.failure(.wrongSource, from: "bob")))
        #expect(alice.environment.tally[.openWrongSource] == 1)
    }

    /// What devices tell each other of their keys comes under their own names: under another's it would offer its keys as theirs.
    @Test func keysOfAKnownPersonUnderAnothersNickChangeNothing() throws {
        exchangeKeys()
        let (mallory, client) = try self.mallory()
        let deviceList = try #require(mallory.environment.peers?.own?.deviceList)
        let before = alice.environment.peers?.all
        alice.backend.relay = { [$0.replacing(":mallory!", with: ":bob!")] }
        for message in [ControlMessage.ready(deviceList), .acknowledge(deviceList)] {
            mallory.run(client) {
                client.machine.answered(.sidecar(.controlMessage(.nick("alice"), message.body)), at: mallory.now, $0)
            }
            mallory.settle()
        }
        alice.backend.relay = { [$0] }
        #expect(alice.environment.tally[.openWrongSource] == 2)
        #expect(alice.environment.peers?.all == before)
        #expect(!people.alice.wasNotified("shows keys that are not the ones you know"))
        alice.send(people.alice, "PRIVMSG bob :secret")
        #expect(people.bob.shown().last == "[e2e] secret")
    }

    /// Under the person's own nick nobody writes but the person.
    @Test func aKnownPersonUnderTheOwnNickIsWithheld() {
        exchangeKeys()
        alice.send(people.alice, "PRIVMSG bob :first")
        alice.backend.relay = { [$0.replacing(":bob!", with: ":alice!")] }
        bob.send(people.bob, "PRIVMSG alice :I am you")
        #expect(!people.alice.read.contains { $0.contains("I am you") })
        #expect(alice.environment.tally[.openWrongSource] == 1)
        alice.backend.relay = { [$0] }
        bob.send(people.bob, "PRIVMSG alice :I am bob")
        #expect(people.alice.shown(from: "bob").last == "[e2e] I am bob")
    }

    /// The backend says which account a nick has: it can lie, and the person sees that.
    @Test func aClaimedAccountGetsNoKeysAndIsReported() throws {
        let one = try World(.opportunistic, offers: SimulatedBackend.modern, seed: 21, sidecar: true)
        let other = try World(.opportunistic, seed: 22, beside: one, sidecar: true)
        let third = try World(.opportunistic, seed: 23, beside: other, sidecar: true)
        let dora = one.connect("dora", account: "dora")
        let emil = other.connect("emil", account: "emil")
        let mallory = third.connect("mallory", account: "mallory")
        for (world, client) in [(other, emil), (third, mallory)] {
            world.send(client, "PRIVMSG dora :hello")
            one.send(dora, "PRIVMSG \(client === emil ? "emil" : "mallory") :first")
        }
        #expect(emil.shown() == ["[e2e] first"] && mallory.shown() == ["[e2e] first"])
        one.forge(dora, [":emil!e@host.test ACCOUNT mallory"])
        // Whatever goes to emil's nick, the backend gives to mallory.
        var stolen: [String] = []
        one.backend.relay = { line in
            if line.contains(" emil :") { stolen.append(line.replacing(" emil :", with: " mallory :")) }
            return [line]
        }
        one.send(dora, "PRIVMSG emil :secret")
        third.forge(mallory, stolen)
        #expect(emil.shown().last == "[e2e] secret")
        #expect(!mallory.shown().contains { $0.contains("secret") })
        one.backend.relay = { [$0.replacing(":mallory!", with: ":emil!")] }
        one.backend.people[mallory.id]?.account = "mallory"
        third.send(mallory, "PRIVMSG dora :I am emil")
        #expect(
            dora.wasNotified(Notices.otherName("emil", of: "mallory"))
                || !dora.shown().contains { $0.contains("I am emil") })
    }

    /// A nick of which nothing is known is said to have a known account.
    @Test func aNewNickWithAKnownAccountIsReported() throws {
        let one = try World(.opportunistic, offers: SimulatedBackend.modern, seed: 21, sidecar: true)
        let other = try World(.opportunistic, seed: 22, beside: one, sidecar: true)
        let (dora, emil) = (one.connect("dora"), other.connect("emil", account: "emil"))
        other.send(emil, "PRIVMSG dora :hello")
        one.send(dora, "PRIVMSG emil :first")
        one.forge(dora, [":frida!f@host.test ACCOUNT emil"])
        one.send(dora, "PRIVMSG frida :for frida")
        #expect(dora.wasNotified(Notices.sealedFor("frida", name: "emil")))
    }

    /// Names of accounts that mean something else inside: the person's own device, a nick, a room.
    @Test(arguments: ["own device", "nick bob", "room #room"]) func noAccountIsAnInnerName(_ account: String) throws {
        let one = try World(.opportunistic, offers: SimulatedBackend.modern, seed: 24, sidecar: true)
        let other = try World(.opportunistic, seed: 25, beside: one, sidecar: true)
        let (dora, bob) = (one.connect("dora"), other.connect("bob"))
        let forger = Forger(seed: 76)
        one.forge(dora, [":mallory!m@host.test ACCOUNT :\(account)"])
        let tag = "@account=" + account.replacing(" ", with: "\\s") + " "
        let lines = Forger.lines(forger.introduction(time: one.now.wall), "mallory!m@host.test", "NOTICE", "dora")
        one.forge(dora, lines.map { tag + $0 })
        #expect(one.environment.peers?[AccountID(text: account)] == nil)
        other.send(bob, "PRIVMSG dora :hello")
        one.send(dora, "PRIVMSG bob :secret")
        #expect(bob.shown().last == "[e2e] secret")
        #expect(one.root(.nick("bob")) == other.environment.peers?.own?.deviceList.root)
    }

    // MARK: 4. Replays

    @Test func copiesChangeNothing() {
        let all = relayed({ $0.contains("?PAWL") }) {
            exchangeKeys()
            alice.send(people.alice, "PRIVMSG bob :secret one")
            bob.send(people.bob, "PRIVMSG alice :secret two")
        }
        #expect(all.count >= 20)
        let before = (alice.environment.peers?.all, bob.environment.peers?.all)
        let sent = alice.backend.seen.count
        for lines in [all, all.reversed()] {
            bob.forge(people.bob, lines.filter { $0.contains(" bob :") })
            alice.forge(people.alice, lines.filter { $0.contains(" alice :") })
        }
        // Neither a message nor an answer nor other keys.
        #expect(alice.backend.seen.count == sent)
        #expect(before.0 == alice.environment.peers?.all && before.1 == bob.environment.peers?.all)
        #expect(people.bob.shown() == ["hello", "[e2e] secret one"])
        #expect(people.alice.shown() == ["[e2e] secret two"])
        #expect(bob.environment.tally[.openForgotten] + bob.environment.tally[.openCopy] > 0)
        alice.send(people.alice, "PRIVMSG bob :on")
        bob.send(people.bob, "PRIVMSG alice :and on")
        #expect(people.bob.shown().last == "[e2e] on" && people.alice.shown().last == "[e2e] and on")
    }

    /// The first message of a session, when a store has forgotten nothing: its one-time prekey is gone.
    @Test func aFirstMessageBeginsOnceAlsoAfterARestart() throws {
        let all = relayed({ $0.contains("?PAWL") && $0.contains(" bob :") }) { exchangeKeys() }
        alice.send(people.alice, "PRIVMSG bob :secret")
        bob.close(people.bob)
        let again = try World(.opportunistic, store: bob.store, seed: 6, beside: alice, sidecar: true)
        let client = again.connect("bob")
        let peers = again.environment.peers?.all
        again.forge(client, all)
        #expect(again.environment.peers?.all == peers)
        alice.send(people.alice, "PRIVMSG bob :after")
        #expect(client.shown() == ["[e2e] after"])
    }

    /// A person has two clients: what one was shown is not shown to the other under somebody else's name.
    @Test func aCopyForAnotherConnectionKeepsItsName() {
        exchangeKeys()
        let second = bob.connect("bob2")
        let lines = relayed({ $0.contains("PRIVMSG bob :?PAWL") }) {
            alice.send(people.alice, "PRIVMSG bob :secret")
        }
        bob.forge(second, lines.map { $0.replacing(":alice!", with: ":zoe!").replacing(" bob ", with: " bob2 ") })
        #expect(!second.shown().contains { $0.contains("secret") })
        // And altered bytes under the number of a known message are nobody's words.
        bob.forge(second, lines.map { String($0.dropLast(6)) + "AAAA." })
        #expect(!second.shown().contains { $0.contains("secret") })
    }

    // MARK: Contexts

    @Test func privateWordsAreNotShownInARoom() {
        exchangeKeys()
        for (world, client) in [(alice, people.alice), (bob, people.bob)] { world.send(client, "JOIN #room") }
        alice.backend.relay = { [$0.replacing("PRIVMSG bob :", with: "PRIVMSG #room :")] }
        alice.send(people.alice, "PRIVMSG bob :for you alone")
        #expect(people.bob.shown(to: "#room").allSatisfy { !$0.contains("for you alone") })
        #expect(bob.environment.tally[.openNotAuthentic] == 1)
        #expect(people.bob.wasNotified(Notices.failure(.notAuthentic, from: "alice")))
    }

    @Test func roomWordsAreNotShownInAnotherRoom() throws {
        exchangeKeys()
        for room in ["#one", "#two"] {
            for (world, client) in [(alice, people.alice), (bob, people.bob)] { world.send(client, "JOIN \(room)") }
            alice.send(people.alice, "PRIVMSG \(room) :first")
        }
        alice.backend.relay = { [$0.replacing("PRIVMSG #one :", with: "PRIVMSG #two :")] }
        alice.send(people.alice, "PRIVMSG #one :secret")
        #expect(!people.bob.shown(to: "#two").contains { $0.contains("secret") })
        #expect(people.bob.wasNotified(Notices.failure(.keyMissing, from: "alice")))
    }

    /// A message for one device, dressed as one for several, and the other way round: neither a crash nor a text.
    @Test func anotherKindOfEnvelopeOpensNothing() throws {
        exchangeKeys()
        var captured: [UInt8] = []
        alice.backend.relay = { line in
            let body = line.contains("PRIVMSG bob :") ? line.split(separator: " :").last ?? "" : ""
            if case .whole(let bytes)? = Armour.parse(Array(body.utf8)[...]) {
                captured = bytes
                return []
            }
            return [line]
        }
        bob.send(people.bob, "PRIVMSG alice :established")
        for text in ["", "x", String(repeating: "y", count: 11), String(repeating: "z", count: 27)] {
            alice.send(people.alice, "PRIVMSG bob :" + (text.isEmpty ? " " : text))
            let genuine = try Envelope(captured)
            let own = try #require(bob.environment.peers?.own?.device)
            for body in [[], [UInt8](repeating: 0, count: 15), [UInt8](repeating: 7, count: 64)] {
                let several = try MultiRecipientMessage(
                    keys: [.init(recipient: own.value, message: genuine.ratchetMessage)], sealedBody: body)
                var bytes: [UInt8] = []
                several.serialize(into: &bytes)
                let forged = Envelope(
                    kind: .several, sender: genuine.sender, messageID: genuine.messageID, ratchetMessage: bytes)
                bob.forge(people.bob, Forger.lines(forged, "alice!a@host.test", "PRIVMSG", "bob"))
            }
            // It has cost nothing: the genuine one is still opened.
            bob.forge(people.bob, Forger.lines(genuine, "alice!a@host.test", "PRIVMSG", "bob"))
            #expect(people.bob.shown().last == "[e2e] " + (text.isEmpty ? " " : text))
        }
    }

    // MARK: Renewed sessions

    /// Keys are exchanged and used in both directions, and a message of bob's is under way.
    ///
    /// - Returns: its line.
    private func messageUnderWay() throws -> String {
        exchangeKeys()
        bob.send(people.bob, "PRIVMSG alice :one")
        alice.send(people.alice, "PRIVMSG bob :two")
        var held: [String] = []
        alice.backend.relay = { line in
            guard line.contains("PRIVMSG alice :?PAWL") else { return [line] }
            held.append(line)
            return []
        }
        bob.send(people.bob, "PRIVMSG alice :delayed")
        alice.backend.relay = { [$0] }
        #expect(held.count == 1)
        return try #require(held.first)
    }

    /// The text of a line with an envelope, which is altered.
    private func altered(_ line: String, _ place: Int) throws -> String {
        let text = Array(String(try #require(line.split(separator: " :").last)).utf8)
        guard case .whole(var bytes)? = Armour.parse(text[...]) else { throw EnvelopeError.malformed }
        bytes[bytes.count - 1 - place] ^= 1
        return String(decoding: try #require(Armour.split(bytes, id: 1, capacity: 400)?.first), as: UTF8.self)
    }

    /// Alice's sidecar sends its keys for each that it cannot open, and bob's begins a session with them.
    @Test func forgedMessagesDoNotEndASession() throws {
        let held = try messageUnderWay()
        for number in 0..<12 {
            alice.forge(people.alice, [":bob!bob@host.test PRIVMSG alice :" + (try altered(held, number))])
            alice.advance(seconds: 6)
            bob.advance(seconds: 6)
        }
        #expect(alice.environment.tally[.openNotAuthentic] == 12)
        alice.forge(people.alice, [held])
        #expect(people.alice.shown().last == "[e2e] delayed")
        alice.send(people.alice, "PRIVMSG bob :three")
        bob.send(people.bob, "PRIVMSG alice :four")
        #expect(people.bob.shown().last == "[e2e] three" && people.alice.shown().last == "[e2e] four")
    }

    /// Anybody can have alice's keys sent to them, and pass them on as their own.
    @Test func keysThatAUserPassesOnDoNotEndASession() throws {
        let held = try messageUnderWay()
        let mallory = alice.connect("mallory", direct: true)
        for number in 0..<4 {
            alice.send(mallory, "PRIVMSG alice :" + (try altered(held, number)))
            let keys = mallory.read.filter { $0.hasPrefix(":alice!") && $0.contains("NOTICE mallory :?PAWL") }
            #expect(keys.count > 2)
            mallory.read = []
            for line in keys { alice.send(mallory, "NOTICE bob :" + (line.split(separator: " :").last ?? "")) }
            alice.advance(seconds: 1)
            bob.advance(seconds: 1)
        }
        alice.send(people.alice, "PRIVMSG bob :three")
        #expect(people.bob.shown().last == "[e2e] three")
        alice.forge(people.alice, [held])
        bob.send(people.bob, "PRIVMSG alice :four")
        #expect(people.alice.shown().suffix(2) == ["[e2e] delayed", "[e2e] four"])
    }

    // MARK: Commits that fail

    /// Whatever is not stored has not happened; the next try works.
    @Test(arguments: 0..<12) func aCommitThatFailsAnywhereIsSurvived(_ place: Int) {
        var commits = 0
        let store = place % 2 == 0 ? alice.store : bob.store
        alice.backend.relay = { line in
            commits += 1
            if commits == place / 2 * 3 + 1 { store.failNextCommit() }
            return [line]
        }
        exchangeKeys()
        alice.send(people.alice, "PRIVMSG bob :secret one")
        bob.send(people.bob, "PRIVMSG alice :secret two")
        alice.backend.relay = { [$0] }
        var reached = (false, false)
        for round in 0..<6 where reached != (true, true) {
            alice.advance(seconds: 90)
            bob.advance(seconds: 90)
            alice.send(people.alice, "PRIVMSG bob :again \(round)")
            bob.send(people.bob, "PRIVMSG alice :again \(round)")
            reached = (
                people.bob.shown().contains("[e2e] again \(round)"),
                people.alice.shown().contains("[e2e] again \(round)")
            )
        }
        #expect(reached == (true, true))
        for client in [people.alice, people.bob] {
            let sealed = client.shown().filter { $0.hasPrefix("[e2e]") }
            #expect(Set(sealed).count == sealed.count)
        }
    }
}
