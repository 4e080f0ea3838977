import Foundation
import PeerKit
import Protection
import Reports
import TestKit
import TestThreads
import Testing

/// Who is who: accounts, nicks that change hands, several connections, and answers that reach the right person.
@Suite(.blocking, .serialized) struct IdentityTests {
    /// Passwords pass to the service and are in no file and no log.
    @Test func passwordsAreNowhere() throws {
        let accounts = try AccountLab(accounts: ["anna"])
        let lab = try Lab(accounts.server, policy: "hosted", arguments: ["--log-level", "trace"])
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let bob = try lab.person("bob")
        let late = try lab.person("late")
        late.send("PRIVMSG NickServ :IDENTIFY anna \(AccountLab.password)")
        try late.expect("900")
        late.send("PRIVMSG NickServ@\(InspIRCd.servicesName) :IDENTIFY anna wrong-\(AccountLab.password)")
        try late.expect("an answer of NickServ") { $0.command == "NOTICE" && $0.nick == "NickServ" }
        let sasl = try AccountLab.login(lab.gateway.port, nick: "anna", account: "anna")
        sasl.send("PRIVMSG bob :something that is stored")
        try bob.expectMessage("something that is stored")
        #expect(lab.tap.shows(AccountLab.password))
        let encoded = Data("anna\0anna\0\(AccountLab.password)".utf8).base64EncodedString()
        let log = lab.gateway.output
        for secret in [AccountLab.password, encoded] {
            #expect(!log.contains(secret), "the log holds \(secret)")
            #expect(try Self.files(in: lab.gateway.dataDirectory, holding: secret).isEmpty)
        }
        // The same search finds what is there.
        #expect(try !Self.files(in: lab.gateway.dataDirectory, holding: "anna").isEmpty)
        #expect(try Self.files(in: lab.gateway.dataDirectory, holding: "something that is stored").isEmpty)
    }

    static func files(in directory: String, holding text: String) throws -> [String] {
        let names = FileManager.default.enumerator(atPath: directory)?.compactMap { $0 as? String } ?? []
        guard names.contains("pawl.sqlite") else { throw PeerError("no store in \(directory): \(names)") }
        return names.filter { name in
            let bytes = FileManager.default.contents(atPath: directory + "/" + name) ?? Data()
            return bytes.range(of: Data(text.utf8)) != nil
        }
    }

