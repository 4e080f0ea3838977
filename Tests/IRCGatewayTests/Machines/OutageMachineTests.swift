import IRCCodec
import Protection
import Reports
import RequestQueue
import Testing

@testable import IRCGateway

/// An outage as a transcript: what the backend did, and what the connection does next.
@Suite struct OutageMachineTests {
    private var outage = Outage(rooms: ["#room"], ticket: 7)

    @Test mutating func aLoginIsRepeatedBeforeTheRegistrationEnds() {
        outage.reached()
        #expect(outage.loginAsked() == .nothing, "the capabilities are not known yet")
        #expect(outage.negotiated(repeatsLogin: true, hasLogin: true) == .authenticate)
        #expect(outage.negotiated(repeatsLogin: true, hasLogin: true) == .nothing, "a late answer to CAP")
        #expect(outage.loginAsked() == .sendLogin)
        outage.loggedIn(isOwn: true)
        #expect(outage.loginAccepted() == .endNegotiation)
        #expect(outage.loginAsked() == .nothing)
        #expect(outage.welcomeEnded(needsLogin: true) == .nothing, "nobody has been welcomed")
        outage.welcomed()
        #expect(outage.welcomeEnded(needsLogin: true) == .resume)
    }

    @Test mutating func aConnectionWithoutALoginIsRegisteredAtOnce() {
        outage.reached()
        #expect(outage.negotiated(repeatsLogin: false, hasLogin: false) == .endNegotiation)
        outage.welcomed()
        #expect(outage.welcomeEnded(needsLogin: false) == .resume)
    }

    /// Messages of one account must not be sent under another.
    @Test mutating func anotherAccountDoesNotResume() {
        outage.reached()
        _ = outage.negotiated(repeatsLogin: true, hasLogin: true)
        outage.loggedIn(isOwn: false)
        _ = outage.loginAccepted()
        outage.welcomed()
        #expect(outage.welcomeEnded(needsLogin: true) == .end(Notices.loginRefused))
    }

    /// An earlier connection's login proves nothing on a later one.
    @Test mutating func aLoginDoesNotOutliveItsConnection() {
        outage.reached()
        outage.loggedIn(isOwn: true)
        outage.lost()
        outage.reached()
        outage.welcomed()
        #expect(outage.welcomeEnded(needsLogin: true) == .end(Notices.loginRefused))
    }

    @Test mutating func aBackendWithoutServicesIsTriedAgain() {
        for _ in 1..<Outage.absences {
            outage.reached()
            #expect(!outage.awaitsServices)
            #expect(outage.negotiated(repeatsLogin: true, hasLogin: false) == .reconnect)
            #expect(outage.awaitsServices)
            outage.lost()
            #expect(outage.awaitsServices, "the pause is chosen after the connection has closed")
        }
        outage.reached()
        #expect(outage.negotiated(repeatsLogin: true, hasLogin: false) == .end(Notices.loginRefused))
    }

    @Test mutating func aRefusedLoginIsTriedAgainAFewTimes() {
        for _ in 1..<Outage.loginRefusals {
            outage.reached()
            #expect(outage.loginRefused() == .reconnect)
            outage.lost()
        }
        outage.reached()
        #expect(outage.loginRefused() == .end(Notices.loginRefused))
    }

    @Test mutating func aTakenNickHasOthersOnEachConnection() {
        for _ in 0..<2 {
            outage.reached()
            for attempt in 1...Outage.nickAttempts { #expect(outage.nickRefused() == .tryNick(attempt: attempt)) }
            #expect(outage.nickRefused() == .reconnect)
            outage.lost()
        }
    }

    @Test mutating func aBackendThatLetsNobodyInEndsIt() {
        outage.reached()
        #expect(outage.registrationRefused() == .end(Notices.registrationRefused))
    }

    /// Lines of a connection that was given up may still arrive.
    @Test mutating func nothingHappensWithoutAConnection() {
        #expect(outage.negotiated(repeatsLogin: true, hasLogin: true) == .nothing)
        #expect(outage.loginAsked() == .nothing && outage.loginAccepted() == .nothing)
        #expect(outage.loginRefused() == .nothing && outage.nickRefused() == .nothing)
        #expect(outage.registrationRefused() == .nothing && outage.welcomeEnded(needsLogin: false) == .nothing)
    }
}

/// The relation with the backend, alone.
@Suite struct BackendPhaseTests {
    private var phase = BackendPhase()

