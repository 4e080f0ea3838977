import Foundation
import PeerKit
import Testing

/// Services accounts on InspIRCd: identity, latches across restarts, and the process dying under traffic.
@Suite(.serialized) struct AccountTests {
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

    @Test func killedUnderTraffic() throws {
        let rounds = ProcessInfo.processInfo.environment["PAWL_LONG"] == nil ? 10 : 100
        var generator = Seeded(seed: UInt64.random(in: 0...UInt64.max))
        print("seed of the kills: \(generator.seed)")
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        var sent = 0
        var read: [Int] = []
        func hear(_ client: IRCClient, for duration: Duration) {
            for line in client.drain(for: duration) where line.command == "PRIVMSG" {
                if let number = Int(line.body.split(separator: " ").last ?? "") { read.append(number) }
            }
        }
        for round in 0..<rounds {
            let anna = try AccountLab.login(lab.gateway.port, nick: "anna\(round)", account: "anna")
            let bert = try AccountLab.login(lab.gateway.port, nick: "bert\(round)", account: "bert")
            // Both are here: what a killed process had accepted comes first.
            let burst = Int.random(in: 20...60, using: &generator)
            for _ in 0..<burst {
                anna.send("PRIVMSG bert\(round) :number \(sent)")
                sent += 1
            }
            hear(bert, for: .milliseconds(Int.random(in: 1...500, using: &generator)))
            lab.gateway.crash()
            hear(bert, for: .milliseconds(50))
            try lab.gateway.start()
        }
        let anna = try AccountLab.login(lab.gateway.port, nick: "annaX", account: "anna")
        let bert = try AccountLab.login(lab.gateway.port, nick: "bertX", account: "bert")
        // First what the killed processes had accepted, then one more message.
        try eventually("nothing pending", timeout: .seconds(30)) {
            hear(bert, for: .milliseconds(50))
            return !(try lab.gateway.admin(["queue", "--state", "pending", "--json"]).stdout.contains("\"id\""))
        }
        anna.send("PRIVMSG bertX :number \(sent)")
        sent += 1
        let deadline = Deadline(.seconds(20))
        while read.last != sent - 1, !deadline.hasPassed { hear(bert, for: .milliseconds(100)) }
        let queue = try lab.gateway.admin(["queue", "--limit", "2000"]).stdout.suffix(1500)
        #expect(
            read.last == sent - 1, "sessions do not go on; bert: \(bert.transcript.suffix(8)); the queue: \(queue)")
        // Between the write to a socket and its mark in the journal there is an instant; a process that dies in it shows
        // the lines of that write again. It must stay rare, and change no order.
        var seen: Set<Int> = []
        let firsts = read.filter { seen.insert($0).inserted }
        #expect(firsts == firsts.sorted(), "out of order: \(read)")
        let repeats = read.count - firsts.count
        #expect(repeats <= 3 * max(1, rounds / 10), "\(repeats) lines were shown twice")
        // What was accepted is not lost from the store: nothing was given up.
        let dead = try lab.gateway.admin(["queue", "--state", "dead", "--json"]).stdout
        #expect(!dead.contains("\"id\""), "dead: \(dead)")
        print("sent \(sent), read \(read.count), shown twice \(repeats)")
    }
}

/// A generator that gives the same numbers for a seed.
struct Seeded: RandomNumberGenerator {
    let seed: UInt64
    private var state: UInt64

    init(seed: UInt64) {
        self.seed = seed
        state = seed
    }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
