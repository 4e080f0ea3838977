import Envelope
import IRCCodec
import NIOCore
import Protection
import RequestQueue
import StorePort
import Testing

@testable import IRCGateway

/// The outbound lane as a transcript: what the vault and the backend did, and what is sent next.
@Suite struct OutboundLaneTests {
    private var lane = OutboundLane(.unlimited)

    private func request(_ id: UInt64, to peer: String = "bob", next: Int = 0) -> OutboundRequest {
        var entry = OutboundRequest(
            request: Request(
                id: id, account: "alice", peer: peer, target: peer, verb: "PRIVMSG", bodies: [Array("\(id)".utf8)],
                acceptedAt: 1),
            body: nil, clientLabel: "label \(id)")
        entry.next = next
        return entry
    }

    /// The ids of the requests in the lane, in order; lines are 0.
    private mutating func sent() -> [UInt64] {
        var ids: [UInt64] = []
        while let entry = lane.first {
            ids.append(entry.asRequest?.request.id ?? 0)
            lane.popFirst()
        }
        return ids
    }

    private func seal(_ target: String) -> PendingSeal {
        PendingSeal(target: target, clientLabel: nil, body: Body(text: []), peer: .services(target), verb: "PRIVMSG")
    }

    // MARK: Order

    @Test mutating func nothingOvertakesAMessageThatIsBeingSealed() {
        let ticket = lane.beginSeal(seal("bob"))
        lane.append(.line(ByteBuffer(string: "PING\r\n")))
        #expect(sent() == [] && !lane.isSettled)
        #expect(lane.endSeal(ticket)?.target == "bob")
        #expect(lane.endSeal(ticket) == nil, "answered once")
        lane.resolve(ticket, with: [.request(request(1))])
        #expect(sent() == [1, 0])
    }

    @Test mutating func aMessageThatWasNotSealedHoldsNothingUp() {
        let ticket = lane.beginSeal(seal("bob"))
        lane.append(.request(request(2)))
        #expect(lane.cancelSeal(ticket)?.target == "bob" && lane.cancelSeal(ticket) == nil)
        #expect(sent() == [2] && lane.isSettled)
    }

    @Test mutating func requestsOfAnAccountComeBeforeWhatWasWrittenInAnOutage() {
        let written = lane.beginSeal(seal("bob"))
        let first = lane.reserveFirst()
        lane.beginRecovery(at: first, lines: 9)
        lane.resolve(written, with: [.request(request(5))])
        #expect(sent() == [])
        // Request 5 was being sealed when the backend was lost: the vault returns it too.
        #expect(lane.endRecovery(first, returned: [3, 5])?.lines == 9)
        #expect(lane.endRecovery(first, returned: []) == nil, "ended once")
        lane.resolve(first, with: [.request(request(3)), .request(request(5))])
        #expect(sent() == [3, 5])
    }

    /// Other people cause them.
    @Test mutating func linesBehindTheLaneDelayNothing() {
        lane = OutboundLane(Pacer.Limit(burst: 1, linesPerSecond: 1))
        for number in 0..<300 where !lane.isFullBehind { lane.appendBehind(ByteBuffer(string: "\(number)")) }
        #expect(lane.isFullBehind && lane.isEmpty && lane.isSettled && lane.count == 0)
        #expect(lane.firstBehind == ByteBuffer(string: "0"))
        #expect(lane.spend(1, now: 0) && lane.nextWake(now: 0).map { $0 > 0 } == true)
        lane.append(.line(ByteBuffer(string: "own")))
        #expect(lane.firstBehind == nil)
        lane.popFirst()
        lane.popBehind()
        #expect(lane.firstBehind == ByteBuffer(string: "1") && !lane.isFullBehind)
        // A message that is being sealed is not delayed either, and nothing waits for it.
        _ = lane.beginSeal(seal("bob"))
        #expect(lane.firstBehind != nil)
    }

    // MARK: Held requests

    @Test mutating func heldRequestsHoldUpNobodyElseAndAreNotOvertaken() {
        lane.hold(request(1), now: 0)
        #expect(lane.isHolding(for: "bob") && !lane.isHolding(for: "carol"))
        #expect(lane.isBehindHeld(request(2).request) && !lane.isBehindHeld(request(2, to: "carol").request))
        // One of which a line is sent stays in front; a later one to the same recipient goes behind the held one.
        lane.append(.request(request(3, to: "carol", next: 1)))
        lane.append(.request(request(4)))
        lane.append(.request(request(5, to: "carol")))
        #expect(lane.releaseHeld(now: 1) { _ in .reachable }.isEmpty)
        #expect(sent() == [3, 1, 4, 5])
        #expect(!lane.isHolding(for: "bob"))
    }

