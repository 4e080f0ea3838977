import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// The policy table between services accounts, each cell in three ways to say something.
@Suite(.blocking, .serialized) struct AccountCellTests {
    enum Cell { case reads, refused, marked, withheld }

    /// What a policy does with messages between two behind the gateway, to somebody outside, and from there.
    static let table: [(policy: String, behind: Cell, outward: Cell, inward: Cell)] = [
        ("off", .reads, .reads, .reads),
        ("observe", .reads, .reads, .reads),
        ("opportunistic", .reads, .reads, .reads),
        ("hosted", .reads, .refused, .marked),
        ("required", .refused, .refused, .withheld),
    ]

    @Test func everyCell() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert", "carl"])
        defer { accounts.services.stop() }
        for row in Self.table {
            try cells(row.policy, row.behind, row.outward, row.inward, accounts)
        }
    }

    private func cells(
        _ policy: String, _ behind: Cell, _ outward: Cell, _ inward: Cell, _ accounts: AccountLab
    ) throws {
        let lab = try Lab(accounts.server, policy: policy)
        defer {
            lab.gateway.stop()
            lab.tap.stop()
        }
        let anna = try AccountLab.login(lab.gateway.port, nick: "anna-\(policy)", account: "anna")
        let bert = try AccountLab.login(lab.gateway.port, nick: "bert-\(policy)", account: "bert")
        let carl = try AccountLab.login(accounts.server.port, nick: "carl-\(policy)", account: "carl")
        for (number, way) in PolicyCellTests.ways.enumerated() {
            for (from, to) in [(anna, bert), (bert, anna)] {
                try check(behind, from, to, way, "\(policy)-behind-\(number)-\(from.nick)")
            }
            try check(outward, anna, carl, way, "\(policy)-outward-\(number)")
            try check(inward, carl, bert, way, "\(policy)-inward-\(number)")
        }
        // What the backend was shown: nothing of people behind the gateway, or each of their texts.
        let isPlain = behind == .reads && outward == .reads
        for number in PolicyCellTests.ways.indices {
            for secret in ["behind-\(number)-anna", "behind-\(number)-bert", "outward-\(number)"] {
                #expect(lab.tap.shows("\(policy)-\(secret)") == isPlain, "\(policy): \(secret)")
            }
            #expect(lab.tap.shows("\(policy)-inward-\(number)"))
        }
        #expect(lab.tap.shows("?PAWL:") == (policy == "hosted"))
        for person in [anna, bert, carl] {
            #expect(person.transcript.allSatisfy { !$0.text.contains("?PAWL") }, "\(policy): \(person.nick) saw Base64")
            person.send("QUIT")
            try person.expectEnd()
        }
    }

    private func check(
        _ cell: Cell, _ from: IRCClient, _ to: IRCClient, _ way: (verb: String, before: String, after: String),
        _ secret: String
    ) throws {
        from.send("\(way.verb) \(to.nick) :\(way.before)\(secret)\(way.after)")
        switch cell {
        case .reads:
            let line = try to.expectMessage("\(way.before)\(secret)\(way.after)")
            #expect(line.command == way.verb && line.nick == from.nick)
        case .marked:
            let line = try to.expectMessage("\(way.before)[not encrypted] \(secret)\(way.after)")
            #expect(line.command == way.verb && line.nick == from.nick)
        case .refused:
            let line = try from.expect("refusal of \(secret)") { $0.command == "531" }
            #expect(line.parameters.contains(to.nick) && line.body.hasPrefix("Not sent"))
            #expect(try to.synchronize().allSatisfy { !$0.text.contains(secret) })
        case .withheld:
            try to.expect("remark on \(secret)") {
                $0.command == "NOTICE" && $0.body.contains("withheld") && $0.body.contains(from.nick)
            }
            #expect(to.transcript.allSatisfy { !$0.text.contains(secret) })
        }
    }

    /// Passing is counted, and so is what stricter policies would have done, by name.
    @Test func whatPassesIsCounted() throws {
        let lab = try Lab(try InspIRCd(), policy: "observe")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let carol = try lab.outsider("carol")
        for number in 0..<4 {
            alice.send("PRIVMSG bob :counted \(number)")
            try bob.expectMessage("counted \(number)")
        }
        alice.send("PRIVMSG carol :counted too")
        try carol.expectMessage("counted too")
        try eventually("all five are in the status", every: .milliseconds(100)) {
            let status = try lab.json(["status"]) as? [String: Any]
            let shares = status?["shares"] as? [[String: Any]] ?? []
            return shares.contains { $0["plaintext"] as? Int == 5 && $0["gateway"] as? Int == 0 }
        }
        try eventually("the simulation knows carol", every: .milliseconds(100)) {
            let reports = try lab.json(["policy", "simulate", "hosted"]) as? [[String: Any]]
            let refused = reports?.first?["refused"] as? [[String: Any]] ?? []
            return refused.count == 1 && refused[0]["sender"] as? String == "alice"
                && refused[0]["target"] as? String == "carol" && refused[0]["messages"] as? Int == 1
        }
        let required = try lab.json(["policy", "simulate", "required"]) as? [[String: Any]]
        #expect(required?.first?["refusedMessages"] as? Int == 5)
    }
}

extension Lab {
    /// What an admin command answers with `--json`.
    func json(_ words: [String]) throws -> Any {
        let output = try gateway.admin(words + ["--json"])
        guard output.succeeded else { throw PeerError("\(words): \(output.stderr)") }
        return try JSONSerialization.jsonObject(with: Data(output.stdout.utf8))
    }

    /// Whether somebody of that name is connected now.
    func isHere(_ name: String) throws -> Bool {
        let rows = try json(["users"]) as? [[String: Any]] ?? []
        return rows.contains { $0["name"] as? String == name && $0["connected"] as? Bool == true }
    }

    /// The requests of a state.
    func queue(_ state: String? = nil) throws -> [[String: Any]] {
        let words = ["queue", "--limit", "100000"] + (state.map { ["--state", $0] } ?? [])
        return try json(words) as? [[String: Any]] ?? []
    }
}
