import DeviceDirectory
import Envelope
import IRCCodec
import Protection
import RequestQueue
import Testing

@testable import IRCGateway

/// A sidecar's connection with a gateway in front, as a transcript.
@Suite struct FrontLinkTests {
    private var link = FrontLink()
    private static let second: Int64 = 1_000_000_000

    private func message(_ target: String) -> OutboundMessage {
        OutboundMessage(verb: "PRIVMSG", target: target, body: Body(text: [1]), clientLabel: nil, tags: [])
    }

    /// Sends a query; returns its number in the control plane.
    private mutating func ask(_ nick: String, at now: Int64, slot: OutboundLane.Ticket = 1) throws -> UInt32 {
        let line = try #require(link.ask(about: nick, for: .message(message(nick), at: slot), now: now).first)
        let number = try parsed(line).text(0)
        return try #require(number.flatMap { UInt32($0) })
    }

    private static func slot(_ question: FrontLink.Question?) -> OutboundLane.Ticket? {
        if case .message(_, let slot)? = question?.purpose { slot } else { nil }
    }

    @Test mutating func linesWaitUntilTheGatewayKnowsTheDevice() {
        #expect(!link.isAwaited(now: 0) && link.nextDeadline == nil)
        link.expectAcceptance(now: 0)
        #expect(link.isAwaited(now: 1) && link.nextDeadline == FrontLink.patience)
        let (first, second) = (link.accepted(), link.accepted())
        #expect(first && !second)
        #expect(link.isReady && !link.isAwaited(now: 1) && link.nextDeadline == nil)
        link.refused()
        #expect(link.isReady, "a refused query does not end the acceptance")
        link.expectAcceptance(now: 1)
        #expect(link.isReady, "the gateway may accept before the welcome of an outage has ended")
    }

    @Test(arguments: [false, true]) mutating func theWaitForTheGatewayEnds(_ isRefused: Bool) {
        link.expectAcceptance(now: 0)
        if isRefused {
            link.refused()
            #expect(!link.isAwaited(now: 1) && link.isUncertain, "a login may change the gateway's answer")
            #expect(link.nextDeadline == FrontLink.patience)
        }
        _ = link.expire(now: FrontLink.patience)
        #expect(!link.isAwaited(now: 1) && link.isAbsent && link.nextDeadline == nil)
    }

    /// The gateway is not trusted: its names are those that the server compares, or none.
    @Test func aNameOfAnAccountIsFoldedAndChecked() {
        #expect(FrontLink.account("Bob", .ascii) == .services("bob"))
        #expect(FrontLink.account("B[b", .ascii) == .services("b[b"))
        #expect(FrontLink.account("B[b", .rfc1459) == .services("b{b"))
        let long = String(repeating: "x", count: 201)
        for name in ["", "~1f", "own device", "a,b", "a\r\nb", "a\u{0}", "\u{FFFD}", long] {
            #expect(FrontLink.account(name, .ascii) == nil)
        }
    }

    @Test mutating func nothingIsAskedBeforeTheGatewayIsReady() {
        #expect(!link.asks(about: "bob", now: 0, limit: 9) && link.membersToAsk(["bob"], now: 0).isEmpty)
        _ = link.accepted()
        #expect(link.asks(about: "bob", now: 0, limit: 9) && link.membersToAsk(["bob"], now: 0) == ["bob"])
        #expect(!link.asks(about: "bob", now: 0, limit: 0))
    }

    /// In large rooms; else the gateway would refuse the queries of messages, which would then be sent without keys.
    @Test mutating func queriesAboutMembersLeaveRoomForThoseOfMessages() {
        _ = link.accepted()
        let strangers = Set((0..<300).map { ExactText("n\($0)") })
        let first = link.membersToAsk(strangers, now: 0)
        for nick in first { _ = link.ask(about: nick, for: .room, now: 0) }
        #expect(first.count == FrontLink.memberLimit && first.count < ClientDevice.questionLimit)
        #expect(link.membersToAsk(strangers, now: 1).isEmpty)
        #expect(link.asks(about: "bob", now: 1, limit: 512))
        #expect(link.membersToAsk(strangers, now: FrontLink.memberPeriod).count == FrontLink.memberLimit)
    }

