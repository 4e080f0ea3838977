import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// One direction of the traffic.
struct NumberedStream {
    var sent = 0
    var read: [Int] = []

    mutating func collect(_ client: IRCClient, for duration: Duration) {
        for line in client.drain(for: duration) where line.command == "PRIVMSG" {
            // A text that is no number must not go unnoticed.
            read.append(line.body.hasPrefix("number ") ? Int(line.body.dropFirst(7)) ?? -1 : -1)
        }
    }

    /// Between the write to a socket and its mark there is an instant; a process that dies in it shows the lines of that
    /// write again. It must stay rare, and change no order.
    ///
    /// - Parameter bursts: upper bound of such instants.
    /// - Returns: how many lines were shown twice.
    @discardableResult
    func judge(_ envelopes: Set<String>, bursts: Int, _ who: String) -> Int {
        var seen: Set<Int> = []
        let isFirst = read.map { seen.insert($0).inserted }
        let firsts = zip(read, isFirst).filter(\.1).map(\.0)
        // The lines of one write, which are many where the machine is slow, are one instant.
        let repeats = zip(isFirst, isFirst.dropFirst()).count { $0 && !$1 }
        #expect(firsts == firsts.sorted(), "\(who): out of order: \(read)")
        #expect(repeats <= bursts, "\(who): shown twice: \(read)")
        #expect(read.allSatisfy { (0..<sent).contains($0) }, "\(who): \(read)")
        // Each sealed text is sent with the same bytes again and again until it is known to have been opened.
        #expect(envelopes.count == firsts.count, "\(who): the backend has seen so many messages, so many are shown")
        if repeats > 0 { print("\(who): shown twice: \(repeats)") }
        return read.count - firsts.count
    }
}

/// SIGKILL at random moments under traffic in both directions, between two accounts that come back.
@Suite(.blocking, .serialized) struct KillTests {
    private static let rounds = ProcessInfo.processInfo.environment["PAWL_LONG"] == nil ? 10 : 100

    /// The gateway dies, or the gateway and the backend with everything that it knew.
    @Test(arguments: [false, true]) func killedUnderTraffic(withBackend: Bool) throws {
        let rounds = withBackend ? Self.rounds / 3 : Self.rounds
        var generator = SeededGenerator(seed: UInt64.random(in: 0...UInt64.max))
        print("seed of the kills: \(generator.seed)")
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        var toBert = NumberedStream()
        var toAnna = NumberedStream()
        var accepted: Set<String> = []
        for round in 0...rounds {
            let anna = try Self.login(lab, "anna", round)
            let bert = try Self.login(lab, "bert", round)
            guard round < rounds else {
                try finish(lab, anna, bert, &toBert, &toAnna, accepted, rounds)
                break
            }
            // Several writes, so that the death falls between them, too.
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                for _ in 0..<Int.random(in: 5...20, using: &generator) {
                    anna.send("PRIVMSG \(bert.nick) :number \(toBert.sent)")
                    toBert.sent += 1
                }
                for _ in 0..<Int.random(in: 0...10, using: &generator) {
                    bert.send("PRIVMSG \(anna.nick) :number \(toAnna.sent)")
                    toAnna.sent += 1
                }
                toBert.collect(bert, for: .milliseconds(Int.random(in: 1...90, using: &generator)))
            }
            // Half of the deaths come without a pause for the look into the queue.
            if Bool.random(using: &generator) { accepted.formUnion(try Self.ids(lab)) }
            let backendDiesFirst = Bool.random(using: &generator)
            if withBackend, backendDiesFirst { lab.server.kill() }
            lab.gateway.crash()
            if withBackend {
                lab.server.kill()
                try lab.server.start()
            }
            // All that the sockets still hold, however slow this machine is.
            try bert.expectEnd()
            try anna.expectEnd()
            toBert.collect(bert, for: .zero)
            toAnna.collect(anna, for: .zero)
            try lab.gateway.start()
            let missing = accepted.subtracting(try Self.ids(lab))
            #expect(missing.isEmpty, "lost from the store in round \(round): \(missing)")
        }
        print("sent \(toBert.sent) and \(toAnna.sent), read \(toBert.read.count) and \(toAnna.read.count)")
    }

    /// Services are linked again a little after their server has come back.
    static func login(_ lab: Lab, _ account: String, _ round: Int) throws -> IRCClient {
        var attempts = 0
        var found: IRCClient?
        try eventually("a login of \(account)", every: .milliseconds(200)) {
            attempts += 1
            let nick = "\(account)\(round)" + (attempts > 1 ? "x\(attempts)" : "")
            found = try? AccountLab.login(lab.gateway.port, nick: nick, account: account)
            return found != nil
        }
        guard let found else { throw PeerError("no login") }
        return found
    }

    /// What the killed processes had accepted comes first, then one message more in each direction.
    private func finish(
        _ lab: Lab, _ anna: IRCClient, _ bert: IRCClient, _ toBert: inout NumberedStream,
        _ toAnna: inout NumberedStream,
        _ accepted: Set<String>, _ rounds: Int
    ) throws {
        func collect() {
            toBert.collect(bert, for: .milliseconds(50))
            toAnna.collect(anna, for: .milliseconds(50))
        }
        try eventually("nothing is pending") {
            collect()
            return try lab.queue("pending").isEmpty
        }
        anna.send("PRIVMSG \(bert.nick) :number \(toBert.sent)")
        bert.send("PRIVMSG \(anna.nick) :number \(toAnna.sent)")
        let last = (toBert.sent, toAnna.sent)
        toBert.sent += 1
        toAnna.sent += 1
        try? eventually("the last two") {
            collect()
            return toBert.read.last == last.0 && toAnna.read.last == last.1
        }
        #expect(toBert.read.last == last.0 && toAnna.read.last == last.1, "sessions do not go on")
        let dead = try lab.queue("dead")
        #expect(dead.isEmpty, "given up: \(dead)")
        #expect(accepted.isSubset(of: try Self.ids(lab)))
        var envelopes: [String: Set<String>] = ["anna": [], "bert": []]
        for line in lab.tap.lines(.fromClient) where line.command == "PRIVMSG" && line.body.hasPrefix("?PAWL:") {
            envelopes[String(line.parameters[0].prefix(4))]?.insert(line.body)
        }
        toBert.judge(envelopes["bert"] ?? [], bursts: 3 * max(1, rounds / 10), "bert")
        toAnna.judge(envelopes["anna"] ?? [], bursts: 3 * max(1, rounds / 10), "anna")
        #expect(!lab.tap.shows("number "))
    }

    private static func ids(_ lab: Lab) throws -> Set<String> {
        Set(try lab.queue().compactMap { $0["id"] as? String })
    }
}
