import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Services accounts on InspIRCd: identity, and latches across restarts.
@Suite(.blocking, .serialized) struct AccountTests {
    @Test func loginsServicesAndLatches() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(
            accounts.server, policy: "hosted", environment: ["PAWL_SERVICES": "*Serv server=\(InspIRCd.servicesName)"])
        defer {
            lab.stop()
            accounts.services.stop()
        }
        // A password passes to the service and is nowhere in the data directory.
        let first = try lab.person("anna")
        first.send("PRIVMSG NickServ :IDENTIFY \(AccountLab.password)")
        try first.expect("900")
        for name in try FileManager.default.contentsOfDirectory(atPath: lab.gateway.dataDirectory) {
            let bytes = FileManager.default.contents(atPath: lab.gateway.dataDirectory + "/" + name) ?? Data()
            #expect(bytes.range(of: Data(AccountLab.password.utf8)) == nil, "\(name) holds a password")
        }
        let bert = try AccountLab.login(lab.gateway.port, nick: "bert", account: "bert")
        first.send("PRIVMSG bert :for the account")
        try bert.expectMessage("for the account")
        // The latch outlives the process; another nick of the account is the same account.
        try lab.gateway.restart()
        let again = try AccountLab.login(lab.gateway.port, nick: "anna2", account: "anna")
        let other = try AccountLab.login(lab.gateway.port, nick: "bert2", account: "bert")
        let list = try lab.gateway.admin(["conversations", "list", "--json"]).stdout
        #expect(list.contains("\"anna\"") && list.contains("\"bert\""))
        again.send("PRIVMSG bert2 :after the restart")
        try other.expectMessage("after the restart")
        // A stranger under the old nick is an account of its own.
        let stranger = try lab.person("bert")
        again.send("PRIVMSG bert :for the stranger")
        try stranger.expectMessage("for the stranger")
        #expect(try other.synchronize().allSatisfy { !$0.body.contains("for the stranger") })
        #expect(!lab.tap.shows("for the account") && !lab.tap.shows("for the stranger"))
    }

    /// One account under `hosted` protects its private conversations. Rooms stay as they are, until `--with-rooms`.
    @Test func oneProtectedAccountDoesNotProtectRooms() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "observe")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let anna = try AccountLab.login(lab.gateway.port, nick: "anna", account: "anna")
        let bert = try AccountLab.login(lab.gateway.port, nick: "bert", account: "bert")
        let carl = try lab.outsider("carl")
        for person in [anna, bert, carl] {
            person.send("JOIN #room")
            try person.expect("366")
        }
        anna.send("PRIVMSG bert :observed")
        try bert.expectMessage("observed")
        try eventually("it is written down", every: .milliseconds(100)) {
            let reports = try lab.json(["policy", "simulate", "hosted"]) as? [[String: Any]]
            return (reports?.first?["latches"] as? [[String: Any]] ?? []).contains {
                $0["conversation"] as? String == "anna and bert"
            }
        }
        // What is protected for good is listed before, and nothing is changed without a confirmation.
        let asked = try lab.gateway.admin(["policy", "set", "hosted", "--account", "anna"])
        #expect(asked.status == .exited(75) && asked.stderr.contains("anna and bert"), "\(asked)")
        #expect(!asked.stderr.contains("#room"))
        #expect(try lab.gateway.admin(["policy", "get"]).stdout.contains("anna") == false)
        let token = try #require(asked.token)
        let words = ["policy", "set", "hosted", "--account", "anna"]
        #expect(try lab.gateway.admin(words + ["--confirm", token]).succeeded)
        anna.send("PRIVMSG #room :room-one")
        try carl.expectMessage("room-one")
        try anna.expect("a notice") { $0.command == "NOTICE" && $0.body.contains(Notices.roomNotProtected("#room")) }
        bert.send("PRIVMSG #room :room-two")
        try carl.expectMessage("room-two")
        anna.send("PRIVMSG bert :private-one")
        try bert.expectMessage("private-one")
        #expect(lab.tap.shows("room-two") && !lab.tap.shows("private-one"))
        #expect(try lab.gateway.admin(["conversations", "list"]).stdout.contains("#room") == false)
        // With rooms: the room is listed, with who could not read it any more.
        let rooms = try lab.gateway.admin(words + ["--with-rooms", "--json"])
        #expect(rooms.status == .exited(75), "\(rooms)")
        let forecast = try JSONSerialization.jsonObject(with: Data(rooms.stdout.utf8)) as? [String: Any]
        let rises = try #require(forecast?["rises"] as? [[String: Any]])
        #expect(rises.map { $0["conversation"] as? String } == ["#room"])
        #expect(rises.first?["outsiders"] as? [String] == ["carl"])
        #expect(try lab.gateway.admin(words + ["--with-rooms", "--yes"]).succeeded)
        try lab.gateway.restart()
        #expect(try lab.gateway.admin(["policy", "get"]).stdout.contains("with rooms"))
        let again = try AccountLab.login(lab.gateway.port, nick: "anna2", account: "anna")
        let other = try AccountLab.login(lab.gateway.port, nick: "bert2", account: "bert")
        for person in [again, other] {
            person.send("JOIN #room")
            try person.expect("366")
        }
        again.send("PRIVMSG #room :room-three")
        try other.expectMessage("room-three")
        #expect(!lab.tap.shows("room-three"))
    }
}
