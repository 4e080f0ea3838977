import Foundation
import PeerKit
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
}