    @Test mutating func aRecipientWhoDoesNotComeBackLetsRequestsExpire() {
        lane.hold(request(1), now: 0)
        lane.hold(request(2, to: "carol"), now: 0)
        #expect(lane.releaseHeld(now: 59_000_000_000) { _ in .unreachable }.isEmpty)
        let expired = lane.releaseHeld(now: 60_000_000_000) { $0.request.peer == "carol" ? .reachable : .unreachable }
        #expect(expired.map(\.request.id) == [1])
        #expect(sent() == [2])
        #expect(lane.count == 0)
    }

    /// Also the requests behind one that an operator holds wait, and their time does not run.
    @Test mutating func anOperatorStopsLaterRequestsToTheSameRecipient() {
        for id: UInt64 in 1...2 { lane.hold(request(id), now: 0) }
        let stopsFirst: (OutboundRequest) -> OutboundLane.Reach = { $0.request.id == 1 ? .stopped : .reachable }
        #expect(lane.releaseHeld(now: 90_000_000_000, stopsFirst).isEmpty)
        #expect(sent() == [])
        #expect(lane.releaseHeld(now: 149_000_000_000) { _ in .unreachable }.isEmpty)
        #expect(lane.releaseHeld(now: 150_000_000_000) { _ in .unreachable }.map(\.request.id) == [1, 2])
    }

    @Test mutating func nothingIsReleasedBeforeTheVaultHasReturnedOlderRequests() {
        lane.hold(request(7), now: 0)
        let ticket = lane.reserve()
        lane.beginRecovery(at: ticket, lines: 1)
        #expect(lane.releaseHeld(now: 1) { _ in .reachable }.isEmpty)
        #expect(lane.endRecovery(ticket, returned: [7])?.lines == 1, "it is among the returned ones")
        lane.resolve(ticket, with: [.request(request(7))])
        #expect(lane.releaseHeld(now: 1) { _ in .reachable }.isEmpty)
        #expect(sent() == [7])
    }

    @Test mutating func anOperatorDropsARequestWhereverItWaits() {
        lane.hold(request(1), now: 0)
        lane.append(.request(request(2)))
        #expect(lane.drop(1)?.clientLabel == "label 1" && lane.drop(2)?.clientLabel == "label 2")
        #expect(lane.drop(3) == nil && lane.count == 0)
    }

    @Test mutating func aLogoutRemovesWhatWasNotBegun() {
        lane.hold(request(1), now: 0)
        lane.append(.request(request(2, next: 1)))
        lane.append(.request(request(3)))
        lane.removeUnsent { _ in true }
        #expect(sent() == [2])
    }

    @Test mutating func anOutageTakesBackWhatIsNotAcknowledged() {
        lane.hold(request(3), now: 0)
        lane.append(.request(request(2)))
        lane.append(.line(ByteBuffer(string: "AWAY\r\n")))
        for id: UInt64 in [1, 4] {
            lane.outstanding.begin(.init(outbound: request(id), target: "t\(id)", isLabelled: false, at: 0))
        }
        #expect(lane.outstanding.refused(4) == true)
        #expect(lane.takeBack { $0.request.id > 1 }.map(\.request.id) == [1, 2, 3])
        #expect(sent() == [0] && lane.outstanding.isEmpty && lane.count == 0)
        // Meanwhile one is sealed. The client's labels are still known when the vault returns the requests.
        let first = lane.reserveFirst()
        lane.beginRecovery(at: first, lines: 9)
        lane.append(.request(request(5)))
        let known = lane.endRecovery(first, returned: [2, 3, 5, 6])?.known
        #expect(known?.keys.sorted() == [2, 3, 5] && known?[5]?.clientLabel == "label 5")
        lane.resolve(first, with: [])
        #expect(sent() == [])
        let again = lane.reserve()
        lane.beginRecovery(at: again, lines: 9)
        #expect(lane.endRecovery(again, returned: [2])?.known.isEmpty == true)
    }

    @Test mutating func theLaneIsLookedAtAgainWhenSomethingWaits() {
        #expect(lane.nextWake(now: 100) == nil)
        lane.hold(request(1), now: 100)
        #expect(lane.nextWake(now: 100) == 250_000_100)
        lane.append(.request(request(2)))
        #expect(lane.nextWake(now: 100) == 5_000_100)
    }
}

/// Requests that the backend has not acknowledged, alone.
@Suite struct OutstandingRequestTests {
    private var requests = OutstandingRequests()

