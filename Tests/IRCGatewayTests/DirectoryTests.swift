import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import NIOCore
import Protection
import Reports
import StorePort
import Testing
import Vault

/// Sidecars behind a front gateway: its directory, and everybody else behind it.
@Suite struct DirectoryTests {
    let front: World
    let alice: World
    let bob: World

    init() throws { try self.init(.hosted) }

    init(_ policy: Policy) throws {
        front = try World(policy, offers: SimulatedBackend.modern, seed: 1)
        alice = try World(.opportunistic, seed: 2, behind: front, sidecar: true)
        bob = try World(.opportunistic, seed: 3, behind: front, sidecar: true)
    }

    private func texts(_ client: World.Client) -> [String] {
        client.read.filter { $0.contains(" PRIVMSG ") }
            .map { String($0.split(separator: ":", maxSplits: 2).last ?? "") }
    }

    @Test(arguments: [Policy.opportunistic, .hosted, .required]) func capablePeopleAreEndToEndFromTheFirstLine(
        _ policy: Policy
    ) throws {
        let tests = try DirectoryTests(policy)
        let (first, second) = (tests.alice.connect("alice", account: "alice"), tests.bob.connect("bob", account: "bob"))
        #expect(first.wasNotified(Notices.frontFound))
        tests.alice.send(first, "PRIVMSG bob :secret one")
        tests.bob.send(second, "PRIVMSG alice :secret two")
        tests.alice.send(first, "PRIVMSG bob :secret three")
        #expect(tests.texts(second) == ["[e2e] secret one", "[e2e] secret three"])
        #expect(tests.texts(first) == ["[e2e] secret two"])
        #expect(!tests.front.canary.contains("secret"))
        // The gateway cannot read it either, and knows that the conversation stays so.
        #expect(tests.front.environment.tally[.sentDevice] >= 3)
        #expect(tests.front.environment.tally[.openedGateway] == 0)
        #expect(
            tests.front.environment.latches.latch(
                of: ConversationID(.services("alice"), .services("bob"))) == .device)
        #expect(tests.alice.environment.peers?[.services("bob")] != nil)
    }

    @Test func capableAndLegacyMeetEndToGateway() {
        let first = alice.connect("alice", account: "alice")
        let carol = front.connect("carol", account: "carol")
        alice.send(first, "PRIVMSG carol :to a legacy client")
        front.send(carol, "PRIVMSG alice :to a sidecar")
        #expect(texts(carol) == ["to a legacy client"])
        #expect(texts(first) == ["[gateway] to a sidecar"])
        #expect(!front.canary.contains("legacy client") && !front.canary.contains("to a sidecar"))
    }

    @Test func requiredRefusesWhoHasNone() throws {
        let tests = try DirectoryTests(.required)
        let first = tests.alice.connect("alice", account: "alice")
        let carol = tests.front.connect("carol", account: "carol")
        tests.alice.send(first, "PRIVMSG carol :must not go")
        tests.front.send(carol, "PRIVMSG alice :must not go")
        #expect(first.read.contains { $0.contains(" 531 ") })
        #expect(carol.read.contains { $0.contains(" 531 ") })
        #expect(!tests.front.canary.contains("must not go"))
    }

    /// What a client may do follows from its login: a proof for another account does not hold.
    @Test func aDeviceIsProvenForItsOwnLoginOnly() throws {
        let first = alice.connect("alice", account: "alice")
        let entry = try #require(front.environment.directory?[.services("alice")])
        #expect(entry.published.count == 1)
        alice.close(first)
        // The same device under another login belongs to somebody else already.
        let other = try World(.opportunistic, store: alice.store, seed: 7, behind: front, sidecar: true)
        let mallory = other.connect("mallory", account: "mallory")
        #expect(mallory.read.contains { $0.contains("this device belongs to another account") })
        #expect(front.environment.directory?[.services("mallory")] == nil)
    }

    /// A second client at the same sidecar, under another name, does not take the device away from the first.
    @Test func oneSidecarIsOnePerson() {
        let first = alice.connect("alice")
        let second = bob.connect("bob")
        alice.send(first, "PRIVMSG bob :secret one")
        let other = alice.connect("alias")
        #expect(other.read.contains { $0.contains("in use under another name") })
        bob.send(second, "PRIVMSG alice :secret two")
        alice.send(first, "PRIVMSG bob :secret three")
        #expect(texts(first) == ["[e2e] secret two"])
        #expect(texts(second) == ["[e2e] secret one", "[e2e] secret three"])
    }

    @Test func aSealedLineOfAnotherDeviceDoesNotPass() {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        alice.send(first, "PRIVMSG bob :secret one")
        bob.send(second, "PRIVMSG alice :secret two")
        alice.send(first, "PRIVMSG bob :secret three")
        let envelope = front.backend.seen.last { $0.contains("?PAWL:") && $0.contains("PRIVMSG bob") } ?? ""
        let body = envelope.split(separator: " :").last ?? ""
        // Bob's own connection repeats what alice's device has sealed.
        if let connection = second.front { front.send(connection, "PRIVMSG alice :\(body)") }
        #expect(second.read.contains { $0.contains(Notices.otherDevice) })
    }

    @Test func aLegacyConnectionOfACapableAccountIsNotified() {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        alice.send(first, "PRIVMSG bob :secret one")
        bob.send(second, "PRIVMSG alice :secret two")
        alice.send(first, "PRIVMSG bob :secret three")
        bob.close(second)
        let phone = front.connect("bob", account: "bob")
        // The backend delivers to whoever has the nick.
        let body = front.backend.seen.last { $0.contains("?PAWL:") && $0.contains("PRIVMSG bob") } ?? ""
        front.backend.send(
            phone.id, ":alice!a@host.test PRIVMSG bob :" + String(body.split(separator: " :").last ?? ""))
        front.settle()
        #expect(phone.read.contains { $0.contains(Notices.forOtherDevice(from: "alice")) })
        #expect(!phone.read.contains { $0.contains("?PAWL") })
    }

    /// The operator, or another device of the account, has removed a device whose connection stays.
    @Test func aRemovedDeviceIsWithdrawnFromItsConnection() throws {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        alice.send(first, "PRIVMSG bob :secret one")
        #expect(front.environment.roster.owner(ofFoldedNick: "alice")?.device != nil)
        front.pendingJobs.append(
            .directory(
                DirectoryJob(
                    connection: ConnectionID(0), id: 0, account: .services("alice"),
                    request: .remove(.services("alice"), nil))))
        front.settle()
        bob.send(second, "PRIVMSG alice :secret two")
        #expect(!first.read.contains { $0.contains("secret two") })
        #expect(first.wasNotified(Notices.frontRefused("this device was removed from your account")))
        #expect(front.environment.roster.owner(ofFoldedNick: "alice")?.device == nil)
        for text in ["short", String(repeating: "long ", count: 80)] {
            alice.send(first, "PRIVMSG bob :secret \(text)")
            #expect(first.read.last?.contains(Notices.notOwnDevice) == true)
        }
        #expect(texts(second) == ["[e2e] secret one"])
    }

    /// The backend delivers to who is registered, and a proof has to be committed first.
    @Test func envelopesPassBeforeTheDeviceIsProven() {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        alice.send(first, "PRIVMSG bob :secret one")
        bob.send(second, "PRIVMSG alice :secret two")
        bob.close(second)
        front.isStoreSlow = true
        let again = bob.connect("bob", account: "bob")
        let long = "secret " + String(repeating: "x", count: 380)
        alice.send(first, "PRIVMSG bob :secret three")
        alice.send(first, "PRIVMSG bob :\(long)")
        #expect(!again.wasNotified(Notices.frontFound), "the proof waits for its commit")
        front.isStoreSlow = false
        front.settle()
        #expect(again.wasNotified(Notices.frontFound))
        #expect(texts(again) == ["[e2e] secret three", "[e2e] \(long)"])
    }

    /// Bob has connected again. The backend delivers to him, and his sidecar is still storing the proof.
    private func unproven() throws -> (alice: World.Client, bob: World.Client) {
        let first = alice.connect("alice", account: "alice")
        let before = bob.connect("bob", account: "bob")
        alice.send(first, "PRIVMSG bob :one")
        bob.close(before)
        bob.isStoreSlow = true
        let second = bob.connect("bob", account: "bob")
        let connection = try #require(second.front)
        #expect(front.environment.roster.owner(ofFoldedNick: "bob")?.connection == connection.machine.id)
        #expect(front.environment.roster.owner(ofFoldedNick: "bob")?.device == nil)
        return (first, second)
    }

    /// The proof comes between two lines of an envelope.
    @Test func anEnvelopeInPartsPassesAroundTheProof() throws {
        let (first, second) = try unproven()
        let parts = front.backend.withholding {
            alice.send(first, "PRIVMSG bob :" + String(repeating: "long ", count: 80))
        }
        try #require(parts.count > 1)
        front.forge(second, [parts[0]])
        bob.isStoreSlow = false
        bob.settle()
        front.forge(second, Array(parts[1...]))
        #expect(texts(second).map { $0.hasPrefix("[e2e] long long") } == [true])
    }

    /// Of one message a line is lost; it is given up while another one of the same person arrives.
    @Test func aLostLineTakesNoOtherMessageAway() throws {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        alice.send(first, "PRIVMSG bob :one")
        bob.send(second, "PRIVMSG alice :two")
        let lost = front.backend.withholding {
            alice.send(first, "PRIVMSG bob :" + String(repeating: "lost ", count: 80))
        }
        let parts = front.backend.withholding {
            alice.send(first, "PRIVMSG bob :" + String(repeating: "whole ", count: 65))
        }
        try #require(lost.count > 1 && parts.count > 1)
        front.forge(second, [lost[0]])
        front.advance(seconds: 29)
        front.forge(second, [parts[0]])
        front.advance(seconds: 2)
        front.forge(second, Array(parts[1...]))
        #expect(texts(second).map { $0.hasPrefix("[e2e] whole whole") } == [false, true])
    }

    /// A login after the registration brings a second challenge, while the proof for the first one is being stored.
    @Test func aProofForAnEarlierChallengeIsNotSent() throws {
        let (_, second) = try unproven()
        bob.isStoreSlow = false
        bob.settle()
        #expect(front.environment.roster.owner(ofFoldedNick: "bob")?.device != nil)
        #expect(!second.read.contains { $0.contains("refused a request") })
    }

    /// An attacker who ends the connection could take the gateway away.
    @Test func aGatewayThatIsMissingAfterAnOutageIsReported() throws {
        let world = try World(.opportunistic, seed: 9, sidecar: true)
        let client = world.connect("alice")
        world.environment.peers?.hasHadFront = true
        #expect(!client.wasNotified(Notices.frontMissing))
        world.backendDies()
        world.backendReturns()
        #expect(client.wasNotified(Notices.frontMissing))
    }

    /// The gateway in front is lost under alice's sidecar.
    private func loseFront(_ client: World.Client) throws {
        front.close(try #require(client.front))
        alice.run(client) { client.machine.suspend(at: alice.now, $0) }
        alice.settle()
    }

    private func resume(_ client: World.Client, account: String?) {
        if account != nil { client.front = front.open() } else { client.front = nil }
        if client.front == nil { front.backend.people[client.id] = .init() }
        alice.run(client) { client.machine.begin(at: alice.now, $0) }
        alice.settle()
        guard let account, let id = client.front?.id else { return }
        front.backend.login(id, account)
        alice.settle()
    }

    /// With the gateway there, the keys of bob would be looked up before the first message. Before alice's login the gateway
    /// refuses her device, because it is known to be of her account.
    @Test func whatIsWrittenInAnOutageIsAsProtectedAsBefore() throws {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        let carol = front.connect("carol", account: "carol")
        try loseFront(first)
        alice.send(first, "PRIVMSG bob :secret one")
        alice.send(first, "PRIVMSG carol :secret for carol")
        alice.send(first, "PRIVMSG bob :secret two")
        #expect(!first.read.contains { $0.contains("not end-to-end encrypted") }, "it is not known yet")
        resume(first, account: "alice")
        #expect(texts(second) == ["[e2e] secret one", "[e2e] secret two"])
        #expect(texts(carol) == ["secret for carol"])
        #expect(!front.canary.contains("secret"))
    }

    /// Somebody between the sidecar and the network hides the gateway.
    @Test func whatIsWrittenInAnOutageIsNotSentWithoutTheGateway() throws {
        let first = alice.connect("alice", account: "alice")
        alice.send(first, "JOIN #room")
        try loseFront(first)
        for target in ["bob", "#room"] { alice.send(first, "PRIVMSG \(target) :secret") }
        alice.send(first, "PRIVMSG NickServ :IDENTIFY me")
        alice.send(first, "AWAY")
        resume(first, account: nil)
        #expect(first.wasNotified(Notices.frontMissing))
        for target in ["bob", "#room"] {
            #expect(first.read.contains { $0.hasSuffix(" 531 alice \(target) :" + Notices.frontGone(target)) })
        }
        #expect(!front.canary.contains("secret") && front.backend.seen.contains("AWAY"), "other lines do not wait")
        #expect(!front.canary.contains("IDENTIFY"), "somebody in between would read the password")
        // From here on the person knows.
        alice.send(first, "PRIVMSG bob :knowingly")
        #expect(front.canary.contains("knowingly"))
    }

    /// The gateway has not accepted the device yet.
    @Test func whatIsWrittenRightAfterTheLoginIsEndToEnd() throws {
        let second = bob.connect("bob", account: "bob")
        front.isStoreSlow = true
        let first = alice.connect("alice", account: "alice")
        alice.send(first, "PRIVMSG bob :secret")
        front.isStoreSlow = false
        front.settle()
        #expect(texts(second) == ["[e2e] secret"] && !front.canary.contains("secret"))
    }

    /// It never does: then the gateway's own rules protect the message.
    @Test func aMessageWaitsForTheGatewayForAWhile() throws {
        let carol = front.connect("carol", account: "carol")
        front.isStoreSlow = true
        let first = alice.connect("alice", account: "alice")
        alice.send(first, "PRIVMSG carol :secret")
        #expect(!first.read.contains { $0.contains("carol") })
        alice.advance(seconds: 10)
        front.isStoreSlow = false
        front.settle()
        #expect(texts(carol) == ["secret"] && !front.canary.contains("secret"))
    }

    /// The gateway in front was away. Its challenge comes while it still welcomes the sidecar.
    @Test func aChallengeInTheWelcomeIsAnswered() throws {
        let world = try World(.opportunistic, offers: ["pawl/e2ee"], seed: 9, sidecar: true)
        let client = world.connect("alice")
        func proofs() -> Int { world.backend.seen.count { $0.hasPrefix("PAWL ") } }
        func hear(_ lines: [String]) {
            let bytes = ByteBuffer(string: lines.map { $0 + "\r\n" }.joined())
            world.run(client) { client.machine.fromUpstream(bytes, at: world.now, $0) }
            world.settle()
        }
        world.backendDies()
        world.backend.isStalled = true
        world.backendReturns()
        hear([":srv CAP * LS :pawl/e2ee", ":srv CAP * ACK :pawl/e2ee"])
        #expect(client.machine.isSuspended && proofs() == 0)
        let challenge = DirectoryMessage.challenge(nonce: [UInt8](repeating: 1, count: 32), account: "alice")
        let frames = ControlFrames.lines(challenge.bytes, id: ControlFrames.unasked).map { ":srv " + $0 }
        hear([":srv 001 alice :Welcome"] + frames)
        #expect(client.machine.isSuspended && proofs() > 0)
        hear(ControlFrames.lines(DirectoryMessage.done(oneTime: 50).bytes, id: 1).map { ":srv " + $0 })
        hear([":srv 422 alice :No MOTD"])
        #expect(!client.machine.isSuspended)
        // It does not wait for what has come already.
        world.send(client, "VERSION")
        #expect(world.backend.seen.last == "VERSION")
    }

    @Test func aRoomOfSidecarsIsEndToEnd() {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        alice.send(first, "JOIN #room")
        bob.send(second, "JOIN #room")
        alice.send(first, "PRIVMSG #room :secret one")
        bob.send(second, "PRIVMSG #room :secret two")
        #expect(texts(second) == ["[e2e] secret one"])
        #expect(texts(first) == ["[e2e] secret two"])
        #expect(front.environment.tally[.openedGateway] == 0)
        #expect(!front.canary.contains("secret"))
    }

    /// Both have begun a session before the other's first message comes. One of the two sessions is given up, and with it
    /// would be the key of the room that was sent in it.
    @Test func theKeyOfARoomIsTakenFromASessionThatIsGivenUp() {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        (alice.isStoreSlow, bob.isStoreSlow) = (true, true)
        alice.send(first, "JOIN #room")
        bob.send(second, "JOIN #room")
        front.backend.isStalled = true
        (alice.isStoreSlow, bob.isStoreSlow) = (false, false)
        front.settle()
        alice.send(first, "PRIVMSG #room :secret one")
        bob.send(second, "PRIVMSG #room :secret two")
        front.backend.resume()
        front.settle()
        #expect(front.backend.seen.count { $0.contains("PRIVMSG #room") } == 2)
        #expect(texts(second) == ["[e2e] secret one"])
        #expect(texts(first) == ["[e2e] secret two"])
        alice.send(first, "PRIVMSG #room :secret three")
        bob.send(second, "PRIVMSG #room :secret four")
        #expect(texts(second).last == "[e2e] secret three" && texts(first).last == "[e2e] secret four")
        #expect(!front.canary.contains("secret"))
    }

    @Test func aMixedRoomIsEndToGateway() {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        let carol = front.connect("carol", account: "carol")
        alice.send(first, "JOIN #room")
        bob.send(second, "JOIN #room")
        front.send(carol, "JOIN #room")
        alice.send(first, "PRIVMSG #room :secret one")
        front.send(carol, "PRIVMSG #room :secret two")
        #expect(texts(carol) == ["secret one"])
        #expect(texts(second) == ["[gateway] secret one", "[gateway] secret two"])
        #expect(texts(first) == ["[gateway] secret two"])
        #expect(!front.canary.contains("secret"))
    }

    @Test func prekeysAreReplenished() throws {
        let first = alice.connect("alice", account: "alice")
        _ = first
        for number in 0..<35 {
            let other = try World(.opportunistic, seed: UInt64(10 + number), behind: front, sidecar: true)
            let client = other.connect("p\(number)", account: "p\(number)")
            other.send(client, "PRIVMSG alice :hello \(number)")
        }
        #expect(texts(first).count == 35)
        let left = front.environment.directory?[.services("alice")]?.oneTime.values.first ?? 0
        #expect(left >= PublishedDevice.lowWatermark)
    }

    /// Two devices of an account disagree: the directory keeps the first list, and the operator sees it once.
    @Test func aForkOfAPublishedListIsRefusedAndRecorded() throws {
        let (account, forger) = (AccountID.services("alice"), Forger(seed: 73))
        func other(_ seed: UInt64) throws -> DeviceList {
            let device = ListedDevice(id: DeviceID(seed), identity: Forger(seed: seed).identity.publicKey)
            return try #require(forger.listing(device))
        }
        let (first, fork) = (try other(80), try other(81))
        func perform(_ job: IRCJob) {
            front.pendingJobs.append(job)
            front.settle()
        }
        func request(_ request: DirectoryJob.Request) -> IRCJob {
            .directory(DirectoryJob(connection: ConnectionID(9), id: 1, account: account, request: request))
        }
        perform(forger.publication(as: account, by: ConnectionID(9)))
        perform(request(.list(first)))
        #expect(front.environment.directory?[account]?.isForked == false)
        for _ in 0..<2 {
            perform(forger.publication(as: account, by: ConnectionID(9), fork))
            perform(request(.list(fork)))
        }
        #expect(front.environment.directory?[account]?.isForked == true)
        #expect(front.environment.directory?[account]?.devices == first.current)
        func records() throws -> Int { try front.store.auditLog(limit: 9).count { $0.detail.contains("stolen") } }
        #expect(try records() == 1)
        // A restart does not forget it, and the devices of the first list stay published.
        let again = try World(.hosted, store: front.store)
        #expect(again.environment.directory?[account]?.isForked == true)
        #expect(again.environment.directory?[account]?.published == [forger.device])
        // The operator removes them, and the person publishes again.
        perform(request(.remove(account, nil)))
        #expect(front.environment.directory?[account] == nil)
        perform(forger.publication(as: account, by: ConnectionID(9), fork))
        #expect(front.environment.directory?[account]?.isForked == false)
        #expect(front.environment.directory?[account]?.devices == fork.current)
    }

    /// An operator's block stops the handing out of keys, and uses up no prekeys.
    @Test func keysOfABlockedAccountAreNotHandedOut() throws {
        let first = alice.connect("alice", account: "alice")
        bob.connect("bob", account: "bob")
        let account = AccountID.services("bob")
        let before = try #require(front.environment.directory?[account]?.oneTime)
        front.pendingJobs.append(
            .directory(
                DirectoryJob(connection: first.machine.id, id: 1, account: account, request: .block(account, true))))
        front.settle()
        alice.send(first, "PRIVMSG bob :to somebody who is blocked")
        #expect(front.environment.directory?[account]?.isBlocked == true)
        #expect(front.environment.directory?[account]?.oneTime == before)
        #expect(alice.environment.peers?[account] == nil, "nobody was told any keys of theirs")
    }

    /// Somebody has used up all one-time prekeys of bob's, who is not there to make more.
    @Test func whoseOneTimeKeysAreUsedUpCanBeReached() throws {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        let account = AccountID.services("bob")
        for number in 0...PublishedDevice.oneTimeLimit {
            front.pendingJobs.append(
                .directory(
                    DirectoryJob(
                        connection: ConnectionID(9), id: 1, account: .services("mallory\(number)"),
                        request: .find(account, connections: []))))
        }
        front.settle()
        #expect(front.environment.directory?[account]?.oneTime.values.allSatisfy { $0 == 0 } == true)
        alice.send(first, "PRIVMSG bob :secret one")
        #expect(texts(second) == ["[e2e] secret one"])
        bob.send(second, "PRIVMSG alice :secret two")
        alice.send(first, "PRIVMSG bob :secret three")
        #expect(texts(first) == ["[e2e] secret two"])
        #expect(texts(second).last == "[e2e] secret three")
        #expect(!front.canary.contains("secret"))
    }

    /// The front gateway is not believed: it names other keys than those that are pinned.
    @Test func substitutedKeysAreNoticed() throws {
        let first = alice.connect("alice", account: "alice")
        let second = bob.connect("bob", account: "bob")
        alice.send(first, "PRIVMSG bob :secret one")
        bob.close(second)
        // Somebody whom the backend lets in as bob: an operator of the network, say.
        let mallory = try World(.opportunistic, seed: 8, behind: front, sidecar: true)
        let client = mallory.connect("bob", account: "bob")
        alice.send(first, "PRIVMSG bob :secret two")
        #expect(!client.read.contains { $0.contains("secret two") })
        mallory.send(client, "PRIVMSG alice :it is me, bob")
        #expect(first.wasNotified(Notices.changedKeys("bob")))
        #expect(!texts(first).contains { $0.contains("it is me") })
        alice.send(first, "PRIVMSG bob :secret three")
        #expect(first.read.contains { $0.contains("accept bob") })
        #expect(!client.read.contains { $0.contains("secret three") })
    }
}
