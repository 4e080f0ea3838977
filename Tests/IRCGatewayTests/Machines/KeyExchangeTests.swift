import Devices
import DoubleRatchet
import Envelope
import IRCCodec
import Protection
import Reports
import RequestQueue
import Testing
import Vault

@testable import IRCGateway

/// The key exchanges of a sidecar as transcripts: what peers and the vault do, and what the connection does next.
@Suite struct KeyExchangeTests {
    private var exchange = KeyExchange()
    private static let bob = Nick(written: "Bob", folded: "bob")
    private static let second: Int64 = 1_000_000_000
    private static let body = Body(text: [1])

    private func message(_ target: String = "Bob") -> OutboundMessage {
        OutboundMessage(verb: "PRIVMSG", target: target, body: Self.body, clientLabel: nil, tags: [])
    }

    private func opened(
        _ event: PeerEvent? = nil, answer: Opened.Answer? = nil, _ protection: Protection = .plaintext,
        sender: String = "bob"
    ) -> Opened {
        Opened(
            body: Self.body, sequence: nil, sender: .nick(sender), gap: 0, protection: protection, event: event,
            answer: answer)
    }

    private mutating func open(
        _ opened: Opened, isOnBareServer: Bool = true, at now: Int64 = 0, person: Recipient = .outsider
    ) -> [KeyExchange.Action] {
        exchange.opened(opened, from: Self.bob, isOnBareServer: isOnBareServer, now: now) { _ in person }
    }

    // MARK: Introductions

    @Test mutating func anAnnouncementIsAnsweredByAnIntroduction() {
        let first = exchange.announced(by: Self.bob, now: 0)
        #expect(first == [.introduce(ticket: 1, nick: "Bob")])
        let (target, again) = (exchange.introductionMade(1), exchange.introductionMade(1))
        #expect(target == "Bob" && again == nil)
    }

    /// An introduction has eight lines, and anybody can cause one.
    @Test mutating func introductionsAreLimitedByNickAndInAll() {
        for _ in 0..<KeyExchange.introductionsPerNick {
            let actions = exchange.announced(by: Self.bob, now: 0)
            #expect(actions.count == 1)
        }
        let tooMany = exchange.announced(by: Self.bob, now: 1)
        #expect(tooMany.isEmpty)
        for number in KeyExchange.introductionsPerNick..<KeyExchange.introductionLimit {
            let actions = exchange.announced(by: Nick(written: "n\(number)", folded: "n\(number)"), now: 1)
            #expect(actions.count == 1)
        }
        let another = exchange.announced(by: Nick(written: "carol", folded: "carol"), now: 1)
        let later = exchange.announced(by: Self.bob, now: KeyExchange.introductionPeriod)
        #expect(another.isEmpty && later.count == 1)
    }

    /// At one line a second the person would write nothing else, and everybody on the network can do it.
    @Test mutating func introductionsToOneNickAreFewInAnHour() {
        let period = KeyExchange.introductionPeriod
        var sent = 0
        for minute in 0..<60 {
            for _ in 0..<9 { sent += exchange.announced(by: Self.bob, now: Int64(minute) * period).count }
        }
        #expect(sent == KeyExchange.introductionsPerNickAndHour)
        let later = exchange.announced(by: Self.bob, now: 60 * period)
        #expect(later.count == 1)
    }

    @Test mutating func anAnnouncementIsRepeatedAfterLongerAndLongerPauses() {
        let pause = KeyExchange.announcementPause
        let due = [0, pause - 1, pause, 4 * pause, 5 * pause].map { exchange.isAnnouncementDue("#room", now: $0) }
        #expect(due == [true, false, true, false, true])
        exchange.memberJoined("#room")
        let isDue = exchange.isAnnouncementDue("#room", now: 5 * pause)
        #expect(isDue, "the new member may have a sidecar")
    }

