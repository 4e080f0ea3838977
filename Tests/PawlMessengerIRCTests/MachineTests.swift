import Envelope
import IRCCodec
import NIOCore
import PawlMessenger
import TestKit
import Testing

@testable import PawlMessengerIRC

/// The machine of a connection, line by line.
@Suite struct MachineTests {
    private static let second: Int64 = 1_000_000_000

    /// A machine with its transcript.
    private struct Session {
        var machine: IRCChatMachine
        var now: Int64 = 0

        init(
            login: (account: String, password: String)? = nil,
            pacing: Pacer.Limit = Pacer.Limit(burst: 1000, linesPerSecond: 0)
        ) {
            machine = IRCChatMachine(
                IRCChatMachine.Settings(nick: "alice", serverPassword: nil, login: login, pacing: pacing), now: 0)
        }

        mutating func receive(_ lines: String...) -> [IRCChatMachine.Action] {
            lines.flatMap { machine.received(ByteBuffer(string: $0), now: now) }
        }

        mutating func send(_ text: String, to nick: String = "bob", _ ticket: UInt64? = 1) -> [IRCChatMachine.Action] {
            machine.send(IRCOutgoing(nick: nick, content: .text(text, announces: false)), ticket, now: now)
        }

        /// A session that is ready, on a server without capabilities.
        static func ready(tags: Bool = false, pacing: Pacer.Limit = Pacer.Limit(burst: 1000, linesPerSecond: 0)) -> Self
        {
            var session = Session(pacing: pacing)
            _ = session.machine.opened()
            _ = session.receive(
                ":irc.test CAP * LS :\(tags ? "message-tags" : "multi-prefix")",
                tags ? ":irc.test CAP * ACK :message-tags" : ":irc.test NOTICE * :hello",
                ":irc.test 001 alice :welcome",
                ":irc.test 005 alice NICKLEN=20 CASEMAPPING=rfc1459 :are supported", ":irc.test 376 alice :end")
            return session
        }
    }

    private func lines(_ actions: [IRCChatMachine.Action]) -> [String] {
        actions.compactMap { action in
            if case .write(let line) = action { String(buffer: line).trimmingLineEnd } else { nil }
        }
    }

