import Devices
import Envelope
import IRCCodec
import NIOCore
import Protection
import RequestQueue
import Testing

@testable import IRCGateway

/// The identity of a connection, alone.
@Suite struct ConnectionIdentityTests {
    private static let id = ConnectionID(7)
    private var identity = ConnectionIdentity(id: Self.id, account: .connection(7))

    @Test mutating func aLoginLeavesNothingBehindBeforeTheRegistration() {
        let change = identity.loggedIn("Alice", isRegistered: false)
        #expect(change == ConnectionIdentity.AccountChange())
        #expect(identity.accounts == [.services("alice")])
        let again = identity.loggedIn("ALICE", isRegistered: true)
        #expect(again == nil)
    }

    @Test mutating func envelopesForEarlierAccountsAreStillExpected() {
        let first = identity.loggedIn("alice", isRegistered: true)
        let second = identity.loggedIn("bob", isRegistered: true)
        #expect(first?.left == nil && second?.left == .services("alice"))
        #expect(identity.accounts == [.services("bob"), .services("alice"), .connection(7)])
    }

    /// Nobody who logs out may be taken for the same person later.
    @Test mutating func eachLogoutGivesANewAccount() {
        let none = identity.loggedOut(isRegistered: true)
        _ = identity.loggedIn("alice", isRegistered: true)
        let change = identity.loggedOut(isRegistered: true)
        #expect(none == nil && change?.left == .services("alice"))
        #expect(identity.account == .connection(7, logouts: 1) && identity.account != .connection(7))
    }

    @Test mutating func earlierAccountsAreLimited() {
        var forgotten: [AccountID] = []
        for number in 0...ConnectionIdentity.earlierAccounts {
            if let gone = identity.loggedIn("a\(number)", isRegistered: true)?.forgotten { forgotten.append(gone) }
        }
        #expect(forgotten == [.connection(7)], "it has no name under which its messages could wait")
        #expect(identity.accounts.count == 1 + ConnectionIdentity.earlierAccounts)
    }

    @Test mutating func namesAreComparedAsTheServerDoes() throws {
        identity.renamed(to: "Al[ce")
        #expect(identity.isSelf(try parsed(":al{ce!a@h JOIN #Room")) && identity.isOwn("al{ce"))
        #expect(!identity.isSelf(try parsed(":alice!a@h JOIN #Room")))
        _ = identity.absorb(try parsed(":srv 005 al STATUSMSG=@+ :are supported"))
        #expect(identity.room("@#Room")?.name == "#room" && identity.room("@#Room")?.status == "@")
        #expect(identity.room("alice") == nil)
        let (changed, unchanged) = (
            identity.absorb(try parsed(":srv 005 al CASEMAPPING=ascii :are supported")),
            identity.absorb(try parsed(":srv 005 al CASEMAPPING=ascii :are supported"))
        )
        #expect(changed && !unchanged)
        #expect(!identity.isSelf(try parsed(":al{ce!a@h JOIN #Room")) && identity.isOwn("al[ce"))
    }

    /// Devices are stored under names of accounts, so these do not depend on what is expected.
    @Test mutating func whatTheServerDoesNotNameIsAsInTheRFC() throws {
        identity = ConnectionIdentity(id: Self.id, account: .connection(7), caseMapping: .ascii)
        identity.renamed(to: "Al[ce")
        _ = identity.loggedIn("Al[ce", isRegistered: false)
        #expect(identity.foldedNick == "al[ce" && identity.account == .connection(7))
        let first = identity.absorb(try parsed(":srv 005 al CHANTYPES=# :are supported"))
        let early = identity.takeUndecided()
        let changes = try [":srv 376 al :End of MOTD", ":srv 422 al :No MOTD"].map {
            identity.absorb(try parsed($0))
        }
        #expect(!first && early == nil && changes == [true, false] && identity.foldedNick == "al{ce")
        let (late, again) = (identity.takeUndecided(), identity.takeUndecided())
        #expect(late == "Al[ce" && again == nil)
        _ = identity.loggedIn("Al[ce", isRegistered: true)
        #expect(identity.account == .services("al{ce"))
    }