    @Test mutating func tablesOfNicksAreEmptiedWhenFull() {
        for number in 0..<SidecarPeople.nickLimit { _ = exchange.isAnnouncementDue("n\(number)", now: 0) }
        let isFirst = exchange.isAnnouncementDue("bob", now: 0)
        let isForgotten = exchange.isAnnouncementDue("n0", now: 0)
        #expect(isFirst && isForgotten)
        let notices = (0...SidecarPeople.nickLimit).map { exchange.isNameNoticeDue("n\($0)", keysOf: .nick("bob")) }
        #expect(notices.allSatisfy { $0 })
    }

    @Test mutating func aNoticeAboutAnotherNameIsShownOnce() {
        let first = exchange.isNameNoticeDue("rob", keysOf: .nick("bob"))
        let again = exchange.isNameNoticeDue("rob", keysOf: .nick("bob"))
        let other = exchange.isNameNoticeDue("rob", keysOf: .nick("carol"))
        #expect(first && !again && other)
    }

    // MARK: Opened and unopened envelopes

    @Test mutating func theBeginningOfASessionIsAnsweredAndMessagesWait() {
        let answer = Opened.Answer(body: Body(text: [2]), device: DeviceID(7))
        let actions = open(opened(answer: answer))
        #expect(actions == [.answer(answer, to: "Bob")])
        let waits = exchange.keepsForAnswer(message(), of: .nick("bob"), limit: 9, now: 1)
        #expect(waits && exchange.deadline == 1 + KeyExchange.patience)
        let ready = open(opened(nil, .device), at: 2)
        #expect(ready == [.seal(message(), for: .nick("bob"))])
        #expect(exchange.deadline == nil && exchange.waitingTargets.isEmpty)
        let waitsAgain = exchange.keepsForAnswer(message(), of: .nick("bob"), limit: 9, now: 3)
        #expect(!waitsAgain)
    }

    /// Each answer has up to eight lines.
    @Test mutating func answersAreLimited() {
        let answer = Opened.Answer(body: Body(text: [2]), device: DeviceID(7))
        for _ in 0..<KeyExchange.answersPerSender {
            let actions = open(opened(answer: answer))
            #expect(actions.count == 1)
        }
        let ofOne = open(opened(answer: answer))
        #expect(ofOne.isEmpty)
        for number in KeyExchange.answersPerSender..<KeyExchange.answerLimit {
            let actions = open(opened(answer: answer, sender: "n\(number)"))
            #expect(actions.count == 1)
        }
        let (tooMany, later) = (
            open(opened(answer: answer, sender: "carol"), at: 1),
            open(opened(answer: answer), at: KeyExchange.introductionPeriod)
        )
        #expect(tooMany.isEmpty && later.count == 1)
    }

    @Test mutating func aPeerWithOtherKeysIsWarnedOnceAndThePersonEachTime() {
        let notice = KeyExchange.Action.notify(Notices.changedKeys("Bob"), about: "Bob")
        let event = PeerEvent.changed(.nick("bob"))
        let behindFront = open(opened(event), isOnBareServer: false)
        let (first, again) = (open(opened(event)), open(opened(event)))
        #expect(behindFront == [notice], "the gateway in front has rules of its own")
        #expect(first == [.warn(nick: "Bob"), notice] && again == [notice])
    }

    @Test mutating func aForkIsNotifiedOnce() {
        let notice = KeyExchange.Action.notify(Notices.forkedList(of: "bob", shownBy: "Bob"), about: "Bob")
        let first = open(opened(.forked(.nick("bob"), isNew: true)))
        let again = open(opened(.forked(.nick("bob"), isNew: false)))
        #expect(first == [notice] && again.isEmpty)
    }

    @Test mutating func crossedBeginningsAreRepeatedByTheOwnerOfTheSession() {
        let text = open(opened(.crossed(isText: true)))
        let control = open(opened(.crossed(isText: false)))
        #expect(text == [.begin(with: "Bob"), .notify(Notices.crossed("Bob"), about: "Bob")])
        #expect(control == [.begin(with: "Bob")])
    }