    private mutating func begin(_ id: UInt64, target: String = "bob", lines: Int = 1, isLabelled: Bool) {
        let request = Request(
            id: id, account: "alice", peer: target, target: target, verb: "PRIVMSG",
            bodies: (0..<lines).map { Array("\(id) \($0)".utf8) }, acceptedAt: 1)
        let outbound = OutboundRequest(request: request, body: nil, clientLabel: nil)
        requests.begin(.init(outbound: outbound, target: target, isLabelled: isLabelled, at: 0))
    }

    @Test mutating func aRequestIsCompleteWithTheEchoOfItsLastLine() {
        begin(1, lines: 2, isLabelled: true)
        let (first, second) = (requests.echoed(1), requests.echoed(1))
        #expect(!first && second)
        let other = requests.echoed(9)
        #expect(!other, "no such request")
        let (ended, again) = (requests.end(1), requests.end(1))
        #expect(ended?.outbound.request.id == 1 && again == nil)
    }

    /// Error numerics name the target only.
    @Test mutating func oneUnlabelledRequestToATargetAtATime() {
        begin(1, isLabelled: false)
        #expect(requests.isBusy("bob") && !requests.isBusy("carol"))
        #expect(requests.unlabelled("bob") == 1 && requests.unlabelled(body: Array("1 0".utf8)) == 1)
        begin(2, target: "carol", isLabelled: true)
        #expect(!requests.isBusy("carol") && requests.unlabelled(body: Array("2 0".utf8)) == nil)
        requests.end(1)
        #expect(!requests.isBusy("bob"))
    }

    @Test mutating func aRefusalCountsOnce() {
        begin(1, isLabelled: false)
        #expect(requests.answered(1, numeric: 404) && !requests.answered(1, numeric: 404))
        #expect(requests.refused(1) && !requests.refused(1))
        #expect(requests.isBusy("bob") && requests.isSettled, "its PONG is still to come, and nobody waits for it")
        #expect(requests.end(1)?.failed == true)
        begin(2, isLabelled: true)
        #expect(requests.refused(2) && requests[2] == nil)
        let (refused, answered) = (requests.refused(3), requests.answered(3, numeric: 404))
        #expect(!refused && !answered)
    }

    @Test mutating func aBatchIsFoundByItsReference() {
        begin(1, isLabelled: true)
        requests.beginBatch("abc", of: 1)
        #expect(requests.request(ofBatch: "abc") == 1 && requests.request(ofBatch: "def") == nil)
        #expect(requests.endBatch("abc") && !requests.endBatch("abc"))
    }

    /// A backend that ends no batch fills no memory.
    @Test mutating func openBatchesAreLimited() {
        for number in 0...OutstandingRequests.batchLimit { requests.beginBatch("\(number)", of: 1) }
        let last = "\(OutstandingRequests.batchLimit)"
        #expect(requests.request(ofBatch: "0") == 1 && requests.request(ofBatch: last) == nil)
        let isEnded = requests.endBatch("0")
        requests.beginBatch(last, of: 1)
        #expect(isEnded && requests.request(ofBatch: last) == 1)
    }

    @Test mutating func theLastPingIsAwaitedAtAStop() {
        requests.askForLastPong()
        #expect(!requests.isSettled && requests.isEmpty)
        requests.lastPong()
        #expect(requests.isSettled)
    }
}

/// The inbound lane as a transcript.
@Suite struct InboundLaneTests {
    private var lane = InboundLane()

    private func line(_ text: String) -> InboundEntry { InboundEntry(line: ByteBuffer(string: text)) }

    private mutating func shown() -> [String] {
        var lines: [String] = []
        while let entry = lane.popFirst() { lines.append(String(buffer: entry.line)) }
        return lines
    }

    private func copy() throws -> PendingCopy {
        PendingCopy(
            line: try parsed(":bob!b@h PRIVMSG #room :x"), raw: ByteBuffer(),
            context: OpeningContext(account: .services("alice")))
    }

    private func opening(_ ticket: UInt64) -> PendingOpen {
        PendingOpen(
            tags: [], source: "bob!b@h", sourceNick: "bob", verb: "PRIVMSG", target: "alice",
            job: OpenJob(
                connection: ConnectionID(1), ticket: ticket, account: .services("alice"),
                recipients: [.services("alice")], senders: [.services("bob")], envelope: [1], lineHead: []))
    }

