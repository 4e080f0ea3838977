import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Messenger
import Protection
import RequestQueue
import StorePort
import TestKit
import Testing

/// The machine: two and more devices, a server in memory, no threads.
@Suite struct MessengerTests {
    private let world = World()

    @Test func textsGoBothWaysAndAreEndToEndEncrypted() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        #expect(alice.send("hello", to: "bob")?.state == .waiting)
        world.deliver()
        bob.send("hi there", to: "alice")
        world.deliver()
        #expect(alice.texts(with: "bob") == ["hello", "hi there"])
        #expect(bob.texts(with: "alice") == ["hello", "hi there"])
        #expect(alice.history(with: "bob").allSatisfy { $0.protection == .device })
        #expect(bob.history(with: "alice").map(\.isOwn) == [false, true])
        #expect(alice.history(with: "bob").first?.state == .received)
    }

    /// Edits of messages that do not exist make rows that are not shown. They fill no page, and hide nothing.
    @Test func awaitedMessagesHideNoOthers() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        for text in ["one", "two", "three"] { alice.send(text, to: "bob") }
        world.deliver()
        for number in 1...UInt64(MessengerParticipants.pageLimit + 50) {
            let reference = MessageReference(device: alice.id, message: MessageID(number))
            let edit = ChatContent(.edit(reference), text: "canary", writtenAt: 1)
            let bytes = try alice.seal(edit.body, number, for: bob)
            world.deliver(bytes, to: [("bob", bob.id)], from: "alice")
        }
        #expect(bob.texts(with: "alice") == ["one", "two", "three"])
        let last = bob.perform { .history(ticket: $0, .person("alice"), before: nil, limit: 2) }
        guard case .history(let page)? = last else { return fail("\(String(describing: last))") }
        #expect(page.map(\.text) == ["two", "three"])
        let first = bob.perform { .history(ticket: $0, .person("alice"), before: page.first?.sequence, limit: 2) }
        guard case .history(let page)? = first else { return fail("\(String(describing: first))") }
        #expect(page.map(\.text) == ["one"])
        bob.perform { .markRead(ticket: $0, .person("alice")) }
        world.deliver()
        #expect(alice.history(with: "bob").map(\.state) == [.read, .read, .read])
    }

    /// All rows of a message are in one transaction: with a failed commit there is neither message nor request.
    @Test func aFailedCommitLeavesNothing() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        alice.store.failNextCommit()
        #expect(alice.send("two", to: "bob") == nil)
        #expect(alice.attempts.isEmpty)
        try alice.restart()
        alice.send("three", to: "bob")
        world.deliver()
        #expect(alice.texts(with: "bob") == ["one", "three"])
        #expect(bob.texts(with: "alice") == ["one", "three"])
    }

    /// Rows of messages have their outcome, so the next start reads few requests that have ended.
    @Test func fewRequestsThatHaveEndedAreKept() throws {
        let alice = try world.person("alice")
        _ = try world.person("bob")
        for number in 0..<300 {
            alice.send("\(number)", to: "bob")
            world.deliver()
        }
        #expect(try alice.store.queueContents().finished.count <= 210)
        #expect(alice.history(with: "bob").last?.state == .received)
    }

    /// A request that was not confirmed is sent again in the same bytes, and its copy is not shown.
    @Test func aRestartSendsTheSameBytesAndACopyIsNotShown() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        alice.send("two", to: "bob")
        let first = try #require(alice.nextCall())
        guard case .send(let bytes, _, _, _) = first.call else { return fail("no message") }
        bob.receive(bytes, from: "alice")
        try alice.restart()
        let second = try #require(alice.nextCall())
        #expect(second.call == first.call)
        guard case .received(.copy)? = bob.receive(bytes, from: "alice") else {
            return fail("the copy was taken")
        }
        alice.end(second)
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one", "two"])
        #expect(alice.history(with: "bob").last?.state ?? .waiting >= .sent)
    }

    /// Apps are ended at any time: no number of ends is held against the message that is under way.
    @Test func aMessageOutlivesAnyNumberOfRestarts() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        alice.send("two", to: "bob")
        for _ in 0..<20 {
            #expect(alice.attempts.count == 1)
            try alice.restart()
        }
        alice.send("three", to: "bob")
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one", "two", "three"])
    }

    @Test func messagesWaitForKeysAcrossARestart() throws {
        let alice = try world.person("alice")
        alice.send("are you there?", to: "bob")
        world.deliver()
        try alice.restart()
        #expect(alice.machine.waitingUsers == ["bob"])
        let bob = try world.person("bob")
        let config = world.configs["bob"]
        alice.perform { .keys(ticket: $0, config, of: "bob") }
        world.deliver()
        #expect(bob.texts(with: "alice") == ["are you there?"])
        #expect(alice.machine.waitingUsers.isEmpty)
    }

    @Test func editsDeletionsAndReactionsReachTheOtherSide() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let first = try #require(alice.send("helo", to: "bob"))
        let second = try #require(alice.send("secret", to: "bob"))
        world.deliver()
        alice.perform { .send(ticket: $0, SendJob(to: "bob", .edit(first.reference), text: "hello")) }
        alice.perform { .send(ticket: $0, SendJob(to: "bob", .delete(second.reference))) }
        bob.perform { .send(ticket: $0, SendJob(to: "alice", .react(first.reference, with: "\u{1F44D}"))) }
        world.deliver()
        for (device, user) in [(alice, "bob"), (bob, "alice")] {
            let messages = device.history(with: user)
            #expect(messages.map(\.text) == ["hello", ""])
            #expect(messages.map(\.isEdited) == [true, false] && messages.map(\.isDeleted) == [false, true])
            #expect(messages.first?.reactions.map(\.characters) == ["\u{1F44D}"])
        }
        // Only the author changes a message.
        let reply = bob.perform { .send(ticket: $0, SendJob(to: "alice", .edit(first.reference), text: "x")) }
        guard case .refused(.unknownMessage)? = reply else { return fail("\(String(describing: reply))") }
    }

    /// The server has exchanged two messages: the edit comes first.
    @Test func anEditThatOvertakesItsMessageIsKept() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("start", to: "bob")
        world.deliver()
        let message = try #require(alice.send("helo", to: "bob"))
        let text = try #require(alice.nextCall())
        alice.end(text)
        alice.perform { .send(ticket: $0, SendJob(to: "bob", .edit(message.reference), text: "hello")) }
        let edit = try #require(alice.nextCall())
        guard case .send(let later, _, _, _) = edit.call, case .send(let earlier, _, _, _) = text.call else {
            return fail("no messages")
        }
        bob.receive(later, from: "alice")
        #expect(bob.texts(with: "alice") == ["start"])
        bob.receive(earlier, from: "alice")
        #expect(bob.texts(with: "alice") == ["start", "hello"])
        bob.receive(earlier, from: "alice")
        #expect(bob.texts(with: "alice") == ["start", "hello"])
    }

    @Test func readReceiptsGoByTheTransportOrSealed() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("hello", to: "bob")
        world.deliver()
        bob.perform { .markRead(ticket: $0, "alice") }
        world.deliver()
        #expect(alice.history(with: "bob").last?.state == .read)
        world.hasReceipts = false
        alice.send("again", to: "bob")
        world.deliver()
        #expect(alice.history(with: "bob").last?.state == .received)
        bob.perform { .markRead(ticket: $0, "alice") }
        world.deliver()
        #expect(alice.history(with: "bob").last?.state == .read)
    }

    @Test func aTimerDeletesTheTextOnBothSides() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.perform { .setTimer(ticket: $0, "bob", 60) }
        alice.send("burn this", to: "bob")
        world.deliver()
        try bob.restart()
        for device in [alice, bob] {
            device.now.wall += 59_000
            device.run([.tick])
        }
        #expect(bob.texts(with: "alice") == ["burn this"])
        for device in [alice, bob] {
            device.now.wall += 2_000
            device.run([.tick])
        }
        #expect(alice.texts(with: "bob") == [""] && bob.texts(with: "alice") == [""])
    }

    /// A job that is refused because keys are missing asks for them.
    @Test func refusedJobsAskForKeys() throws {
        let alice = try world.person("alice")
        #expect(alice.send("hello", to: "bob", .refuse) == nil)
        #expect(alice.keysWanted == ["bob"])
        alice.events = []
        let signal = SignalJob(to: "carol", kind: "call", text: "", lifetime: 30)
        guard case .refused(.keysMissing)? = alice.perform({ .signal(ticket: $0, signal) }) else {
            return fail("the signal was not refused")
        }
        #expect(alice.keysWanted == ["carol"])
        #expect(alice.texts(with: "bob").isEmpty && alice.attempts.isEmpty)
    }

    /// A text that waits for keys is verified if the person is, as when the keys come.
    @Test func aWaitingTextIsVerifiedWithItsRecipient() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let config = try #require(World.published(by: bob))
        alice.perform { .keys(ticket: $0, config, of: "bob", NewSessions(begins: false)) }
        alice.perform { .decide(ticket: $0, "bob", .verify) }
        let message = try #require(alice.send("one", to: "bob"))
        #expect(message.state == .waiting && message.isVerified)
        alice.perform { .keys(ticket: $0, config, of: "bob") }
        #expect(alice.history(with: "bob").map(\.isVerified) == [true])
        world.deliver()
        // Other keys, that are accepted and not verified.
        let impostor = try #require(World.published(by: try World(seed: 99).person("bob")))
        alice.perform { .keys(ticket: $0, impostor, of: "bob") }
        alice.send("two", to: "bob")
        #expect(alice.history(with: "bob").last?.state == .waiting)
        alice.perform { .decide(ticket: $0, "bob", .accept) }
        alice.perform { .keys(ticket: $0, impostor, of: "bob") }
        #expect(alice.history(with: "bob").last?.state == .queued)
        #expect(alice.history(with: "bob").map(\.isVerified) == [true, false])
    }

    // MARK: Devices

    @Test func aSecondDeviceGetsWhatIsWrittenAfterItWasAdded() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("before", to: "bob")
        world.deliver()
        let phone = try world.device(of: "bob")
        #expect(!phone.machine.isAdopted)
        // It is muted until it is adopted.
        phone.send("too early", to: "alice")
        world.deliver()
        #expect(alice.texts(with: "bob") == ["before"])
        try world.adopt("bob", by: bob)
        #expect(phone.machine.isAdopted && !phone.machine.isMaster && bob.machine.isMaster)
        world.deliver()
        alice.send("after", to: "bob")
        world.deliver()
        #expect(phone.texts(with: "alice").contains("after"))
        #expect(alice.texts(with: "bob").contains("too early"))
        #expect(bob.texts(with: "alice").contains("too early"))
        phone.send("from the phone", to: "alice")
        world.deliver()
        for texts in [bob.texts(with: "alice"), alice.texts(with: "bob")] { #expect(texts.contains("from the phone")) }
    }

    @Test func aRevokedDeviceGetsNothingMore() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        alice.send("one", to: "bob")
        world.deliver()
        #expect(phone.texts(with: "alice") == ["one"])
        let lost = phone.id
        bob.perform { .revoke(ticket: $0, lost) }
        world.deliver()
        alice.send("two", to: "bob")
        bob.send("three", to: "alice")
        world.deliver()
        #expect(phone.texts(with: "alice") == ["one"])
        #expect(bob.texts(with: "alice") == ["one", "three", "two"])
        // What it still seals is refused.
        phone.send("from the thief", to: "alice")
        world.deliver()
        #expect(!alice.texts(with: "bob").contains("from the thief"))
        // Only the master device adds and removes devices.
        let reply = phone.perform { .revoke(ticket: $0, bob.id) }
        guard case .refused(.notMaster)? = reply else { return fail("\(String(describing: reply))") }
    }

    /// An envelope for several devices of which the server does not list one: the others get it.
    @Test func aRemovedDeviceDoesNotKeepAMessageFromTheOthers() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        alice.send("one", to: "bob")
        world.deliver()
        alice.run([.sendsSeveral(true)])
        alice.events = []
        for removed in [[phone.id], [phone.id, bob.id]] {
            let sent = try #require(alice.send("\(removed.count) removed", to: "bob"))
            let first = try #require(alice.nextCall())
            guard case .sendSeveral(let bytes, _, _) = first.call else { return fail("\(first.call)") }
            alice.end(first, .unknownRecipient)
            var seen: [DeviceID] = []
            while let attempt = alice.nextCall() {
                guard case .send(bytes, "bob", let device, _) = attempt.call else { return fail("\(attempt.call)") }
                seen.append(device)
                if !removed.contains(device) { world.deliver(bytes, to: [("bob", device)], from: "alice") }
                alice.end(attempt, removed.contains(device) ? .unknownRecipient : .done)
            }
            #expect(Set(seen) == [phone.id, bob.id] && seen.count == 2)
            let message = alice.history(with: "bob").first { $0.reference == sent.reference }
            #expect(message?.state == (removed.contains(bob.id) ? .failed : .sent))
        }
        // Their list is read again.
        #expect(alice.events.contains { if case .keysWanted("bob") = $0 { true } else { false } })
        #expect(bob.texts(with: "alice") == ["one", "1 removed"] && phone.texts(with: "alice") == ["one"])
    }

    /// An envelope for several devices is divided because one of them was removed: its parts go before what was written
    /// after it, also after a restart.
    @Test(arguments: [false, true]) func theRestOfADividedEnvelopeStaysInItsPlace(_ restarts: Bool) throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        alice.send("one", to: "bob")
        world.deliver()
        alice.run([.sendsSeveral(true)])
        alice.send("two", to: "bob")
        bob.perform { .revoke(ticket: $0, phone.id) }
        for attempt in bob.attempts {
            guard case .send(let bytes, "alice", let device, _) = attempt.call else { continue }
            world.deliver(bytes, to: [("alice", device)], from: "bob")
        }
        alice.send("three", to: "bob")
        let several = try #require(alice.nextCall())
        guard case .sendSeveral = several.call else { return fail("\(several.call)") }
        if restarts { try alice.restart() }
        alice.end(restarts ? try #require(alice.nextCall()) : several, .unknownRecipient)
        if restarts { try alice.restart() }
        while let attempt = alice.nextCall() {
            guard case .send(let bytes, "bob", let device, _) = attempt.call else { return fail("\(attempt.call)") }
            if device == bob.id { world.deliver(bytes, to: [("bob", device)], from: "alice") }
            alice.end(attempt, device == bob.id ? .done : .unknownRecipient)
        }
        #expect(bob.texts(with: "alice") == ["one", "two", "three"])
        #expect(alice.history(with: "bob").map(\.state).allSatisfy { $0 >= .sent && $0 < .failed })
    }

    /// The list with a new device comes before the keys with it are published: the device is not left out.
    @Test func keysFromBeforeADeviceWasAddedAreReadAgain() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        let earlier = try #require(world.configs["bob"])
        let phone = try world.device(of: "bob")
        let request = try #require(world.requests["bob"])
        bob.perform { .adopt(ticket: $0, request) }
        for attempt in bob.attempts {
            guard case .send(let bytes, "alice", let device, _) = attempt.call else { continue }
            world.deliver(bytes, to: [("alice", device)], from: "bob")
        }
        #expect(alice.keysWanted.contains("bob"))
        let reply = alice.perform { .keys(ticket: $0, earlier, of: "bob") }
        guard case .refused(.keysMissing)? = reply else { return fail("\(String(describing: reply))") }
        #expect(alice.send("two", to: "bob")?.state == .waiting)
        world.deliver()
        let config = world.configs["bob"]
        alice.perform { .keys(ticket: $0, config, of: "bob") }
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one", "two"])
        #expect(phone.texts(with: "alice").contains("two"))
        #expect(alice.machine.waitingUsers.isEmpty)
    }

    /// The outcome of a text depends on the requests to all devices, also on those that ended in an earlier process.
    @Test(arguments: [
        (AttemptEnd.done, AttemptEnd.unknownRecipient, DeliveryState.sent), (.refused("no"), .done, .failed),
        (.unknownRecipient, .unknownRecipient, .failed),
    ]) func aRestartForgetsNoEndOfARequest(_ first: AttemptEnd, _ second: AttemptEnd, _ state: DeliveryState) throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        _ = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        alice.send("one", to: "bob")
        world.deliver()
        alice.send("two", to: "bob")
        alice.end(try #require(alice.nextCall()), first)
        #expect(alice.history(with: "bob").last?.state == .queued)
        try alice.restart()
        let call = try #require(alice.nextCall())
        alice.end(call, second)
        #expect(alice.nextCall() == nil)
        #expect(alice.history(with: "bob").last?.state == state)
    }

    /// The server has forgotten a device that has the text: the answer to the request was lost.
    @Test func aConfirmedTextDoesNotFail() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let message = try #require(alice.send("one", to: "bob")?.reference.message)
        while alice.attempts.isEmpty, world.step() {}
        let call = try #require(alice.nextCall())
        alice.perform { .receipt(ticket: $0, message, from: "bob", isRead: false) }
        alice.end(call, .unknownRecipient)
        #expect(alice.history(with: "bob").last?.state == .received)
        #expect(bob.texts(with: "alice").isEmpty)
    }

    /// A device that was added has the text from the history, although nobody else has it yet.
    @Test func aChangeOfAWaitingTextReachesTheOwnDevices() throws {
        let alice = try world.person("alice")
        let reference = try #require(alice.send("one", to: "bob")?.reference)
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        #expect(phone.texts(with: "bob") == ["one"])
        let acts: [(ChatContent.Act, String)] = [
            (.edit(reference), "two"), (.react(reference, with: "+"), ""), (.delete(reference), ""),
        ]
        for (act, text) in acts {
            alice.perform { .send(ticket: $0, SendJob(in: .person("bob"), act, text: text)) }
            world.deliver()
            let (here, there) = (alice.history(with: "bob").last, phone.history(with: "bob").last)
            #expect(here?.text == there?.text && here?.reactions == there?.reactions)
            #expect(here?.isEdited == there?.isEdited && here?.isDeleted == there?.isDeleted)
        }
        #expect(phone.history(with: "bob").map(\.isDeleted) == [true])
    }

    /// The server shows an earlier list for the first message of an added device, which is dropped.
    @Test(arguments: [false, true]) func aMessageOfADeviceThatIsNotListedYetComesAgain(_ restarts: Bool) throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let earlier = world.configs["bob"]
        let phone = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        let later = world.configs["bob"]
        phone.send("one", to: "alice")
        // The phone reads alice's keys first.
        while phone.attempts.isEmpty { guard world.step() else { return fail("nothing is sent") } }
        world.configs["bob"] = earlier
        world.deliver()
        #expect(alice.texts(with: "bob").isEmpty)
        world.configs["bob"] = later
        if restarts { try alice.restart() }
        phone.send("two", to: "alice")
        world.deliver()
        alice.now.monotonic += 120_000_000_000
        alice.now.wall += 120_000
        alice.run([.tick])
        world.deliver()
        #expect(alice.texts(with: "bob").sorted() == ["one", "two"])
        #expect(alice.machine.nextWake(alice.now) == nil)
    }

    @Test func aRequestForAnotherAccountIsRefused() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        _ = try world.device(of: "bob")
        let request = try #require(world.requests["bob"])
        for bytes in [request, Array(request.dropLast()), [], request + [0]] {
            let reply = alice.perform { .adopt(ticket: $0, bytes) }
            guard case .refused(.notAuthentic)? = reply else { return fail("\(String(describing: reply))") }
        }
        #expect(alice.machine.own.deviceList.current.count == 1)
        #expect(bob.machine.own.deviceList.current.count == 1)
    }

    // MARK: Attacks

    /// Keys of another account under a person's name.
    @Test func theServerCannotExchangeAccounts() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let bobs = world.configs["bob"]
        let reply = alice.perform { .keys(ticket: $0, bobs, of: "carol") }
        guard case .refused(.notAuthentic)? = reply else { return fail("\(String(describing: reply))") }
        #expect(alice.machine.own.peer(.services("carol")) == nil)
        _ = bob
    }

    /// W12: another identity is an event, and nothing is sent before it is accepted.
    @Test func changedKeysAreNotAcceptedByThemselves() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        let impostor = try World(seed: 99).person("bob")
        let config = try #require(World.published(by: impostor))
        alice.perform { .keys(ticket: $0, config, of: "bob") }
        #expect(alice.peerEvents.contains(.changed(.services("bob"))))
        #expect(alice.send("two", to: "bob")?.state == .waiting)
        #expect(alice.attempts.isEmpty)
        alice.perform { .decide(ticket: $0, "bob", .accept) }
        alice.perform { .keys(ticket: $0, config, of: "bob") }
        #expect(alice.history(with: "bob").last?.state == .queued)
        _ = bob
    }

    /// A device list that forks from the known one is an event once, and nothing is sent before the person has decided.
    @Test(arguments: [PeerDecision.keep, .accept]) func aForkedListWaitsForADecision(_ decision: PeerDecision) throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        let pinned = try #require(alice.machine.own.peer(.services("bob"))?.deviceList)
        var random = SeededGenerator(seed: 70)
        func entry(_ number: UInt64) -> ListedDevice {
            ListedDevice(id: DeviceID(number), identity: IdentityKeyPair(random: &random).publicKey)
        }
        let (phone, thief) = (entry(71), entry(72))
        func longer(_ device: ListedDevice) throws -> DeviceList {
            let longer = pinned.adding(device, by: bob.machine.own.id, bob.machine.own.device.identity)
            return try #require(longer)
        }
        let (right, fork) = (try longer(phone), try longer(thief))
        func show(_ list: DeviceList) throws {
            let keys = try PublishedKeys(try #require(world.configs["bob"]))
            let config = PublishedKeys(deviceList: list, devices: keys.devices).bytes
            alice.perform { .keys(ticket: $0, config, of: "bob") }
        }
        try show(right)
        #expect(alice.machine.own.peer(.services("bob"))?.deviceList == right)
        for _ in 0..<2 { try show(fork) }
        let event = PeerEvent.forked(.services("bob"), isNew: true)
        #expect(alice.peerEvents.filter { $0.awaitsDecision } == [event])
        #expect(alice.send("two", to: "bob")?.state == .waiting && alice.attempts.isEmpty)
        try alice.restart()
        #expect(alice.machine.own.peer(.services("bob"))?.isForked == true)
        alice.perform { .decide(ticket: $0, "bob", decision) }
        let peer = try #require(alice.machine.own.peer(.services("bob")))
        #expect(!peer.isForked && peer.deviceList == (decision == .keep ? right : fork))
    }

    /// W4 to W6: copies, altered bytes and other names change nothing.
    @Test func alteredEnvelopesChangeNothing() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        alice.send("two", to: "bob")
        let attempt = try #require(alice.nextCall())
        guard case .send(let bytes, _, _, _) = attempt.call else { return fail("no message") }
        for place in stride(from: 0, to: bytes.count, by: 7) {
            var altered = bytes
            altered[place] ^= 0x40
            bob.receive(altered, from: "alice", hasKeys: true)
        }
        for length in stride(from: 0, to: bytes.count, by: 11) {
            bob.receive(Array(bytes.prefix(length)), from: "alice", hasKeys: true)
        }
        bob.receive(bytes, from: "mallory", hasKeys: true)
        #expect(bob.texts(with: "alice") == ["one"] && bob.texts(with: "mallory").isEmpty)
        bob.receive(bytes, from: "alice")
        #expect(bob.texts(with: "alice") == ["one", "two"])
        try bob.restart()
        bob.receive(bytes, from: "alice")
        #expect(bob.texts(with: "alice") == ["one", "two"])
    }

    /// Both write first at the same time.
    @Test func crossedSessionsLoseNothing() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        for (device, user) in [(alice, "bob"), (bob, "alice")] {
            let config = world.configs[user]
            device.perform { .keys(ticket: $0, config, of: user) }
        }
        alice.send("from alice", to: "bob")
        bob.send("from bob", to: "alice")
        world.deliver()
        for number in 0..<3 {
            alice.send("a\(number)", to: "bob")
            bob.send("b\(number)", to: "alice")
            world.deliver()
        }
        let expected: Set = ["from alice", "from bob", "a0", "a1", "a2", "b0", "b1", "b2"]
        #expect(Set(alice.texts(with: "bob")) == expected && alice.texts(with: "bob").count == 8)
        #expect(Set(bob.texts(with: "alice")) == expected && bob.texts(with: "alice").count == 8)
    }

    /// The server delivers messages of the session that is not kept again, before and after the other one is answered:
    /// edits and reactions count once, as texts do.
    @Test(arguments: [false, true]) func aCrossedSessionOpensNothingTwice(_ isAnswered: Bool) throws {
        let (leader, follower) = try crossing()
        leader.send("from the leader", to: follower.user)
        let message = try #require(follower.send("v0", to: leader.user)?.reference)
        func change(_ act: ChatContent.Act, _ text: String = "") {
            follower.perform { .send(ticket: $0, SendJob(to: leader.user, act, text: text)) }
        }
        change(.edit(message), "v1")
        change(.react(message, with: "+"))
        let first = carry(from: follower, to: leader)
        #expect(first.count == 3)
        #expect(leader.history(with: follower.user).last?.text == "v1")
        if isAnswered { world.deliver() }
        change(.edit(message), "v2")
        change(.react(message, with: nil))
        #expect(carry(from: follower, to: leader).count == 2)
        for _ in 0..<2 {
            for bytes in first {
                let reply = leader.receive(bytes, from: follower.user)
                guard case .received(.copy)? = reply else { return fail("\(String(describing: reply))") }
            }
            let last = leader.history(with: follower.user).last
            #expect(last?.text == "v2" && last?.reactions == [])
            try leader.restart()
        }
        world.deliver()
        leader.send("after", to: follower.user)
        follower.send("afterwards", to: leader.user)
        world.deliver()
        let expected = ["after", "afterwards", "from the leader", "v2"]
        #expect(leader.texts(with: follower.user).sorted() == expected)
        #expect(follower.texts(with: leader.user).sorted() == expected)
    }

    /// Two people who have both begun a session; that of the first one is kept.
    private func crossing() throws -> (leader: World.Device, follower: World.Device) {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        for (device, user) in [(alice, "bob"), (bob, "alice")] {
            let config = world.configs[user]
            device.perform { .keys(ticket: $0, config, of: user) }
        }
        let keys = [alice, bob].map { $0.machine.own.device.identity.publicKey.bytes }
        return keys[0].lexicographicallyPrecedes(keys[1]) ? (alice, bob) : (bob, alice)
    }

    /// Makes the calls of a device, and delivers its envelopes to another; returns them.
    private func carry(from sender: World.Device, to reader: World.Device) -> [[UInt8]] {
        var envelopes: [[UInt8]] = []
        while let attempt = sender.nextCall() {
            if case .send(let bytes, _, _, _) = attempt.call {
                envelopes.append(bytes)
                reader.receive(bytes, from: sender.user)
            }
            sender.end(attempt)
        }
        return envelopes
    }

    // MARK: Latch

    /// A text was queued before there were keys, and its attempt has failed.
    private func queuedPlaintext() throws -> (alice: World.Device, bob: World.Device, text: ChatMessage) {
        let alice = try world.person("alice")
        let text = try #require(alice.send("one", to: "bob", .plaintext))
        let attempt = try #require(alice.nextCall())
        alice.run([.attempted(attempt.id, lease: attempt.lease, .failed, random: .max)])
        #expect(alice.attempts.isEmpty)
        let bob = try world.person("bob")
        let config = world.configs["bob"]
        alice.perform { .keys(ticket: $0, config, of: "bob") }
        return (alice, bob, text)
    }

    /// Lets the queue's pauses end.
    private func wait(_ device: World.Device) {
        for _ in 0..<3 {
            device.now.wall += 10_000
            device.now.monotonic += 10_000_000_000
            device.run([.tick])
        }
    }

    private func isPlaintext(_ attempt: Attempt) -> Bool {
        if case .plaintext = attempt.call { true } else { false }
    }

    /// A text that waits in the queue is sealed instead once the chat is latched, also if the process ends before.
    @Test(arguments: [false, true]) func aQueuedTextIsSealedOnceTheChatIsLatched(_ restarts: Bool) throws {
        let (alice, bob, _) = try queuedPlaintext()
        alice.send("two", to: "bob", .plaintext)
        if restarts {
            try alice.restart()
        } else {
            let uptime = alice.now.monotonic / 1_000_000
            #expect(alice.machine.nextWake(alice.now).map { $0 <= uptime } == true)
        }
        wait(alice)
        #expect(!alice.attempts.contains(where: isPlaintext))
        world.deliver()
        #expect(bob.texts(with: "alice").sorted() == ["one", "two"])
        #expect(alice.history(with: "bob").map(\.protection) == [.device, .device])
        #expect(alice.history(with: "bob").allSatisfy { $0.state >= .sent && $0.state < .failed })
    }

    /// Nor is it sent without its text.
    @Test func aQueuedTextThatWasDeletedIsNotSent() throws {
        let (alice, bob, text) = try queuedPlaintext()
        alice.perform { .send(ticket: $0, SendJob(to: "bob", .delete(text.reference))) }
        wait(alice)
        #expect(!alice.attempts.contains(where: isPlaintext))
        world.deliver()
        #expect(bob.texts(with: "alice").isEmpty)
        #expect(alice.history(with: "bob").map(\.isDeleted) == [true])
        #expect(alice.machine.waitingUsers.isEmpty)
    }

    /// An attempt that was under way when the latch was raised counts as sent.
    @Test func aTextUnderWayIsNotSealedAgain() throws {
        let alice = try world.person("alice")
        alice.send("one", to: "bob", .plaintext)
        let attempt = try #require(alice.nextCall())
        let bob = try world.person("bob")
        let config = world.configs["bob"]
        alice.perform { .keys(ticket: $0, config, of: "bob") }
        alice.send("two", to: "bob", .plaintext)
        alice.run([.tick])
        alice.end(attempt)
        wait(alice)
        world.deliver()
        #expect(alice.history(with: "bob").map(\.protection) == [.plaintext, .device])
        #expect(bob.texts(with: "alice") == ["two"])
    }

    @Test func plaintextIsSentOnlyWithoutKeysAndNeverInALatchedChat() throws {
        let alice = try world.person("alice")
        #expect(alice.send("in clear", to: "bob", .plaintext)?.protection == .plaintext)
        let call = try #require(alice.nextCall())
        let message = try #require(alice.history(with: "bob").first?.reference.message)
        #expect(call.call == .plaintext("in clear", user: "bob", message: message))
        alice.end(call)
        #expect(alice.history(with: "bob").first?.state == .sent)
        var refused = SendJob(to: "bob", text: "no")
        refused.fallback = .refuse
        guard case .refused(.keysMissing)? = alice.perform({ .send(ticket: $0, refused) }) else {
            return fail("it was not refused")
        }
        let bob = try world.person("bob")
        let config = world.configs["bob"]
        alice.perform { .keys(ticket: $0, config, of: "bob") }
        alice.send("sealed", to: "bob", .plaintext)
        world.deliver()
        #expect(bob.history(with: "alice").map(\.protection) == [.device])
        // The latch is up: without keys a text waits.
        alice.perform { .decide(ticket: $0, "bob", .forget) }
        try alice.restart()
        #expect(alice.send("more", to: "bob", .plaintext)?.state == .waiting)
        #expect(alice.attempts.isEmpty)
        alice.perform { .receivePlaintext(ticket: $0, "I am bob", from: "bob") }
        #expect(!alice.texts(with: "bob").contains("I am bob"))
        #expect(alice.events.contains { if case .withheld("bob") = $0 { true } else { false } })
    }

    /// What the person has sealed on one device latches the chat on the others.
    @Test func aCopyOfAnOwnMessageRaisesTheLatch() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        alice.send("sealed", to: "bob")
        world.deliver()
        #expect(phone.texts(with: "bob") == ["sealed"] && bob.texts(with: "alice") == ["sealed"])
        // The server shows the phone no keys of bob's.
        world.configs["bob"] = nil
        #expect(phone.send("more", to: "bob", .plaintext)?.state == .waiting)
        #expect(phone.attempts.isEmpty)
        phone.perform { .receivePlaintext(ticket: $0, "I am bob", from: "bob") }
        #expect(!phone.texts(with: "bob").contains("I am bob"))
        try phone.restart()
        #expect(phone.send("still", to: "bob", .plaintext)?.protection == .device)
    }

    /// No text is in the store, and no row can take the place of another.
    @Test func theStoreHoldsNoText() throws {
        let (alice, _) = (try world.person("alice"), try world.person("bob"))
        alice.send("the canary sings", to: "bob")
        world.deliver()
        let canary = Array("canary".utf8)
        for kind in RecordKind.allCases {
            for row in try alice.store.records(kind) {
                #expect(!row.value.indices.contains { row.value[$0...].starts(with: canary) })
            }
        }
        let rows = try alice.store.records(.chatMessage)
        #expect(rows.count == 1)
        _ = try alice.store.commit([
            [.putRecord(RecordRow(kind: .chatMessage, name: "bob 0000000000000001", value: rows[0].value))]
        ])
        let reply = alice.perform { .history(ticket: $0, "bob", before: nil, limit: 10) }
        guard case .refused(.notCommitted)? = reply else { return fail("a moved row was read") }
    }
}

extension World {
    /// The keys that a device has published.
    static func published(by device: Device) -> [UInt8]? {
        (try? device.store.record(.ownDevices, name: "published"))??.value
    }
}