    @Test mutating func eventsOfRoomsAndOwnDevicesAreNotItsOwn() {
        for event in [PeerEvent.roomProtected("#room"), .adopted(.own), .revoked] {
            let actions = open(opened(event))
            #expect(actions.isEmpty)
        }
    }

    @Test(arguments: [
        (OpenFailure.unknownSender, KeyExchange.Place.direct, true), (.notAuthentic, .direct, true),
        (.unknownSender, .room("#room"), true), (.notAuthentic, .room("#room"), false),
        (.unknownSender, .foreignRoom, false), (.malformed, .direct, false),
    ])
    mutating func anUnopenedEnvelopeIsAnsweredByKeys(_ failure: OpenFailure, _ place: KeyExchange.Place, _ isSent: Bool)
    {
        let actions = exchange.notOpened(failure, from: Self.bob, in: place, now: 0)
        #expect(actions == (isSent ? [.introduce(ticket: 1, nick: "Bob")] : []))
    }

    @Test mutating func anOlderVersionIsSentTheNewIntroductionOnce() {
        let first = exchange.notOpened(.olderVersion, from: Self.bob, in: .foreignRoom, now: 0)
        let again = exchange.notOpened(.olderVersion, from: Self.bob, in: .direct, now: 1)
        #expect(first == [.introduce(ticket: 1, nick: "Bob")] && again.isEmpty)
    }

    @Test mutating func theKeyOfARoomIsRequestedAtIntervals() {
        let place = KeyExchange.Place.room("#room")
        let times = [0, KeyExchange.askingPause - 1, KeyExchange.askingPause]
        let actions = times.map { exchange.notOpened(.keyMissing, from: Self.bob, in: place, now: $0) }
        let request = [KeyExchange.Action.askForKey(room: "#room", from: "Bob")]
        #expect(actions == [request, [], request])
        let elsewhere = exchange.notOpened(.keyMissing, from: Self.bob, in: .room("#other"), now: 1)
        let foreign = exchange.notOpened(.keyMissing, from: Self.bob, in: .foreignRoom, now: 1)
        #expect(elsewhere.count == 1 && foreign.isEmpty)
    }

    // MARK: Waiting messages