    @Test mutating func aConnectionIsRegisteredOnce() {
        #expect(phase.isOpen && !phase.isRegistered)
        #expect(phase.register() && !phase.register())
        #expect(phase.isOpen && phase.isRegistered)
    }

    @Test mutating func anOutageKeepsTheRegistration() {
        _ = phase.register()
        let isIgnored = phase.inOutage { $0.reached() } == nil
        #expect(isIgnored)
        phase.suspend(Outage(rooms: ["#room"], ticket: 7))
        #expect(phase.isSuspended && phase.isRegistered && !phase.isOpen && !phase.isClosed)
        #expect(phase.inOutage { $0.nickRefused() } == .nothing)
        phase.inOutage { $0.reached() }
        #expect(phase.inOutage { $0.nickRefused() } == .tryNick(attempt: 1), "the machine is changed in place")
        #expect(phase.resume()?.rooms == ["#room"])
        #expect(phase.isOpen && phase.resume() == nil)
    }

    @Test(arguments: [false, true]) mutating func theEndIsFinal(_ isRegistered: Bool) {
        if isRegistered { _ = phase.register() }
        phase.close()
        #expect(phase.isClosed && !phase.isOpen && phase.isRegistered == isRegistered)
        #expect(!phase.register() && phase.isClosed)
    }
}

/// What is repeated after an outage, alone.
@Suite struct RestorationTests {
    private var restoration = Restoration(rooms: ["#room", "#full"], verbs: [.away, .mode], at: 1_000)

    private mutating func answer(_ text: String, isOwn: Bool = false) throws -> Restoration.Answer {
        restoration.answer(try parsed(text), nick: "alice", isOwn: isOwn, .ascii)
    }

    @Test mutating func answersThatTheClientHasSeenAreHidden() throws {
        #expect(try answer(":srv 306 alice :away") == .hidden)
        #expect(try answer(":srv 306 alice :away") == .unrelated, "answered once")
        #expect(try answer(":srv MODE bob :+i") == .unrelated)
        #expect(try answer(":alice MODE alice :+i") == .hidden)
        #expect(try answer(":alice!a@h JOIN #room", isOwn: true) == .hidden)
        #expect(try answer(":bob!b@h JOIN #room") == .unrelated)
        #expect(try answer(":alice!a@h JOIN #other", isOwn: true) == .unrelated)
        #expect(try answer(":srv 353 alice = #room :alice bob") == .hidden)
        #expect(try answer(":srv 353 alice = #other :alice bob") == .unrelated)
        #expect(try answer(":srv 482 alice #room :not an operator") == .unrelated, "the client is in the room")
        #expect(try answer(":srv 366 alice #room :end") == .hidden)
        #expect(try answer(":srv 353 alice = #room :alice bob") == .unrelated, "the room is complete")
        #expect(!restoration.isSettled)
        #expect(try answer(":srv 471 alice #full :full") == .refused(room: "#full"))
        #expect(restoration.isSettled)
    }

    @Test mutating func aRoomThatTheClientLeavesIsNotJoinedAgain() throws {
        restoration.remove("#room")
        #expect(try answer(":srv 366 alice #room :end") == .unrelated)
        #expect(restoration.rooms == ["#full"])
    }

    @Test mutating func roomsAreGivenUpInTime() throws {
        let end = 1_000 + Restoration.joinPatience
        #expect(restoration.deadline == end)
        #expect(try answer(":alice!a@h JOIN #room", isOwn: true) == .hidden)
        let (early, late) = (restoration.expire(now: end - 1), restoration.expire(now: end))
        #expect(early == [] && late == ["#full"], "the client is in the other one")
        #expect(restoration.rooms.isEmpty && restoration.deadline == nil)
    }

    @Test func membersAreAwaitedForAWhile() {
        #expect(restoration.awaitsMembers(now: 1_000) && restoration.awaitsMembers(now: 30_000_000_000))
        #expect(!restoration.awaitsMembers(now: 36_000_001_000))
        #expect(!Restoration().awaitsMembers(now: 0), "there was no outage")
    }
}