    /// Once protected, a conversation stays so under every policy, whoever takes a nick, across a restart.
    @Test func aTakenNickInheritsNothing() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let anna = try AccountLab.login(lab.gateway.port, nick: "anna", account: "anna")
        let first = try AccountLab.login(lab.gateway.port, nick: "bert", account: "bert")
        anna.send("PRIVMSG bert :before anything")
        try first.expectMessage("before anything")
        #expect(try lab.gateway.admin(["policy", "set", "observe"]).succeeded)
        anna.send("QUIT")
        try anna.expectEnd()
        // Somebody who goes around the gateway takes the nick.
        try eventually("anna is gone") { try !lab.isHere("anna") }
        let thief = try lab.outsider("anna")
        first.send("PRIVMSG anna :for-the-real-anna-1")
        let refusal = try first.expect("531")
        #expect(refusal.body.contains(Notices.refusal(.latched, target: "anna", texts: NoticeTexts())))
        thief.send("PRIVMSG bert :words put into anna's mouth")
        try first.expect("withheld") { $0.command == "NOTICE" && $0.body.contains(Notices.withheld(from: "anna")) }
        thief.send("QUIT")
        try thief.expectEnd()
        // The same after the gateway was restarted, when nobody remembers the connection.
        try lab.gateway.restart()
        let bert = try AccountLab.login(lab.gateway.port, nick: "bert", account: "bert")
        let second = try lab.outsider("anna")
        bert.send("PRIVMSG anna :for-the-real-anna-2")
        try bert.expect("531")
        second.send("PRIVMSG bert :more words put into anna's mouth")
        try bert.expect("withheld") { $0.command == "NOTICE" && $0.body.contains(Notices.withheld(from: "anna")) }
        for person in [first, bert] {
            #expect(person.transcript.allSatisfy { !$0.text.contains("mouth") })
        }
        #expect(try second.synchronize().allSatisfy { $0.command != "PRIVMSG" })
        second.send("QUIT")
        try second.expectEnd()
        // The person themselves comes back under another nick, to the protection that was.
        let back = try AccountLab.login(lab.gateway.port, nick: "anna_", account: "anna")
        back.send("PRIVMSG bert :for-the-real-bert")
        try bert.expectMessage("for-the-real-bert")
        #expect(!lab.tap.shows("for-the-real"))
        // Only an operator's confirmed act lowers it.
        let asked = try lab.gateway.admin(["conversations", "reset", "anna", "bert"])
        #expect(!asked.succeeded)
        let token = try #require(asked.token)
        let done = try lab.gateway.admin(["conversations", "reset", "anna", "bert", "--confirm", token])
        #expect(done.succeeded, "\(done)")
        for person in [back, bert] {
            try person.expect("the announcement") { $0.command == "NOTICE" && $0.body.contains("reset") }
        }
        back.send("PRIVMSG bert :now in the clear")
        try bert.expectMessage("now in the clear")
        #expect(lab.tap.shows("now in the clear"))
        let audit = try lab.json(["audit"]) as? [[String: Any]] ?? []
        #expect(audit.contains { $0["action"] as? String == "reset" })
    }

    /// A device and a latch of somebody without an account end with the connection.
    @Test func withoutAnAccountTheConnectionIsTheIdentity() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        alice.send("PRIVMSG bob :from the first alice")
        try bob.expectMessage("from the first alice")
        #expect(try (lab.json(["conversations", "list"]) as? [Any])?.count == 1)
        bob.send("QUIT")
        try bob.expectEnd()
        let other = try lab.person("bob")
        #expect(try other.synchronize().isEmpty)
        alice.send("PRIVMSG bob :to the second bob")
        try other.expectMessage("to the second bob")
        other.send("PRIVMSG alice :an answer of the second bob")
        try alice.expectMessage("an answer of the second bob")
        #expect(!lab.tap.shows("second bob"))
    }

    /// Each connection of an account reads what the backend gives it, and the sessions hold in any interleaving.
    @Test func severalConnectionsOfOneAccount() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let annas = try ["anna", "anna_tab"].map { try AccountLab.login(lab.gateway.port, nick: $0, account: "anna") }
        let berts = try ["bert", "bert_tab"].map { try AccountLab.login(lab.gateway.port, nick: $0, account: "bert") }
        for number in 0..<6 {
            for anna in annas {
                for bert in berts {
                    anna.send("PRIVMSG \(bert.nick) :\(number) from \(anna.nick)")
                    bert.send("PRIVMSG \(anna.nick) :\(number) back to \(anna.nick)")
                }
            }
        }
        for number in 0..<6 {
            for anna in annas {
                for bert in berts {
                    #expect(try bert.expectMessage("\(number) from \(anna.nick)").nick == anna.nick)
                    let back = try anna.expect("an answer") {
                        $0.nick == bert.nick && $0.body.hasSuffix("back to \(anna.nick)")
                    }
                    #expect(back.body == "\(number) back to \(anna.nick)")
                }
            }
        }
        for person in annas + berts {
            let rest = try person.synchronize().filter { $0.command == "PRIVMSG" || $0.command == "NOTICE" }
            #expect(rest.isEmpty, "\(person.nick)")
        }
        #expect(!lab.tap.shows("from anna") && !lab.tap.shows("back to"))
        // One ends, the other goes on.
        annas[0].send("QUIT")
        try annas[0].expectEnd()
        berts[0].send("PRIVMSG anna_tab :you are still here")
        try annas[1].expectMessage("you are still here")
    }

    @Test func awayCallerIdAndEchoOnInspIRCd() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let caps = ["sasl", "echo-message", "labeled-response", "batch", "message-tags", "account-tag", "server-time"]
        let anna = try AccountLab.login(lab.gateway.port, nick: "anna", account: "anna", caps: caps)
        let bert = try AccountLab.login(lab.gateway.port, nick: "bert", account: "bert")
        // The echo is the sender's own text, once, with what the server adds to it.
        anna.send("@label=l1 PRIVMSG bert :heard twice")
        try bert.expectMessage("heard twice")
        let echo = try anna.expectMessage("heard twice")
        #expect(echo.nick == "anna" && echo.parameters.first == "bert")
        #expect(echo.tags["label"] == "l1" && echo.tags["msgid"]?.isEmpty == false && echo.tags["account"] == "anna")
        // Away: the answer in a labelled batch, with the echo.
        bert.send("AWAY :at lunch")
        try bert.expect("306")
        anna.send("@label=l2 PRIVMSG bert :while away")
        try bert.expectMessage("while away")
        let away = try anna.expect("301")
        #expect(away.parameters.contains("bert"))
        try anna.expectMessage("while away")
        // Caller-id: refused by the server, and the request is dead with the reason.
        bert.send("MODE bert +g")
        try bert.expect("MODE")
        anna.send("@label=l3 PRIVMSG bert :not wanted")
        let blocked = try anna.expect("716")
        #expect(blocked.parameters.contains("bert") && blocked.tags["label"].map { $0 == "l3" } ?? true)
        var dead: [[String: Any]] = []
        try eventually("the request is dead") {
            dead = try lab.queue("dead")
            return dead.count == 1
        }
        #expect((dead.first?["reason"] as? String)?.contains("716") == true, "\(dead)")
        #expect(try bert.synchronize().allSatisfy { !$0.text.contains("not wanted") })
        bert.send("MODE bert -g")
        try bert.expect("MODE")
        // What was refused does not hold up what follows, and is not called lost.
        anna.send("PRIVMSG bert :wanted again")
        try bert.expectMessage("wanted again")
        let rest = try anna.synchronize()
        #expect(rest.allSatisfy { !$0.text.contains("?PAWL") && !$0.text.contains("label=pawl") }, "\(rest)")
        #expect(rest.filter { $0.body == "heard twice" || $0.body == "while away" }.isEmpty)
    }

    /// The recipient goes while the gateway cannot know it yet: the backend's 401 reaches the sender.
    @Test(arguments: Backend.allCases) func goneAtTheBackend(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        alice.send("PRIVMSG bob :the first")
        try bob.expectMessage("the first")
        let operatr = try lab.outsider("operatr")
        operatr.send("OPER oper operpassword")
        try operatr.expect("381")
        lab.tap.stall(.fromServer)
        operatr.send("KILL bob :a test")
        try eventually("bob is gone at the backend") {
            operatr.send("ISON bob")
            return try operatr.expect("303").body.isEmpty
        }
        alice.send("PRIVMSG bob :to nobody at all")
        try eventually("it is with the backend") {
            lab.tap.lines(.fromClient).filter { $0.body.hasPrefix("?PAWL:") }.count == 2
        }
        lab.tap.stall(.fromServer, false)
        let answer = try alice.expect("401")
        #expect(answer.parameters.contains("bob"))
        try eventually("the request is dead") {
            (try lab.queue("dead").first?["reason"] as? String)?.contains("401") == true
        }
        try bob.expectEnd()
        #expect(bob.transcript.allSatisfy { !$0.text.contains("nobody at all") })
        #expect(!lab.tap.shows("nobody at all"))
    }

    /// Services are known by their server: a stranger named like one is an outsider.
    @Test func aServiceIsKnownByItsServer() throws {
        let accounts = try AccountLab(accounts: ["anna"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let fake = try lab.outsider("FakeServ")
        let anna = try lab.person("anna")
        anna.send("PRIVMSG FakeServ :IDENTIFY the-password")
        try anna.expect("531")
        fake.send("NOTICE anna :Please identify")
        try anna.expectMessage("[not encrypted] Please identify")
        anna.send("PRIVMSG NickServ :HELP")
        let help = try anna.expect("NickServ's help") { $0.command == "NOTICE" && $0.nick == "NickServ" }
        #expect(!help.body.contains("[not encrypted]"))
        #expect(!lab.tap.shows("the-password"))
        try eventually("counted as exempt", every: .milliseconds(100)) {
            let shares = (try lab.json(["status"]) as? [String: Any])?["shares"] as? [[String: Any]] ?? []
            return shares.contains { $0["exempt"] as? Int == 1 && $0["refused"] as? Int == 1 }
        }
    }
}