    /// What the store does not take is tried again for a while, and the lines behind it wait.
    @Test mutating func anOpeningThatIsNotStoredIsTriedAgain() {
        let tickets = [lane.reserve(), lane.reserve()]
        for ticket in tickets {
            let isSent = lane.beginOpening(opening(ticket), at: ticket, now: 0)
            #expect(isSent)
        }
        lane.append(line("later"))
        #expect(lane.retryAt == nil && lane.dueRetries(now: 0).isEmpty)
        var (now, pause, tries) = (Int64(1_000), InboundLane.retryPause, 0)
        // The second one is answered first, as after jobs of two batches.
        while tickets.reversed().allSatisfy({ lane.isTriedAgain($0, now: now) }) {
            #expect(lane.retryAt == now + pause)
            #expect(lane.dueRetries(now: now + pause - 1).isEmpty)
            now += pause
            pause = min(pause * 2, InboundLane.longestRetryPause)
            #expect(lane.dueRetries(now: now).map(\.ticket) == tickets)
            #expect(lane.retryAt == nil && lane.dueRetries(now: now).isEmpty)
            tries += 1
        }
        #expect(now - 1_000 >= InboundLane.retryLimit && tries < 20 && lane.isRetrying)
        #expect(shown() == [] && !lane.isTriedAgain(99, now: now))
        for ticket in tickets {
            #expect(lane.endOpening(ticket) != nil)
            lane.resolve(ticket, with: [line("not stored")])
        }
        #expect(shown() == ["not stored", "not stored", "later"])
    }

    /// An envelope that is opened before an earlier one looks like a gap.
    @Test mutating func anOpeningWaitsBehindOneThatIsTriedAgain() {
        let (first, second, third) = (lane.reserve(), lane.reserve(), lane.reserve())
        _ = lane.beginOpening(opening(first), at: first, now: 0)
        let isTried = lane.isTriedAgain(first, now: 0)
        let isSecondSent = lane.beginOpening(opening(second), at: second, now: 1)
        #expect(isTried && !isSecondSent && lane.retryAt == InboundLane.retryPause)
        let jobs = lane.dueRetries(now: InboundLane.retryPause)
        #expect(jobs.map(\.ticket) == [first, second])
        // The vault has both, and may refuse them again.
        let isThirdSent = lane.beginOpening(opening(third), at: third, now: InboundLane.retryPause)
        #expect(!isThirdSent && lane.retryAt == 3 * InboundLane.retryPause)
        for ticket in [first, second] { #expect(lane.endOpening(ticket) != nil) }
        #expect(lane.dueRetries(now: 3 * InboundLane.retryPause).map(\.ticket) == [third])
        #expect(lane.endOpening(third) != nil && !lane.isRetrying)
        let last = lane.reserve()
        let isLastSent = lane.beginOpening(opening(last), at: last, now: 0)
        #expect(isLastSent)
    }

    @Test mutating func aLineWaitsForTheEnvelopeBeforeIt() {
        let ticket = lane.reserve()
        _ = lane.beginOpening(opening(ticket), at: ticket, now: 0)
        lane.append(line("later"))
        #expect(shown() == [] && lane.count == 2)
        #expect(lane.endOpening(ticket)?.sourceNick == "bob" && lane.endOpening(ticket) == nil)
        lane.resolve(ticket, with: [line("opened")])
        #expect(shown() == ["opened", "later"] && lane.isEmpty)
    }

    /// The vault opens and stores the messages of a room in one order.
    @Test mutating func messagesBehindACopyArePostponed() throws {
        let copied = lane.reserve()
        #expect(!lane.awaitsCopies && lane.nextPostponed() == nil)
        lane.awaitCopy(try copy(), at: copied)
        let behind = [lane.reserve(), lane.reserve()]
        for ticket in behind {
            lane.postpone(PostponedOpening(ticket: ticket, envelope: [1], copy: try copy()))
        }
        #expect(lane.awaitsCopies && lane.nextPostponed() == nil)
        #expect(lane.endAwaiting(copied) != nil && lane.endAwaiting(copied) == nil)
        #expect(lane.nextPostponed()?.ticket == behind[0])
        // The first of them waits for a copy in its turn.
        lane.awaitCopy(try copy(), at: behind[0])
        #expect(lane.nextPostponed() == nil)
        _ = lane.endAwaiting(behind[0])
        #expect(lane.nextPostponed()?.ticket == behind[1] && lane.nextPostponed() == nil)
    }

    @Test mutating func linesOfARoomWaitUntilTheClientIsThere() {
        func recovered(_ text: String, room: String?) -> RecoveredLine {
            RecoveredLine(sequence: 1, line: Array(text.utf8), room: room)
        }
        let ticket = lane.reserve()
        let lines = [
            recovered("direct", room: nil), recovered("one", room: "#one"), recovered("two", room: "#two"),
            recovered("two again", room: "#two"),
        ]
        lane.recovered(lines, at: ticket) { $0 == "#one" }
        #expect(shown() == ["direct\r\n", "one\r\n"])
        lane.joined("#three")
        #expect(shown() == [])
        lane.joined("#two")
        lane.joined("#two")
        #expect(shown() == ["two\r\n", "two again\r\n"])
    }
}