    /// Two names that are one account on some servers are two on others.
    @Test(arguments: ["ascii", "rfc1459"]) mutating func aLoginWaitsForTheMappingThatDecides(_ mapping: String) throws {
        let change = identity.loggedIn("Al[ce", isRegistered: false)
        #expect(change == nil && identity.account == .connection(7))
        _ = identity.absorb(try parsed(":srv 005 al CASEMAPPING=\(mapping) :are supported"))
        let taken = identity.takeUndecided()
        _ = identity.loggedIn(try #require(taken), isRegistered: true)
        #expect(identity.account == .services(mapping == "ascii" ? "al[ce" : "al{ce"))
        // The next one is decided at once.
        _ = identity.loggedIn("B[b", isRegistered: true)
        #expect(identity.account == .services(mapping == "ascii" ? "b[b" : "b{b"))
    }

    /// The names that it compares are not known either.
    @Test mutating func noLoginIsGuessedUnderAnUnknownMapping() throws {
        _ = identity.loggedIn("alice", isRegistered: false)
        let change = identity.loggedIn("Al[ce", isRegistered: false)
        #expect(change?.left == .services("alice") && identity.account == .connection(7, logouts: 1))
        for line in [":srv 005 al CASEMAPPING=koi8-r :are supported", ":srv 376 al :End of MOTD"] {
            _ = identity.absorb(try parsed(line))
            let name = identity.takeUndecided()
            #expect(name == nil && identity.support.caseMapping == .ascii)
        }
        #expect(identity.isLoggedIn && identity.isLogin("Al[ce") && !identity.isLogin("Al{ce"))
        for name in ["al{ce", "a|b", "a~", "\u{E9}ve"] {
            _ = identity.loggedIn(name, isRegistered: true)
            #expect(!identity.account.isVerified && identity.isLogin(name))
        }
        _ = identity.loggedIn("Alice-1_", isRegistered: true)
        #expect(identity.account == .services("alice-1_") && identity.isLogin("ALICE-1_"))
        _ = identity.loggedOut(isRegistered: true)
        #expect(!identity.isLoggedIn && !identity.isLogin("Al[ce"))
    }

    @Test mutating func aLoginThatWaitsEndsWithALogout() throws {
        _ = identity.loggedIn("Al[ce", isRegistered: false)
        _ = identity.loggedOut(isRegistered: false)
        _ = identity.absorb(try parsed(":srv 005 al CASEMAPPING=ascii :are supported"))
        let name = identity.takeUndecided()
        #expect(name == nil && identity.account == .connection(7))
    }

    @Test mutating func whatTheServerNamesStays() throws {
        let changes = try [":srv 005 al CASEMAPPING=ascii :are supported", ":srv 376 al :End of MOTD"].map {
            identity.absorb(try parsed($0))
        }
        #expect(changes == [true, false] && identity.support.caseMapping == .ascii)
    }

    /// A line that is cut off by the server loses a part of its envelope.
    @Test mutating func aLongSourceLeavesLessRoom() {
        identity.renamed(to: "alice")
        let usual = identity.lineCapacity(verb: "PRIVMSG", target: "#room")
        identity.sawSource(length: 300)
        let long = identity.lineCapacity(verb: "PRIVMSG", target: "#room")
        identity.sawSource(length: 30)
        #expect(long < usual && identity.lineCapacity(verb: "PRIVMSG", target: "#room") == long)
    }

    @Test mutating func theFirstReplyNamesTheSoftware() {
        let (other, first, second) = (
            identity.learnSoftware(Array("\u{1}PING 1\u{1}".utf8)),
            identity.learnSoftware(Array("\u{1}VERSION irssi\tv1\u{1}".utf8)),
            identity.learnSoftware(Array("\u{1}VERSION other\u{1}".utf8))
        )
        #expect(!other && first && !second && identity.software == "irssi?v1")
    }
}

/// The rooms of a connection, alone.
@Suite struct ConnectionRoomsTests {
    private var rooms = ConnectionRooms()
    private var identity = ConnectionIdentity(id: ConnectionID(7), account: .connection(7))

    init() { identity.renamed(to: "alice") }

    private mutating func target(_ line: String) throws -> String? {
        let identity = identity
        return rooms.target(of: try parsed(line), room: { identity.room($0) })?.name
    }

    /// A server that invents rooms must not fill memory.
    @Test mutating func theRoomsAreLimited() {
        for number in 0..<ConnectionRooms.limit { rooms.join("#\(number)", at: nil) }
        let (more, again) = (rooms.join("#more", at: nil), rooms.join("#0", at: nil))
        #expect(!more && again && !rooms.contains("#more"))
        rooms.leave("#0")
        let later = rooms.join("#more", at: nil)
        #expect(later && rooms.contains("#more"))
    }

    @Test mutating func aRoomIsMemberedUntilItIsLeft() throws {
        rooms.join("#room", at: nil)
        let here = try target(":bob!b@h PRIVMSG #Room :hi")
        rooms.leave("#room")
        let left = try target(":bob!b@h PRIVMSG #Room :hi")
        #expect(here == "#room" && left == nil && !rooms.isMember(of: "#room"))
    }