    @Test func aConnectionRegisters() {
        var session = Session()
        #expect(lines(session.machine.opened()) == ["CAP LS 302", "NICK alice", "USER alice 0 * :alice"])
        #expect(
            lines(session.receive(":s CAP * LS * :a=b server-time", ":s CAP * LS :message-tags c")) == [
                "CAP REQ :message-tags"
            ])
        #expect(lines(session.receive(":s CAP * ACK :message-tags")) == ["CAP END"])
        #expect(session.receive(":s 001 alice :hello", ":s 005 alice NICKLEN=20 :x").isEmpty)
        #expect(session.receive(":s 422 alice :no motd") == [.ready])
        #expect(lines(session.receive("PING :a b")) == ["PONG :a b"])
    }

    @Test func aLoginIsNotLeftOut() {
        var session = Session(login: ("alice", "secret"))
        _ = session.machine.opened()
        #expect(lines(session.receive(":s CAP * LS :sasl=PLAIN")) == ["CAP REQ :sasl"])
        #expect(lines(session.receive(":s CAP * ACK :sasl")) == ["AUTHENTICATE PLAIN"])
        #expect(lines(session.receive("AUTHENTICATE +")) == ["AUTHENTICATE YWxpY2UAYWxpY2UAc2VjcmV0"])
        #expect(lines(session.receive(":s 900 alice a alice :in", ":s 903 alice :done")) == ["CAP END"])
        // Without it the person would be somebody else: nothing goes on.
        for refusal in [
            [":s CAP * LS :message-tags"], [":s CAP * LS :sasl", ":s CAP * NAK :sasl"],
            [":s CAP * LS :sasl", ":s CAP * ACK :sasl", ":s 904 alice :no"], [":s 001 alice :hello"],
        ] {
            var session = Session(login: ("alice", "secret"))
            _ = session.machine.opened()
            let actions = refusal.flatMap { session.receive($0) }
            #expect(actions.last == .close, "\(refusal)")
            #expect(session.receive(":s 376 alice :end").isEmpty)
        }
    }

    @Test func aLongPasswordIsSentInPieces() {
        var session = Session(login: ("alice", String(repeating: "x", count: 288)))
        _ = session.machine.opened()
        _ = session.receive(":s CAP * LS :sasl", ":s CAP * ACK :sasl")
        let sent = lines(session.receive("AUTHENTICATE +"))
        #expect(sent.map { $0.utf8.count - 13 } == [400, 1] && sent.last == "AUTHENTICATE +")
    }

    @Test func aNickInUseEndsTheConnectionAndAnotherNickToo() {
        var session = Session()
        _ = session.machine.opened()
        #expect(session.receive(":s 433 * alice :in use") == [.close])
        session = Session()
        _ = session.machine.opened()
        #expect(session.receive(":s CAP * LS :", ":s 001 guest7 :hello").last == .close)
        session = .ready()
        #expect(session.receive(":alice!a@h NICK :guest7") == [.close])
    }

    @Test func aMessageIsSentWhenTheServerHasAnswered() {
        var session = Session.ready()
        #expect(lines(session.send("hello", to: "bob", 1)) == ["PRIVMSG bob :hello", "PING :pawl-1"])
        #expect(lines(session.send("more", to: "carol", 2)) == ["PRIVMSG carol :more", "PING :pawl-2"])
        #expect(session.receive(":s PONG s :pawl-7").isEmpty)
        #expect(session.receive(":s 401 alice BOB :No such nick") == [.failed(1, .offline)])
        #expect(session.receive(":s PONG s :pawl-1").isEmpty)
        #expect(session.receive(":s PONG s :pawl-2") == [.sent(2)])
        _ = session.send("third", to: "bob", 3)
        #expect(session.receive(":s 404 alice bob :Cannot send") == [.failed(3, .refused("Cannot send"))])
        _ = session.send("fourth", to: "bob", 4)
        #expect(session.machine.closed() == [.failed(4, .offline)])
        #expect(session.send("fifth", to: "bob", 5) == [.failed(5, .offline)])
    }

    @Test func linesArePacedAndBounded() {
        var session = Session.ready(pacing: Pacer.Limit(burst: 2, linesPerSecond: 1))
        for ticket in 1...4 { _ = session.send("text", to: "bob", UInt64(ticket)) }
        var count = 0
        for _ in 0..<20 where count < 4 {
            session.now = max(session.now + Self.second, session.machine.nextDeadline(now: session.now))
            let sent = lines(session.machine.wake(now: session.now))
            #expect(sent.count <= 4)
            for case let ping in sent where ping.hasPrefix("PING") {
                count += session.receive(":s PONG s :\(ping.dropFirst(6))").count {
                    if case .sent = $0 { true } else { false }
                }
            }
        }
        #expect(count >= 3)
        var results: [IRCChatMachine.Action] = []
        for ticket in 10..<2000 { results += session.send("text", to: "bob", UInt64(ticket)) }
        #expect(results.contains(.failed(1999, .offline)))
    }

    @Test func announcementsAreSeenBySidecarsOnly() {
        let marker = "\u{02}\u{1F}\u{02}\u{1F}\u{1F}\u{02}\u{1F}\u{02}\u{0F}"
        for tags in [true, false] {
            var session = Session.ready(tags: tags)
            let actions = session.machine.send(
                IRCOutgoing(nick: "bob", content: .text("hi", announces: true)), nil, now: 0)
            let line = lines(actions)[0]
            #expect(line == (tags ? "@+pawl/hello PRIVMSG bob :hi" : "PRIVMSG bob :hi" + marker))
            let raw = line.replacing("PRIVMSG bob", with: ":bob!b@h PRIVMSG alice")
            #expect(session.receive(raw) == [.text("hi", from: "bob", announces: true)])
        }
    }

    @Test func textsAreBrokenAndNeverLookLikeEnvelopes() {
        var session = Session.ready()
        #expect(
            lines(session.send("a\nb\r\n\nc", to: "bob", nil)) == [
                "PRIVMSG bob :a", "PRIVMSG bob :b ", "PRIVMSG bob :c",
            ])
        #expect(session.send("?PAWL:AAAA.", to: "bob", 1) == [.failed(1, .refused("The message is too long for IRC."))])
        #expect(session.send("", to: "bob", 2).count == 1 && session.send("\n\n", to: "bob", 2).count == 1)
        let long = lines(session.send(String(repeating: "ä", count: 600), to: "bob", nil))
        #expect(long.count == 4 && long.allSatisfy { $0.utf8.count + 2 + 107 <= 512 })
        #expect(session.send(String(repeating: "x", count: 60_000), to: "bob", 3).count == 1)
        // A text is no query of a client.
        #expect(lines(session.send("\u{1}VERSION\u{1}", to: "bob", nil)) == ["PRIVMSG bob :VERSION"])
    }

    /// Whole, in pieces in any order, twice, and with others between.
    @Test func envelopesComeInLines() throws {
        var random = SeededGenerator(seed: 4)
        for length in [40, 240, 241, 700, 3000] {
            let envelope = random.bytes(length)
            var session = Session.ready()
            let sent = lines(
                session.machine.send(
                    IRCOutgoing(nick: "bob", content: .envelope(envelope, id: 7), isNotice: true), nil, now: 0))
            #expect(sent.allSatisfy { $0.hasPrefix("NOTICE bob :?PAWL:") && $0.utf8.count + 109 <= 512 })
            let incoming = sent.map { $0.replacing("NOTICE bob", with: ":bob!b@h NOTICE ALICE") }
            for order in [incoming, incoming.reversed(), incoming + incoming.dropLast()] {
                var actions: [IRCChatMachine.Action] = []
                for line in order { actions += session.receive(line, ":bob!b@h NOTICE alice :?PAWL:zz.") }
                #expect(actions.first == .envelope(envelope, from: "bob"))
            }
            // Fragments of two people do not mix.
            guard incoming.count > 1 else { continue }
            session = .ready()
            var mixed: [IRCChatMachine.Action] = []
            for (index, line) in incoming.enumerated() {
                mixed += session.receive(index == 0 ? line.replacing(":bob!b@h", with: ":eve!b@h") : line)
            }
            #expect(!mixed.contains(.envelope(envelope, from: "bob")))
        }
    }

    @Test func whatIsNotForThePersonIsDropped() {
        var session = Session.ready()
        #expect(
            session.receive(
                ":bob!b@h PRIVMSG #room :text", ":bob!b@h PRIVMSG carol :text", ":irc.test PRIVMSG alice :text",
                ":alice!a@h PRIVMSG alice :text", ":bob!b@h NOTICE alice :text", "PRIVMSG alice :text",
                ":bob!b@h PRIVMSG alice :\u{1}VERSION\u{1}", ":bob!b@h PRIVMSG alice",
                ":bob!b@h PRIVMSG alice :?PAWL? x",
                ":bob!b@h PRIVMSG alice :?PAWL:AAAA"
            ).isEmpty)
        #expect(
            session.receive(":Bob[!b@h PRIVMSG ALICE :\u{1}ACTION waves\u{1}") == [
                .text("/me waves", from: "bob{", announces: false)
            ])
    }

    @Test func aServerThatDoesNotAnswerIsLeft() {
        var session = Session()
        _ = session.machine.opened()
        session.now = IRCChatMachine.patience
        #expect(session.machine.wake(now: session.now) == [.close])
        session = .ready()
        session.now = IRCChatMachine.silence
        #expect(lines(session.machine.wake(now: session.now)) == ["PING :pawl-1"])
        session.now += IRCChatMachine.patience
        #expect(session.machine.wake(now: session.now) == [.close])
        #expect(session.receive("PING :x").isEmpty)
    }

    /// Lines of a server that sends anything never end the program, and make no envelope of what is none.
    @Test func anythingMayCome() {
        var random = SeededGenerator(seed: 9)
        let words = [
            "001", "005", "376", "401", "433", "900", "903", "904", "CAP", "LS", "ACK", "*", ":", "alice", "bob",
            "PING",
            "PONG", ":bob!b@h", ":alice!a@h", "@+pawl/hello", "@", "PRIVMSG", "NOTICE", ":?PAWL:",
            "?PAWL:00000001,0,2:AA.",
            "AUTHENTICATE", "+", "NICK", "ERROR", "\u{1}ACTION", "NICKLEN=500", "CASEMAPPING=x", ":pawl-1", "",
        ]
        for round in 0..<400 {
            var session = round.isMultiple(of: 2) ? Session.ready() : Session(login: ("a", "b"))
            for _ in 0..<60 {
                let text = (0..<random.below(7)).map { _ in words[random.below(words.count)] }.joined(separator: " ")
                var bytes = Array(text.utf8)
                if !bytes.isEmpty, random.below(4) == 0 { bytes[random.below(bytes.count)] = UInt8(random.below(256)) }
                _ = session.machine.received(ByteBuffer(bytes: bytes), now: session.now)
                _ = session.send("text", to: "bob", 1)
                session.now += Int64(random.below(40)) * Self.second
                _ = session.machine.wake(now: session.now)
                _ = session.machine.nextDeadline(now: session.now)
            }
        }
    }

    @Test func onlyNicksAreNicks() {
        for name in ["bob", "bob-1", "[bob]", "b`^{|}_", String(repeating: "b", count: 64)] {
            #expect(IRCChat.isNick(name), "\(name)")
        }
        for name in [
            "", "#room", "&room", "bob,carol", "bob carol", "bob\r\nQUIT", "bob!b@h", "nickserv@services", "$*",
            "@#room",
            "1bob", "-bob", "b.c", ":bob", "bob\u{0}", "bøb", String(repeating: "b", count: 65),
        ] { #expect(!IRCChat.isNick(name), "\(name)") }
    }

    @Test func introductionsAndAnnouncementsAreRare() {
        var table = IRCIntroductions()
        let announced = (0..<3600).count { table.isAnnouncementDue(to: "bob", now: Int64($0) * Self.second) }
        #expect(announced == 4)
        let service = table.isAnnouncementDue(to: "nickserv", now: 0)
        #expect(!service)
        func introductions(_ isAsked: Bool, _ nick: Username) -> Int {
            (0..<50).count { table.isIntroductionDue(to: nick, isAsked: isAsked, now: Int64($0) * Self.second) }
        }
        let (asked, unasked) = (introductions(true, "bob"), introductions(false, "carol"))
        #expect(asked == 4 && unasked == 1)
        let now = 50 * Self.second
        let all = (0..<100).count { table.isIntroductionDue(to: Username("n\($0)"), isAsked: true, now: now) }
        #expect(all == 25)
    }
}

extension String {
    fileprivate var trimmingLineEnd: String { hasSuffix("\r\n") ? String(dropLast()) : self }
}