    @Test mutating func aMessageWaitsForTheKeysOfAPersonWhoWasSentKeys() {
        let early = exchange.keepsForKeys(message(), to: "bob", limit: 9, now: 0)
        _ = exchange.announced(by: Self.bob, now: 0)
        let waits = exchange.keepsForKeys(message(), to: "bob", limit: 9, now: 1)
        let other = exchange.keepsForKeys(message("carol"), to: "carol", limit: 9, now: 1)
        let full = exchange.keepsForKeys(message(), to: "bob", limit: 1, now: 1)
        #expect(!early && waits && !other && !full && exchange.waitingTargets == ["Bob"])
        let unrelated = open(opened(.keysExchanged(.nick("bob"))), person: .outsider)
        #expect(
            unrelated == [.notify(Notices.keysExchanged("Bob"), about: "Bob")], "the nick is not known by these keys")
        let ready = open(opened(.renewed(.nick("bob"))), person: .capable(.nick("bob")))
        #expect(ready == [.seal(message(), for: .nick("bob"))])
    }

    @Test mutating func aPersonWhoSendsNoKeysGetsTheMessageWithoutThem() {
        _ = exchange.announced(by: Self.bob, now: 0)
        _ = exchange.keepsForKeys(message(), to: "bob", limit: 9, now: 1)
        let (early, late) = (
            exchange.expire(now: KeyExchange.patience), exchange.expire(now: 1 + KeyExchange.patience)
        )
        #expect(early.isEmpty && late == [.send(message())])
        let waits = exchange.keepsForKeys(message(), to: "bob", limit: 9, now: 2 + KeyExchange.patience)
        #expect(!waits, "it would wait for ever")
    }

    @Test mutating func laterMessagesDoNotOvertakeOneThatWaits() {
        let (last, later) = (KeyExchange.patience - 1, KeyExchange.patience + 1)
        _ = exchange.announced(by: Self.bob, now: 0)
        let keys = [last, later].map { exchange.keepsForKeys(message(), to: "bob", limit: 9, now: $0) }
        #expect(keys == [true, true])
        let given = exchange.expire(now: last + KeyExchange.patience)
        #expect(given == [.send(message()), .send(message())], "the later one waits no longer than the first")
        exchange.sessionBegun(with: .nick("carol"), now: 0)
        let answers = [KeyExchange.answerPatience - 1, KeyExchange.answerPatience].map {
            exchange.keepsForAnswer(message("carol"), of: .nick("carol"), limit: 9, now: $0)
        }
        #expect(answers == [true, true] && exchange.waitingTargets == ["carol", "carol"])
    }

    @Test mutating func eachRecipientHasItsOwnTime() {
        _ = exchange.announced(by: Self.bob, now: 0)
        _ = exchange.keepsForKeys(message(), to: "bob", limit: 9, now: 1)
        _ = exchange.announced(by: Nick(written: "carol", folded: "carol"), now: KeyExchange.patience)
        let waits = exchange.keepsForKeys(message("carol"), to: "carol", limit: 9, now: KeyExchange.patience)
        let first = exchange.expire(now: 1 + KeyExchange.patience)
        #expect(waits && first == [.send(message())] && exchange.waitingTargets == ["carol"])
        #expect(exchange.deadline == 2 * KeyExchange.patience)
        let second = exchange.expire(now: 2 * KeyExchange.patience)
        #expect(second == [.send(message("carol"))] && exchange.deadline == nil)
    }

    @Test mutating func aMessageWithoutASessionIsRefusedInTime() {
        let actions = exchange.sessionMissing(message(), to: Self.bob, of: .nick("bob"), limit: 1, now: 0)
        #expect(actions == [.introduce(ticket: 1, nick: "Bob")])
        let full = exchange.sessionMissing(message(), to: Self.bob, of: .nick("bob"), limit: 1, now: 0)
        #expect(full == [.refuse(message())])
        let expired = exchange.expire(now: KeyExchange.patience)
        #expect(expired == [.refuse(message())] && exchange.deadline == nil)
    }

    @Test mutating func anUnansweredBeginningIsSentAgainBeforeTheWaitingMessages() {
        exchange.sessionBegun(with: .nick("bob"), now: 0)
        for _ in 0..<2 { _ = exchange.keepsForAnswer(message(), of: .nick("bob"), limit: 9, now: 1) }
        let expired = exchange.expire(now: 1 + KeyExchange.patience)
        let sealed = KeyExchange.Action.seal(message(), for: .nick("bob"))
        #expect(expired == [.begin(with: "Bob"), sealed, sealed])
    }

    @Test mutating func messagesDoNotWaitLongForAnAnswer() {
        exchange.sessionBegun(with: .nick("bob"), now: 0)
        let waits = exchange.keepsForAnswer(message(), of: .nick("bob"), limit: 9, now: KeyExchange.answerPatience)
        #expect(!waits)
    }

    @Test mutating func onlyTextsWait() {
        var typing = message()
        typing.body = Body(kind: .tagsOnly, tags: [], text: [])
        _ = exchange.announced(by: Self.bob, now: 0)
        exchange.sessionBegun(with: .nick("bob"), now: 0)
        let (keys, answer) = (
            exchange.keepsForKeys(typing, to: "bob", limit: 9, now: 1),
            exchange.keepsForAnswer(typing, of: .nick("bob"), limit: 9, now: 1)
        )
        #expect(!keys && !answer)
    }
}