    @Test mutating func anAnswerBelongsToItsQuery() throws {
        _ = link.accepted()
        let bob = try ask("bob", at: 0, slot: 5)
        let carol = try ask("carol", at: 0, slot: 6)
        #expect(link.membersToAsk(["bob", "dave", "ann"], now: 0) == ["ann", "dave"], "bob is asked about already")
        let (first, second) = (link.answered(carol), link.answered(carol))
        #expect(Self.slot(first) == 6 && second == nil)
        let answered = link.answered(bob)
        let ticket = link.startSessions(for: try #require(answered))
        let (started, again) = (link.sessionsStarted(ticket), link.sessionsStarted(ticket))
        #expect(Self.slot(started) == 5 && again == nil)
        #expect(link.membersToAsk(["bob"], now: 0) == ["bob"])
    }

    @Test mutating func aPersonWithoutKeysIsNotAskedAboutForAWhile() {
        _ = link.accepted()
        link.noteWithout("bob", now: 0)
        #expect(!link.asks(about: "bob", now: 29 * Self.second, limit: 9))
        #expect(link.membersToAsk(["bob", "carol"], now: 29 * Self.second) == ["carol"])
        #expect(link.asks(about: "carol", now: 0, limit: 9))
        #expect(link.asks(about: "bob", now: 30 * Self.second, limit: 9))
    }

    @Test mutating func aQueryExpiresAndItsLateAnswerIsNotExpected() throws {
        _ = link.accepted()
        let early = try ask("bob", at: 0, slot: 5)
        _ = try ask("carol", at: Self.second, slot: 6)
        #expect(link.nextDeadline == FrontLink.patience)
        let expired = link.expire(now: FrontLink.patience)
        #expect(expired.map(\.nick) == ["bob"])
        let late = link.answered(early)
        #expect(late == nil)
        #expect(link.membersToAsk(["bob", "carol"], now: FrontLink.patience) == ["bob"], "carol's answer may come")
        #expect(link.nextDeadline == FrontLink.patience + Self.second)
    }

    /// They must not be sent without the answer.
    @Test mutating func aLostGatewayReturnsAllWaitingMessages() throws {
        _ = link.accepted()
        let bob = try ask("bob", at: 0, slot: 5)
        _ = try ask("carol", at: 0, slot: 6)
        let answered = link.answered(bob)
        let ticket = link.startSessions(for: try #require(answered))
        let lost = link.lose()
        #expect(Set(lost.compactMap(Self.slot)) == [5, 6])
        let (again, started) = (link.lose(), link.sessionsStarted(ticket))
        #expect(!link.isReady && again.isEmpty && started == nil)
    }

    /// Without the gateway it is not known how they would go.
    @Test mutating func messagesWaitWhileAGatewayIsExpected() {
        let (unexpected, nothing) = (link.isUncertain, link.lose())
        #expect(!unexpected && nothing.isEmpty && link.isAbsent, "a bare server stays one")
        link.expectAcceptance(now: 0)
        #expect(link.isUncertain && !link.isAbsent)
        let kept = [link.keep(message("bob"), at: 3, limit: 1), link.keep(message("bob"), at: 4, limit: 1)]
        #expect(kept == [true, false] && link.waitingTargets == ["bob"])
        _ = link.lose()
        #expect(link.isUncertain && link.waitingTargets == ["bob"] && link.nextDeadline == nil)
        link.expectAcceptance(now: 1)
        let isMissing = link.isMissing()
        _ = link.accepted()
        let slots = link.takeDeferred().map(\.slot)
        #expect(!isMissing && !link.isUncertain && slots == [3] && link.takeDeferred().isEmpty)
        _ = link.lose()
        let (missing, again) = (link.isMissing(), link.isMissing())
        #expect(missing && !again && link.isAbsent)
    }

    @Test mutating func keysAreMadeAFewTimesInAMinute() {
        let challenge = FrontLink.Challenge(nonce: [1], account: "alice")
        for _ in 0..<FrontLink.keysLimit { #expect(link.challenged(challenge, now: 1) == true) }
        #expect(link.challenged(FrontLink.Challenge(nonce: [2], account: "alice"), now: 1) == false)
        #expect(link.challenge?.nonce == [1])
        let (early, late) = (link.mayMakeKeys(now: 2), link.mayMakeKeys(now: 1 + FrontLink.keysPeriod))
        #expect(!early && late)
    }
}