    @Test mutating func aTargetIsLookedUpAgainWhenTheServerNamesRoomsOtherwise() throws {
        rooms.join("#room", at: nil)
        _ = try target(":bob!b@h PRIVMSG #room :hi")
        _ = identity.absorb(try parsed(":srv 005 alice CHANTYPES=& :are supported"))
        rooms.supportChanged()
        let after = try target(":bob!b@h PRIVMSG #room :hi")
        #expect(after == nil)
    }

    @Test mutating func theClientStaysInItsRoomsDuringAnOutage() throws {
        for room in ["#a", "#b"] { rooms.join(room, at: nil) }
        let left = rooms.suspend()
        #expect(left == ["#a", "#b"] && !rooms.contains("#a"))
        rooms.restore(left, repeating: [.away], now: 0)
        #expect(rooms.isMember(of: "#a") && !rooms.contains("#a") && rooms.all == left)
        let join = rooms.answer(try parsed(":alice!a@h JOIN #a"), identity)
        let other = rooms.answer(try parsed(":bob!b@h JOIN #a"), identity)
        #expect(join == .hidden && other == .unrelated)
        rooms.cannotRestore("#b")
        #expect(!rooms.isMember(of: "#b"))
        rooms.join("#a", at: nil)
        let second = rooms.suspend()
        #expect(second == ["#a"], "an outage within an outage")
    }

    @Test mutating func historyIsRecognisedByItsBatch() throws {
        let line = try parsed("@batch=1 :bob!b@h PRIVMSG #room :hi")
        _ = rooms.history.track(try parsed("BATCH +1 chathistory #room"))
        _ = rooms.history.track(try parsed("@batch=1 BATCH +2 other #room"))
        #expect(rooms.history.isReplay(line, in: "#room"))
        let (first, last) = (
            rooms.history.track(try parsed("BATCH -1")), rooms.history.track(try parsed("BATCH -2"))
        )
        #expect(!first && last, "the batch inside is history too")
        #expect(!rooms.history.isReplay(line, in: "#room"))
    }

    @Test mutating func historyIsRecognisedByTheTimeOfTheJoin() throws {
        rooms.join("#room", at: "2026-01-02T03:04:05.000Z")
        let early = try parsed("@time=2026-01-02T03:04:04.999Z :bob!b@h PRIVMSG #room :hi")
        let late = try parsed("@time=2026-01-02T03:04:05.000Z :bob!b@h PRIVMSG #room :hi")
        #expect(rooms.history.isReplay(early, in: "#room") && !rooms.history.isReplay(late, in: "#room"))
        #expect(!rooms.history.isReplay(early, in: nil))
        rooms.leave("#room")
        #expect(!rooms.history.isReplay(early, in: "#room"))
    }

    @Test mutating func aBackendCannotOpenBatchesWithoutEnd() throws {
        for number in 0...RoomHistory.limit { _ = rooms.history.track(try parsed("BATCH +\(number) chathistory")) }
        let last = try parsed("@batch=\(RoomHistory.limit) :bob!b@h PRIVMSG #room :hi")
        #expect(!rooms.history.isReplay(last, in: nil))
        let (first, again) = (rooms.history.isNoticeDue(of: "#room"), rooms.history.isNoticeDue(of: "#room"))
        #expect(first && !again)
    }
}

/// Incomplete envelopes of a connection, alone.
@Suite struct FragmentCollectorTests {
    private var fragments = FragmentCollector()
    private static let limits = FragmentAssembler.Limits()

    private mutating func add(_ index: Int, isReplay: Bool, at now: Int64 = 0) -> FragmentAssembler.Outcome {
        let fragment = FragmentCollector.Fragment(
            source: "bob!b@h", target: "#room", id: 1, index: index, count: 2, bytes: [UInt8(index)],
            isReplay: isReplay)
        return fragments.add(fragment, Self.limits, now: now)
    }

    /// A replayed part of an old message must not complete a new one.
    @Test mutating func replayedFragmentsAreApartFromLiveOnes() {
        let (live, replayed) = (add(0, isReplay: false), add(1, isReplay: true))
        #expect(live == .waiting && replayed == .waiting)
        let (whole, old) = (add(1, isReplay: false), add(0, isReplay: true))
        #expect(whole == .complete([0, 1]) && old == .complete([0, 1]))
        #expect(fragments.nextDeadline == nil)
    }

