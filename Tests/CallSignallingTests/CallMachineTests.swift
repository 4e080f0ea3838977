import CallSignalling
import Envelope
import Protection
import TestKit
import Testing

/// The calls of devices over a network that loses, delays and reorders, as transcripts.
@Suite struct CallMachineTests {
    private let world = CallWorld()
    private let times = CallTimes()

    /// Alice with one device, Bob with two.
    private func people() -> (CallWorld.Device, CallWorld.Device, CallWorld.Device) {
        (world.device("alice", 1), world.device("bob", 2), world.device("bob", 3))
    }

    @Test func anOfferAnAnswerAndCandidatesGoBothWays() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        #expect(world.send(.offer("o"), from: alice, to: "bob") == nil)
        world.send(.candidate("a0"), from: alice, to: "bob")
        world.deliverAll()
        world.send(.answer("a"), from: bob, to: "alice", device: alice)
        world.send(.candidate("b0"), from: bob, to: "alice")
        world.deliverAll()
        world.end("userInitiated", by: alice)
        world.deliverAll()
        #expect(bob.log == ["offer o", "candidate a0", "ended: userInitiated"])
        #expect(alice.log == ["answer a", "candidate b0"])
        #expect(alice.machine.count == 0 && bob.machine.count == 0)
        #expect(alice.machine.nextWake == nil && bob.machine.nextWake == nil)
    }

    @Test func candidatesFromBeforeTheOfferAreSentAfterIt() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        for number in 0..<3 { world.send(.candidate("\(number)"), from: alice, to: "bob") }
        #expect(world.network.isEmpty)
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        #expect(bob.log == ["offer o", "candidate 0", "candidate 1", "candidate 2"])
    }

    @Test func candidatesThatOvertakeTheirOfferWaitForIt() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        for number in 0..<5 { world.send(.candidate("\(number)"), from: alice, to: "bob") }
        world.network.reverse()
        world.deliverAll()
        #expect(bob.log == ["offer o"] + (0..<5).map { "candidate \($0)" })
        #expect(bob.dropped.isEmpty)
    }

    /// The called one may send candidates before its answer, and they are not held back.
    @Test func candidatesBeforeTheAnswerAreHandedOver() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        world.send(.candidate("b0"), from: bob, to: "alice")
        world.deliverAll()
        #expect(alice.log == ["candidate b0"])
        world.send(.candidate("b1"), from: bob, to: "alice")
        world.send(.answer("a"), from: bob, to: "alice", device: alice)
        world.deliverAll()
        #expect(alice.log == ["candidate b0", "candidate b1", "answer a"])
    }

    /// In the calls of the original a ciphertext comes before the offer.
    @Test func aCiphertextBeginsACall() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.ciphertext("k1"), from: alice, to: "bob")
        world.deliverAll()
        world.send(.ciphertext("k2"), from: bob, to: "alice")
        world.deliverAll()
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        #expect(bob.log == ["ciphertext k1", "offer o"])
        #expect(alice.log == ["ciphertext k2"])
    }

    /// The channel drops copies. If it did not, the numbers would.
    @Test func aReplayedMessageIsDropped() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.send(.ciphertext("k"), from: alice, to: "bob")
        let all = world.network
        world.deliverAll()
        world.network = all + all
        world.deliverAll()
        #expect(bob.log == ["offer o", "ciphertext k"])
        #expect(bob.dropped == Array(repeating: .late, count: 4))
        // Other bytes are another message.
        world.send(.ciphertext("k"), from: alice, to: "bob")
        world.deliverAll()
        #expect(bob.log.count == 3)
    }

    @Test(arguments: [UInt64(1), 2, 3, 4, 5, 6, 7, 8])
    func anyOrderIsHandedOverInOrder(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        let count = 60
        for number in 0..<count {
            world.send(
                Bool.random(using: &random) ? .candidate("\(number)") : .ciphertext("\(number)"), from: alice,
                to: "bob")
        }
        world.network.shuffle(using: &random)
        world.deliverAll()
        #expect(bob.log.first == "offer o")
        #expect(bob.log.dropFirst().compactMap { Int($0.split(separator: " ")[1]) } == Array(0..<count), "seed \(seed)")
        #expect(bob.dropped.isEmpty)
    }

    /// Loss under a seed: what comes is in order, each once, and no loss stops a call.
    @Test(arguments: [UInt64(1), 2, 3, 4, 5, 6, 7, 8])
    func lostMessagesDoNotStopACall(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        world.send(.answer("a"), from: bob, to: "alice", device: alice)
        world.deliverAll()
        var arrived: [Int] = []
        for number in 0..<200 {
            world.send(.ciphertext("\(number)"), from: alice, to: "bob")
            if random.below(10) < 3 { world.network.removeLast() } else { arrived.append(number) }
            if random.below(5) == 0 { world.network.shuffle(using: &random) }
            if random.below(4) == 0 { world.deliverAll() }
        }
        world.deliverAll()
        for _ in 0..<200 { world.pass(times.gap) }
        let numbers = bob.log.dropFirst().compactMap { Int($0.split(separator: " ")[1]) }
        #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count, "seed \(seed)")
        #expect(numbers.last == arrived.last && Set(numbers).isSubset(of: arrived), "seed \(seed)")
        #expect(numbers.count + bob.dropped.count == arrived.count, "seed \(seed)")
        #expect(bob.machine.nextWake == nil)
    }

    @Test func aLostMessageIsNotWaitedForLongerThanItsTime() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        for number in 0..<3 { world.send(.candidate("\(number)"), from: alice, to: "bob") }
        let lost = world.network.removeFirst()
        world.deliverAll()
        #expect(bob.log == ["offer o"])
        world.pass(times.gap - 1)
        #expect(bob.log == ["offer o"])
        world.pass(1)
        #expect(bob.log == ["offer o", "candidate 1", "candidate 2"])
        world.deliver(lost)
        #expect(bob.dropped == [.late])
    }

    // MARK: Ends

    @Test func anEndIsFinalAndIdempotent() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.send(.candidate("0"), from: alice, to: "bob")
        let late = world.network
        world.deliverAll()
        world.end("userInitiated", by: alice)
        #expect(world.network.count == 1)
        world.end("failed", by: alice)
        world.end("userInitiated", by: alice)
        #expect(world.network.count == 1)
        world.deliverAll()
        world.end("partnerInitiated", by: bob)
        #expect(world.network.isEmpty)
        #expect(bob.log == ["offer o", "candidate 0", "ended: userInitiated"])
        // What comes after the end is dropped and counted, and begins no call.
        world.network = late
        world.deliverAll()
        #expect(bob.log.count == 3 && bob.dropped == [.ended, .ended])
        #expect(world.send(.offer("o"), from: alice, to: "bob") == .ended)
        #expect(world.send(.answer("a"), from: bob, to: "alice") == .ended)
        #expect(world.send(.candidate("1"), from: alice, to: "bob") == nil)
        #expect(world.network.isEmpty)
    }

    /// An end overtakes candidates: they are not handed over after it.
    @Test func anEndThatOvertakesWaitsForItsPlace() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.send(.candidate("0"), from: alice, to: "bob")
        world.end("userInitiated", by: alice)
        world.network.reverse()
        world.deliverAll()
        #expect(bob.log == ["offer o", "candidate 0", "ended: userInitiated"])
    }

    @Test func aLaterCallMayHaveTheSameRoute() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("1"), from: alice, to: "bob")
        world.deliverAll()
        #expect(world.send(.offer("2"), from: alice, to: "bob", call: "call 2") == .noCall)
        world.end("userInitiated", by: alice)
        world.deliverAll()
        world.send(.offer("2"), from: alice, to: "bob", call: "call 2")
        world.deliverAll()
        #expect(bob.log == ["offer 1", "ended: userInitiated", "offer 2"])
    }

    /// The call before was missed: its end comes when the device is online again, without its offer, and the next offer
    /// right after it.
    @Test func whatWaitsOfACallBeforeKeepsNoCallAway() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("1"), from: alice, to: "bob")
        world.send(.candidate("1"), from: alice, to: "bob")
        world.network = []
        world.end("userInitiatedUnanswered", by: alice)
        world.pass(1)
        world.send(.offer("2"), from: alice, to: "bob", call: "call 2")
        world.deliverAll()
        #expect(bob.log == ["offer 2"] && bob.dropped == [.expired])
        world.send(.answer("b"), from: bob, to: "alice", call: "call 2", device: alice)
        world.deliverAll()
        #expect(alice.log == ["answer b"])
    }

    /// The other person's app was restarted in the middle of the call, and calls again at once.
    @Test(arguments: [false, true]) func aCallOfARestartedDeviceEndsTheOneBefore(_ isAnswered: Bool) {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("1"), from: alice, to: "bob")
        world.send(.candidate("late"), from: alice, to: "bob")
        let late = world.network.removeLast()
        world.deliverAll()
        if isAnswered {
            world.send(.answer("b"), from: bob, to: "alice", device: alice)
            world.deliverAll()
        }
        alice.machine = CallMachine(own: "alice")
        world.pass(1000)
        world.send(.offer("2"), from: alice, to: "bob", call: "call 2")
        world.send(.candidate("2"), from: alice, to: "bob", call: "call 2")
        world.network.reverse()
        world.deliverAll()
        let end = isAnswered ? "ended: failed" : "ended: userInitiatedUnanswered"
        #expect(bob.log == ["offer 1", end, "offer 2", "candidate 2"])
        // What is late of the call before is dropped.
        world.deliver(late)
        #expect(bob.dropped == [.ended])
        world.send(.answer("b2"), from: bob, to: "alice", call: "call 2", device: alice)
        world.deliverAll()
        #expect(alice.log.last == "answer b2")
    }

    /// A notice about another call than that of which messages wait does not touch them.
    @Test func aNoticeAboutACallBeforeKeepsWhatWaits() throws {
        let (alice, bob, phone) = people()
        world.send(.offer("1"), from: alice, to: "bob")
        world.network.removeAll { $0.to.id == bob.id }
        world.deliverAll()
        world.end("partnerInitiatedRejected", by: phone)
        let notice = try #require(world.network.first { $0.to.id == bob.id })
        world.network.removeAll { $0.to.id == bob.id }
        world.deliverAll()
        world.pass(1)
        world.send(.offer("2"), from: alice, to: "bob", call: "call 2")
        world.send(.candidate("2"), from: alice, to: "bob", call: "call 2")
        world.network.removeAll { $0.to.id == phone.id }
        world.deliver(world.network.removeLast())
        world.deliver(notice)
        world.deliverAll()
        #expect(bob.log == ["offer 2", "candidate 2"])
    }

    @Test func endsAreForgottenAfterTheirTimeOrTheOldestFirst() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        world.end("userInitiated", by: alice)
        world.deliverAll()
        world.pass(CallLimits.endTime + 1)
        #expect(world.send(.offer("again"), from: alice, to: "bob", call: "call 2") == nil)
        for number in 0...CallLimits.ends {
            let name = "peer \(number)"
            world.send(.offer("o"), from: bob, to: name, call: name)
            world.end("userInitiated", by: bob, call: name)
            world.pass(1)
        }
        #expect(world.send(.offer("o"), from: bob, to: "peer 0", call: "peer 0") == nil)
        let last = "peer \(CallLimits.ends)"
        #expect(world.send(.offer("o"), from: bob, to: last, call: last) == .ended)
    }

    // MARK: Several devices

    @Test func theFirstAnswerStopsTheOtherDevice() {
        let (alice, bob, phone) = people()
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        #expect(bob.log == ["offer o"] && phone.log == ["offer o"])
        world.send(.answer("a"), from: phone, to: "alice", device: alice)
        world.deliverAll()
        #expect(alice.log == ["answer a"])
        #expect(bob.log == ["offer o", "answered elsewhere"])
        // From now on the caller's messages go to one device.
        world.send(.candidate("0"), from: alice, to: "bob")
        #expect(world.network.map(\.to.id) == [phone.id])
        world.deliverAll()
        world.end("userInitiated", by: alice)
        #expect(world.network.map(\.to.id) == [phone.id])
        world.deliverAll()
        #expect(bob.log.count == 2)
    }

    @Test func theSecondOfTwoAnswersIsTold() {
        let (alice, bob, phone) = people()
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        world.send(.answer("b"), from: bob, to: "alice", device: alice)
        world.send(.answer("p"), from: phone, to: "alice", device: alice)
        world.deliverAll()
        #expect(alice.log == ["answer b"])
        #expect(bob.log == ["offer o"])
        #expect(phone.log == ["offer o", "ended: \(CallMachine<String>.answeredElsewhere)"])
        #expect(alice.dropped == [.otherDevice])
        // The call goes on with the first.
        world.send(.candidate("b0"), from: bob, to: "alice")
        world.send(.candidate("a0"), from: alice, to: "bob")
        world.deliverAll()
        #expect(alice.log.last == "candidate b0" && bob.log.last == "candidate a0")
    }

    @Test func aRejectionStopsAllDevices() {
        let (alice, bob, phone) = people()
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        world.end("partnerInitiatedRejected", by: phone)
        world.deliverAll()
        #expect(alice.log == ["ended: partnerInitiatedRejected"])
        #expect(bob.log == ["offer o", "ended elsewhere: partnerInitiatedRejected"])
    }

    /// The notice overtakes the offer: this device never rings.
    @Test func anOfferOfACallThatWasAnsweredElsewhereIsDropped() throws {
        let (alice, bob, phone) = people()
        world.send(.offer("o"), from: alice, to: "bob")
        let late = try #require(world.network.first { $0.to.id == bob.id })
        world.network.removeAll { $0.to.id == bob.id }
        world.deliverAll()
        world.send(.answer("a"), from: phone, to: "alice", device: alice)
        world.deliverAll()
        world.deliver(late)
        #expect(bob.log.isEmpty && bob.dropped == [.ended])
    }

    @Test func aStrangerCannotStopTheRinging() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        let mallory = world.device("mallory", 9)
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        for content: CallMessage<String>.Content in [
            .answered(caller: "alice"), .end(state: "userInitiated", caller: "alice"),
            .end(state: "userInitiated", caller: nil), .answer("m"),
        ] {
            world.deliver(
                .init(
                    from: mallory, to: bob,
                    message: CallMessage(
                        world.key("").route, call: "call 1", role: nil, stream: 1, number: 0, content, size: 1)))
        }
        #expect(bob.log == ["offer o"])
        world.send(.answer("a"), from: bob, to: "alice", device: alice)
        world.deliverAll()
        #expect(alice.log == ["answer a"])
    }

    @Test func anotherDeviceOfTheCallerCannotEnterTheCall() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        let tablet = world.device("alice", 4)
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        world.send(.offer("t"), from: tablet, to: "bob")
        world.deliverAll()
        #expect(bob.log == ["offer o"] && bob.dropped == [.otherDevice])
    }

    // MARK: Time

    @Test func whatNobodyAnswersEnds() {
        let (alice, bob, phone) = people()
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        world.pass(times.ringing - 1)
        #expect(alice.log.isEmpty)
        world.pass(1)
        #expect(alice.log == ["nobody answers"])
        world.deliverAll()
        for device in [bob, phone] { #expect(device.log == ["offer o", "ended: userInitiatedUnanswered"]) }
    }

    /// A server that drops the end cannot make a device ring for good.
    @Test func aDeviceStopsRingingByItself() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        world.pass(times.ringing)
        world.network = []
        world.pass(times.answering - times.ringing)
        #expect(bob.log == ["offer o", "missed"])
        #expect(bob.machine.count == 0)
    }

    @Test func candidatesWithoutTheirOfferExpire() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.send(.candidate("0"), from: alice, to: "bob")
        world.network.removeFirst()
        world.deliverAll()
        for _ in 0..<20 { world.pass(times.gap) }
        #expect(bob.log.isEmpty && bob.dropped == [.expired])
        #expect(bob.machine.count == 0 && bob.machine.nextWake == nil)
    }

    @Test func aSenderThatStartsAgainIsUnderstood() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.send(.candidate("0"), from: alice, to: "bob")
        world.deliverAll()
        world.send(.answer("a"), from: bob, to: "alice", device: alice)
        world.deliverAll()
        alice.machine = CallMachine(own: "alice")
        world.pass(1000)
        world.send(.offer("again"), from: alice, to: "bob")
        world.deliverAll()
        #expect(bob.log == ["offer o", "candidate 0", "offer again"])
    }

    // MARK: Limits

    @Test func everyTableHasALimit() {
        let bob = world.device("bob", 2)
        // Callers that nobody has answered.
        for number in 0...CallLimits.unanswered {
            let caller = world.device("caller \(number)", UInt64(100 + number))
            world.send(.offer("o"), from: caller, to: "bob")
        }
        world.deliverAll()
        #expect(bob.machine.count == CallLimits.unanswered && bob.dropped == [.limit])
    }

    /// A contact who calls under many ids, or sends candidates without offers, keeps nobody else from calling.
    @Test(arguments: [false, true]) func oneAccountFillsNoTable(_ isOffer: Bool) throws {
        let (alice, bob, mallory) = (world.device("alice", 1), world.device("bob", 2), world.device("mallory", 9))
        for number in 0..<CallLimits.unanswered {
            let route = try #require(CallRoute("room \(number)"))
            world.deliver(
                .init(
                    from: mallory, to: bob,
                    message: CallMessage(
                        route, call: "\(number)", role: nil, stream: 1, number: 0,
                        isOffer ? .offer("m") : .candidate("m"), size: 1)))
        }
        #expect(bob.machine.count == CallLimits.ofOne)
        #expect(bob.dropped == Array(repeating: .limit, count: CallLimits.unanswered - CallLimits.ofOne))
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        #expect(bob.log.last == "offer o")
        // Bob may call Mallory all the same.
        #expect(world.send(.offer("b"), from: bob, to: "mallory", call: "back") == nil)
    }

    /// At a server the sides of a participant do not end by themselves.
    @Test func oneParticipantDoesNotFillAServer() throws {
        let (server, mallory, alice) = (
            world.device("server", 100), world.device("mallory", 9), world.device("alice", 1)
        )
        for (device, count) in [(mallory, CallLimits.sides), (alice, 1)] {
            for number in 0..<count {
                let route = try #require(CallRoute("room \(number)"))
                world.deliver(
                    .init(
                        from: device, to: server,
                        message: CallMessage(
                            route, call: "\(number)", role: .client, stream: 1, number: 0, .offer("o"), size: 1)))
            }
        }
        #expect(server.log.count == CallLimits.ofOne + 1 && server.machine.count == CallLimits.ofOne + 1)
    }

    @Test func candidatesOfOneSideHaveALimit() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        for _ in 0..<CallLimits.candidates { #expect(world.send(.candidate("c"), from: alice, to: "bob") == nil) }
        #expect(world.send(.candidate("c"), from: alice, to: "bob") == .limit)
        world.deliverAll()
        #expect(bob.log.count == CallLimits.candidates + 1)
        // A sender without this limit meets the recipient's.
        world.deliver(
            .init(
                from: alice, to: bob,
                message: CallMessage(
                    world.key("").route, call: "call 1", role: nil, stream: world.now.wall,
                    number: CallLimits.candidates + 1, .candidate("c"), size: 1)))
        #expect(bob.dropped == [.limit])
        // A new offer begins anew.
        world.send(.answer("a"), from: bob, to: "alice", device: alice)
        world.deliverAll()
        #expect(world.send(.offer("restart"), from: alice, to: "bob") == nil)
        #expect(world.send(.candidate("c"), from: alice, to: "bob") == nil)
    }

    @Test func messagesThatWaitHaveALimit() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        func message(_ number: Int, size: Int) -> CallWorld.Transit {
            .init(
                from: alice, to: bob,
                message: CallMessage(
                    world.key("").route, call: "call 1", role: nil, stream: 1, number: number, .candidate("\(number)"),
                    size: size))
        }
        // The bytes of one account, and of all.
        world.deliver(message(1, size: CallLimits.waitingBytesOfOne))
        world.deliver(message(2, size: 1))
        #expect(bob.dropped == [.limit])
        for number in 1...CallLimits.waitingBytes / CallLimits.waitingBytesOfOne {
            var transit = message(1, size: CallLimits.waitingBytesOfOne)
            transit.from = world.device("other \(number)", UInt64(100 + number))
            world.deliver(transit)
        }
        #expect(bob.dropped == [.limit, .limit])
        world.pass(times.answering + times.gap)
        world.pass(times.answering)
        bob.dropped = []
        // The messages of one device: the gap is given up, and what waits for the offer has the same limit.
        for number in 1..<2 * CallLimits.waiting + 2 { world.deliver(message(number, size: 1)) }
        #expect(bob.dropped == Array(repeating: .limit, count: CallLimits.waiting + 1))
        // Numbers that would overflow.
        bob.dropped = []
        world.deliver(message(Int.max, size: 1))
        world.deliver(message(-1, size: 1))
        #expect(bob.dropped == [.late, .late])
    }

    /// A message that was not sent leaves no gap.
    @Test func whatWasNotSentIsTakenBack() throws {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        let output = try alice.machine.send(.offer("o"), world.key("bob"), call: "call 1", as: .person, now: world.now)
        alice.machine.takeBack(output)
        #expect(alice.machine.count == 0)
        world.send(.offer("o"), from: alice, to: "bob")
        let lost = try alice.machine.send(
            .ciphertext("0"), world.key("bob"), call: "call 1", as: .person, now: world.now)
        alice.machine.takeBack(lost)
        world.send(.ciphertext("1"), from: alice, to: "bob")
        world.deliverAll()
        #expect(bob.log == ["offer o", "ciphertext 1"])
    }

    /// The answer could not be sent: the device still rings, and a second attempt notifies the others.
    @Test func anAnswerThatWasNotSentIsTakenBack() throws {
        let (alice, bob, phone) = people()
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        func answer() throws -> [CallOutgoing<String>] {
            try bob.machine.send(
                .answer("a"), world.key("alice"), call: "call 1", as: .person, to: alice.id, now: world.now)
        }
        let wake = bob.machine.nextWake
        bob.machine.takeBack(try answer())
        #expect(bob.machine.nextWake == wake && wake != nil)
        world.post(try answer(), from: bob)
        world.deliverAll()
        #expect(alice.log == ["answer a"] && phone.log == ["offer o", "answered elsewhere"])
        #expect(alice.dropped.isEmpty && bob.machine.nextWake == nil)
    }

    /// The same for an offer to the server of a group call.
    @Test func aJoinThatWasNotSentIsTakenBack() throws {
        let (_, people) = group()
        let tablet = world.device("bob", 8)
        world.roles["alice"] = .participant
        world.send(.control("invitation", invites: true), from: people[0], to: "bob", as: .participant)
        world.deliverAll()
        let bob = people[1]
        func offer() throws -> [CallOutgoing<String>] {
            try bob.machine.send(.offer("bob"), world.key("server"), call: "call 1", as: .sfu, now: world.now)
        }
        bob.machine.takeBack(try offer())
        world.roles["bob"] = .client
        world.post(try offer(), from: bob)
        world.deliverAll()
        #expect(tablet.log == ["control invitation", "answered elsewhere"])
    }

    // MARK: Two callers

    /// Both call at the same time under one id, each with two devices: the call of Alice goes on, that of Bob ends.
    @Test(arguments: [false, true])
    func ofTwoWhoCallEachOtherOneIsCalled(_ isKeyFirst: Bool) {
        let (alice, bob, tablet) = people()
        let phone = world.device("alice", 4)
        for (device, other, call) in [(alice, "bob", "call 9"), (bob, "alice", "call 1")] {
            if isKeyFirst { world.send(.ciphertext("k"), from: device, to: other, call: call) }
            world.send(.offer("of \(device.user)"), from: device, to: other, call: call)
            world.send(.candidate("of \(device.user)"), from: device, to: other, call: call)
        }
        world.deliverAll()
        let alices = (isKeyFirst ? ["ciphertext k"] : []) + ["offer of alice", "candidate of alice"]
        let bobs = (isKeyFirst ? ["ciphertext k"] : []) + ["offer of bob", "candidate of bob"]
        #expect(bob.log == ["nobody answers"] + alices && tablet.log == alices)
        #expect(alice.log.isEmpty && phone.log == bobs + ["ended: userInitiatedUnanswered"])
        #expect(Set(alice.dropped) == [.otherCall])
        // Bob's own call is over, and he answers that of Alice.
        #expect(world.send(.offer("again"), from: bob, to: "alice", call: "call 1") == .noCall)
        world.send(.answer("b"), from: bob, to: "alice", call: "call 9", device: alice)
        world.deliverAll()
        #expect(alice.log == ["answer b"] && tablet.log.last == "answered elsewhere")
        world.end("userInitiated", by: alice, call: "call 9")
        world.deliverAll()
        #expect(bob.log.last == "ended: userInitiated")
        #expect(world.devices.allSatisfy { $0.machine.count == 0 })
    }

    /// The ids of the calls are one UUID as well: there is one call, in which Alice is the caller.
    @Test(arguments: [UInt64(1), 2, 3, 4, 5, 6, 7, 8])
    func twoCallsWithOneUUIDAreOneCall(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        for (device, other) in [(alice, "bob"), (bob, "alice")] {
            world.send(.ciphertext("k"), from: device, to: other)
            world.send(.offer("of \(device.user)"), from: device, to: other)
        }
        world.network.shuffle(using: &random)
        world.deliverAll()
        #expect(bob.log == ["ciphertext k", "offer of alice"] && alice.log == ["ciphertext k"], "seed \(seed)")
        world.pass(1)
        #expect(world.send(.answer("b"), from: bob, to: "alice", device: alice) == nil)
        world.deliverAll()
        #expect(alice.log == ["ciphertext k", "answer b"], "seed \(seed)")
    }

    /// A call that was answered, or that the other person has not begun, stays.
    @Test func anAnsweredCallGivesWayToNone() {
        let (alice, bob, tablet) = people()
        world.send(.offer("o"), from: bob, to: "alice")
        world.deliverAll()
        world.send(.candidate("early"), from: alice, to: "bob")
        world.send(.ciphertext("k"), from: alice, to: "bob")
        world.deliverAll()
        #expect(bob.log == ["candidate early", "ciphertext k"])
        world.send(.answer("a"), from: alice, to: "bob", device: bob)
        world.deliverAll()
        let phone = world.device("alice", 4)
        world.send(.offer("late"), from: phone, to: "bob", call: "call 2")
        world.deliverAll()
        #expect(bob.log == ["candidate early", "ciphertext k", "answer a"] && bob.dropped == [.otherCall])
        #expect(tablet.log == ["offer late"])
    }

    // MARK: Group calls

    /// A server and three participants.
    private func group() -> (CallWorld.Device, [CallWorld.Device]) {
        let server = world.device("server", 100)
        world.roles["server"] = .sfu
        let people = ["alice", "bob", "carol"].enumerated().map { world.device($0.element, UInt64($0.offset + 1)) }
        return (server, people)
    }

    private func join(_ device: CallWorld.Device, _ server: CallWorld.Device) {
        world.roles[device.user] = .client
        world.send(.offer(device.user), from: device, to: "server", call: "call of \(device.user)", as: .sfu)
        world.deliverAll()
        world.perform(device.machine.joined(world.key("").route), by: device)
        world.send(
            .answer("for \(device.user)"), from: server, to: device.user, call: "call of \(device.user)", as: .client,
            device: device)
        world.deliverAll()
        world.roles[device.user] = .participant
    }

    @Test func participantsJoinThroughTheServer() {
        let (server, people) = group()
        for person in people { join(person, server) }
        #expect(server.log == ["offer alice", "offer bob", "offer carol"])
        for person in people { #expect(person.log == ["answer for \(person.user)"]) }
        for sender in people {
            for recipient in people where recipient !== sender {
                world.send(
                    .ciphertext("key of \(sender.user)"), from: sender, to: recipient.user,
                    call: "call of \(sender.user)", as: .participant)
            }
        }
        world.deliverAll()
        for person in people {
            let keys = people.filter { $0 !== person }.map { "ciphertext key of \($0.user)" }
            #expect(Set(person.log.dropFirst()) == Set(keys) && person.log.count == 3)
        }
        // One leaves: the others know it, and receive nothing of it any more.
        world.end("userInitiated", by: people[0], call: "call of alice")
        world.deliverAll()
        #expect(people[1].log.last == "ended: userInitiated" && people[2].log.last == "ended: userInitiated")
        #expect(people[0].machine.count == 0)
        // It may come back.
        world.pass(1000)
        join(people[0], server)
        #expect(people[0].log.last == "answer for alice")
    }

    @Test func ciphertextsFromBeforeTheJoinAreHandedOverAfterIt() {
        let (server, people) = group()
        join(people[0], server)
        world.send(.ciphertext("early"), from: people[0], to: "bob", call: "call of alice", as: .participant)
        world.deliverAll()
        #expect(people[1].log.isEmpty)
        join(people[1], server)
        #expect(people[1].log.contains("ciphertext early"))
    }

    /// A key that comes while the offer to the server is on its way does not overtake those before it.
    @Test func ciphertextsFromBeforeTheJoinComeFirst() {
        let (server, people) = group()
        let (alice, bob) = (people[0], people[1])
        join(alice, server)
        func send(_ text: String) {
            world.send(.ciphertext(text), from: alice, to: "bob", call: "call of alice", as: .participant)
            world.deliverAll()
        }
        send("1")
        world.send(.offer("bob"), from: bob, to: "server", call: "call of bob", as: .sfu)
        send("2")
        #expect(bob.log.isEmpty)
        world.perform(bob.machine.joined(world.key("").route), by: bob)
        send("3")
        #expect(bob.log == ["ciphertext 1", "ciphertext 2", "ciphertext 3"])
    }

    /// Joining opens the side of Bob at Alice, a first message that of Carol; neither is a message from here.
    @Test func aSideThatOthersOpenedGetsAStreamWithItsFirstMessage() {
        let (server, people) = group()
        let alice = people[0]
        join(alice, server)
        world.send(.ciphertext("early"), from: alice, to: "bob", call: "call of alice", as: .participant)
        world.deliverAll()
        for person in people.dropFirst() { join(person, server) }
        world.send(.ciphertext("late"), from: alice, to: "carol", call: "call of alice", as: .participant)
        world.deliverAll()
        for person in people.dropFirst() {
            for number in 0..<2 {
                world.send(
                    .ciphertext("\(number) of \(person.user)"), from: person, to: "alice",
                    call: "call of \(person.user)", as: .participant)
            }
            let sent = world.network.map(\.message)
            #expect(sent.map(\.number) == [0, 1] && Set(sent.map(\.stream)).count == 1)
            #expect(sent.allSatisfy { $0.stream >= world.now.wall && $0.call == "call of \(person.user)" })
            world.deliverAll()
        }
        let log = ["bob", "carol"].flatMap { ["ciphertext 0 of \($0)", "ciphertext 1 of \($0)"] }
        #expect(alice.log == ["answer for alice"] + log)
        #expect(people.flatMap(\.dropped).isEmpty)
    }

    @Test func anInvitationRingsAndTheOtherDeviceStopsWhenOneJoins() {
        let (server, people) = group()
        let tablet = world.device("bob", 8)
        world.roles["alice"] = .participant
        world.send(.control("invitation", invites: true), from: people[0], to: "bob", as: .participant)
        world.deliverAll()
        #expect(people[1].log == ["control invitation"] && tablet.log == ["control invitation"])
        world.roles["bob"] = .client
        world.send(.offer("bob"), from: people[1], to: "server", as: .sfu)
        world.deliverAll()
        #expect(tablet.log == ["control invitation", "answered elsewhere"])
        #expect(server.log == ["offer bob"])
    }

    /// A server that is away: the person is told, and nothing of the call stays.
    @Test func aServerThatDoesNotAnswerHasNoCall() {
        let (server, people) = group()
        let (alice, bob) = (people[0], people[1])
        world.roles["alice"] = .client
        world.send(.offer("alice"), from: alice, to: "server", call: "call of alice", as: .sfu)
        world.perform(alice.machine.joined(world.key("").route), by: alice)
        world.network = []
        world.pass(times.answering - 1)
        #expect(alice.log.isEmpty)
        world.pass(1)
        #expect(alice.log == ["nobody answers"])
        #expect(world.network.map { CallWorld.text($0.message.content) } == ["end userInitiatedUnanswered"])
        world.deliverAll()
        #expect(alice.machine.count == 0 && alice.machine.nextWake == nil)
        // It may answer the same call when the person tries again.
        join(alice, server)
        #expect(alice.log == ["nobody answers", "answer for alice"])
        // One that has answered stays, also if a later offer has no answer.
        join(bob, server)
        world.roles["bob"] = .client
        world.send(.offer("more"), from: bob, to: "server", call: "call of bob", as: .sfu)
        world.pass(10 * times.answering)
        #expect(bob.log == ["answer for bob"] && bob.machine.nextWake == nil)
    }

    /// The person is in the call with one device, and is invited to it: the other device stops ringing.
    @Test func anInvitationToAJoinedCallRingsOnNoOtherDevice() {
        let (server, people) = group()
        let (alice, bob) = (people[0], people[1])
        let tablet = world.device("bob", 8)
        join(alice, server)
        join(bob, server)
        for number in 1...2 {
            world.send(
                .control("invitation \(number)", invites: true), from: alice, to: "bob", call: "call of alice",
                as: .participant)
            world.deliverAll()
        }
        #expect(bob.log == ["answer for bob", "control invitation 1", "control invitation 2"])
        #expect(tablet.log == ["control invitation 1", "answered elsewhere"])
        #expect(bob.machine.nextWake == nil && tablet.machine.nextWake == nil)
        // It is a participant: he is told when she leaves.
        world.end("userInitiated", by: alice, call: "call of alice")
        world.deliverAll()
        #expect(bob.log.last == "ended: userInitiated")
    }

    /// A person leaves with one device and comes back with another one at once.
    @Test func aParticipantComesBackWithAnotherDevice() {
        let (server, people) = group()
        let (alice, bob) = (people[0], people[1])
        let tablet = world.device("alice", 8)
        join(alice, server)
        join(bob, server)
        func exchange(_ device: CallWorld.Device, _ text: String) {
            world.send(.ciphertext(text), from: device, to: "bob", call: "call of alice", as: .participant)
            world.send(.ciphertext(text), from: bob, to: "alice", call: "call of bob", as: .participant)
            world.deliverAll()
        }
        exchange(alice, "1")
        world.end("userInitiated", by: alice, call: "call of alice")
        world.deliverAll()
        world.pass(1000)
        join(tablet, server)
        exchange(tablet, "2")
        #expect(server.log == ["offer alice", "offer bob", "ended: userInitiated", "offer alice"])
        #expect(tablet.log.contains("answer for alice") && tablet.log.last == "ciphertext 2")
        #expect(bob.log == ["answer for bob", "ciphertext 1", "ended: userInitiated", "ciphertext 2"])
        // What the first device has sent before stays old.
        world.end("userInitiated", by: tablet, call: "call of alice")
        world.deliverAll()
        let late = CallMessage(
            world.key("").route, call: "call of alice", role: .client, stream: 1, number: 0, .offer("late"), size: 1)
        world.deliver(.init(from: alice, to: server, message: late))
        #expect(server.log.last == "ended: userInitiated" && server.dropped == [.ended])
    }

    /// A device that has stopped without an end does not keep the person's other one out.
    @Test func anotherDeviceTakesAGroupCallOver() {
        let (server, people) = group()
        let alice = people[0]
        let tablet = world.device("alice", 8)
        join(alice, server)
        world.pass(1000)
        join(tablet, server)
        #expect(server.log == ["offer alice", "ended: failed", "offer alice"])
        #expect(tablet.log == ["answer for alice"])
        #expect(alice.log == ["answer for alice", "ended: auxiliaryDeviceAnswered"])
        #expect(alice.machine.count == 0 && server.machine.count == 1)
        // It comes back in the same way, and with nothing that it has sent before.
        world.pass(1000)
        join(alice, server)
        #expect(server.log.suffix(2) == ["ended: failed", "offer alice"])
        #expect(alice.log.last == "answer for alice" && tablet.log.last == "ended: auxiliaryDeviceAnswered")
    }

    /// The other device was told that the call was answered; it takes the call over later.
    @Test func aDeviceThatHasStoppedRingingMayJoin() {
        let (server, people) = group()
        let (alice, bob) = (people[0], people[1])
        let tablet = world.device("bob", 8)
        join(alice, server)
        world.send(
            .control("invitation", invites: true), from: alice, to: "bob", call: "call of alice", as: .participant)
        world.deliverAll()
        join(bob, server)
        #expect(tablet.log == ["control invitation", "answered elsewhere"])
        world.end("userInitiated", by: bob, call: "call of bob")
        world.deliverAll()
        world.pass(1000)
        join(tablet, server)
        world.send(.ciphertext("key"), from: alice, to: "bob", call: "call of alice", as: .participant)
        world.deliverAll()
        #expect(tablet.log.last == "ciphertext key")
    }

    /// Names that are equal as texts, and not byte by byte, are two accounts.
    @Test func accountsAreComparedByteByByte() {
        let (alice, zoe) = (world.device("alice", 1), world.device("zo\u{EB}", 2))
        let other = world.device("zoe\u{308}", 3)
        world.send(.offer("o"), from: alice, to: zoe.user)
        world.deliverAll()
        #expect(zoe.log == ["offer o"] && other.log.isEmpty)
        for content in [CallMessage<String>.Content.answer("forged"), .end(state: "userInitiated", caller: nil)] {
            let message = CallMessage(
                world.key("").route, call: "call 1", role: .person, stream: 1, number: 0, content, size: 1)
            world.deliver(.init(from: other, to: alice, message: message))
        }
        #expect(alice.log.isEmpty)
        world.send(.answer("a"), from: zoe, to: "alice", device: alice)
        world.deliverAll()
        #expect(alice.log == ["answer a"])
        #expect(CallRoute("zo\u{EB}") != CallRoute("zoe\u{308}"))
    }

    /// An offer has one answer, which provisional ones may precede.
    @Test func anOfferHasOneAnswer() {
        let (alice, bob) = (world.device("alice", 1), world.device("bob", 2))
        world.send(.offer("o"), from: alice, to: "bob")
        world.deliverAll()
        for (text, isFinal) in [("p1", false), ("p2", false), ("a", true), ("again", true), ("p3", false)] {
            world.send(.answer(text, isFinal: isFinal), from: bob, to: "alice", device: alice)
            world.deliverAll()
        }
        #expect(alice.log == ["answer p1", "answer p2", "answer a"] && alice.dropped == [.unexpected, .unexpected])
        world.send(.offer("more"), from: alice, to: "bob")
        world.deliverAll()
        world.send(.answer("b"), from: bob, to: "alice", device: alice)
        world.deliverAll()
        #expect(alice.log.last == "answer b")
    }

    @Test func aServerMakesNoOffersAndSendsNoCiphertexts() {
        let (server, people) = group()
        join(people[0], server)
        let known = people[0].log
        world.send(.offer("reversed"), from: server, to: "alice", call: "call of alice", as: .client)
        world.send(.ciphertext("key"), from: server, to: "alice", call: "call of alice", as: .client)
        world.deliverAll()
        #expect(people[0].log == known && people[0].dropped == [.unexpected, .unexpected])
    }

    @Test func participantsHaveALimit() {
        let (server, people) = group()
        join(people[0], server)
        var refused: [CallRefusal] = []
        for number in 0..<CallLimits.participants + 1 {
            let refusal = world.send(
                .ciphertext("k"), from: people[0], to: "p\(number)", call: "call of alice", as: .participant)
            if let refusal { refused.append(refusal) }
        }
        #expect(refused == [.limit])
    }

    // MARK: Chaos

    /// Random messages from anybody, in any order: the machine stays inside its limits, and rests in the end.
    @Test(arguments: [UInt64(1), 2, 3, 4, 5, 6])
    func randomMessagesLeaveNothingBehind(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let users = ["alice", "bob", "carol", "server"]
        let devices = users.enumerated().flatMap { place, user in
            (0..<2).map { world.device(user, UInt64(place * 10 + $0 + 1)) }
        }
        let roles: [CallRole] = [.person, .sfu, .participant, .client]
        for step in 0..<3000 {
            let device = devices[random.below(devices.count)]
            let contents: [CallMessage<String>.Content] = [
                .offer("\(step)"), .answer("\(step)"), .candidate("\(step)"), .ciphertext("\(step)"),
                .control("\(step)", invites: random.below(2) == 0),
            ]
            let call = "call \(random.below(3))"
            switch random.below(12) {
            case 0: world.end("failed", by: device, call: call)
            case 1: world.pass(Int64(random.below(8000)))
            case 2:
                world.network.shuffle(using: &random)
                world.network.removeLast(min(3, world.network.count))
            case 3...5: if !world.network.isEmpty { world.deliver(world.network.removeFirst()) }
            case 6:
                guard let transit = world.network.randomElement(using: &random) else { continue }
                var message = transit.message
                message.number = random.below(100)
                message.stream += Int64(random.below(3)) - 1
                message.role = random.below(3) == 0 ? nil : roles[random.below(4)]
                world.deliver(
                    .init(from: devices[random.below(devices.count)], to: transit.to, message: message))
            default:
                world.roles[device.user] = roles[random.below(4)]
                world.send(
                    contents[random.below(contents.count)], from: device, to: users[random.below(users.count)],
                    call: call, as: roles[random.below(4)])
            }
            #expect(device.machine.count <= CallLimits.sides)
        }
        world.network = []
        // What waited for an earlier message may begin a call after the first time, which at a server ends by the app alone.
        for _ in 0..<2 {
            for device in devices { for number in 0..<3 { world.end("failed", by: device, call: "call \(number)") } }
            for _ in 0..<40 { world.pass(times.gap) }
        }
        for device in devices {
            #expect(device.machine.count == 0, "seed \(seed)")
            #expect(device.machine.nextWake == nil, "seed \(seed)")
        }
    }
}