    @Test mutating func replayedFragmentsWaitLessAndNotAfterTheirBatch() {
        _ = add(0, isReplay: false)
        _ = add(0, isReplay: true)
        #expect(fragments.nextDeadline == FragmentCollector.replayInactivity)
        let (live, replayed) = (
            fragments.expire(now: FragmentCollector.replayInactivity),
            fragments.expireReplays(now: FragmentCollector.replayInactivity)
        )
        #expect(live.isEmpty && replayed == ["bob!b@h"])
        _ = add(0, isReplay: true)
        let ended = fragments.endReplays()
        let expired = fragments.expire(now: .max)
        #expect(ended == ["bob!b@h"] && expired == ["bob!b@h"])
    }
}

/// The identities of services, alone.
@Suite struct ServiceDirectoryTests {
    private var services = ServiceDirectory()

    private static func message(_ target: String) -> ServiceDirectory.Waiting {
        .message(
            OutboundMessage(verb: "PRIVMSG", target: target, body: Body(text: [1]), clientLabel: nil, tags: []), at: 1)
    }

    private mutating func answer(_ numeric: Int, _ nick: String, _ text: String = "") -> Int? {
        switch services.answered(numeric, nick, now: 1, text: { _ in text }) {
        case .foreign: nil
        case .hidden: 0
        case .finished(let waiting): waiting.count
        }
    }

    @Test mutating func aQueryIsSentOnceAndReleasesAllThatWaits() {
        let (first, second) = (
            services.keep(Self.message("x"), until: "x", now: 0), services.keep(Self.message("x"), until: "x", now: 1)
        )
        #expect(first == .asked && second == .waits && services.nextDeadline == ServiceDirectory.patience)
        let answers = [answer(311, "x", "host"), answer(312, "x", "srv"), answer(319, "x"), answer(318, "x")]
        #expect(answers == [0, 0, 0, 2])
        let identity = services.identity("x", now: 1)
        #expect(identity?.host == "host" && identity?.server == "srv" && services.nextDeadline == nil)
        #expect(services.identity("x", now: 1 + ServiceDirectory.lifetime) == nil, "a person may have the nick now")
    }

    /// The client receives the reply to its own WHOIS.
    @Test mutating func theClientsOwnQueriesAreAnsweredFirst() {
        services.clientAsked(about: "x")
        _ = services.keep(Self.message("x"), until: "x", now: 0)
        let answers = [answer(311, "x"), answer(318, "x"), answer(318, "x"), answer(318, "x"), answer(318, "y")]
        #expect(answers == [nil, nil, 1, nil, nil])
    }

    @Test mutating func queriesAreLimitedAndExpire() {
        for number in 0..<ServiceDirectory.probeLimit {
            _ = services.keep(Self.message("n"), until: "n\(number)", now: Int64(number))
        }
        let full = services.keep(Self.message("x"), until: "x", now: 0)
        #expect(full == .full)
        let expired = services.expire(now: ServiceDirectory.patience)
        #expect(expired.count == 1, "the first one")
        #expect(services.identity("n0", now: ServiceDirectory.patience)?.host == "", "no proof of anything")
    }
}

/// The policy of a connection, alone.
@Suite struct EffectivePolicyTests {
    @Test func aChangeIsReadOnceAndAppliedToTheAccount() {
        let policies = PolicyTable(PolicySnapshot(everyone: .observe))
        let settings = IRCSettings(
            network: "net", heldLines: 1, pendingRequests: 1, outagePatience: 1, asksForVersion: false, marks: .off)
        let environment = IRCEnvironment(settings: settings, policies: policies, role: .sidecar(PeerCache()))
        var effective = EffectivePolicy(environment)
        let unchanged = effective.renew(environment)
        let same = effective.apply(to: .services("alice"))
        #expect(!unchanged && same == nil)
        let before = effective.policy
        policies.update { $0.everyone = .hosted }
        let renewed = effective.renew(environment)
        #expect(renewed && effective.policy == before, "not applied yet")
        let applied = effective.apply(to: .services("alice"))
        let again = effective.renew(environment)
        #expect(applied == before && effective.policy == .hosted && !again)
    }

    @Test func noticesAreShownOnce() {
        let settings = IRCSettings(
            network: "net", heldLines: 1, pendingRequests: 1, outagePatience: 1, asksForVersion: false, marks: .off)
        var effective = EffectivePolicy(
            IRCEnvironment(
                settings: settings, policies: PolicyTable(PolicySnapshot(everyone: .observe)),
                role: .sidecar(PeerCache())))
        let away = [effective.isNoticeDue(stripped: .away), effective.isNoticeDue(stripped: .away)]
        let room = [effective.isNoticeDue(plainRoom: "#a"), effective.isNoticeDue(plainRoom: "#a")]
        #expect(away == [true, false] && room == [true, false])
    }
}
