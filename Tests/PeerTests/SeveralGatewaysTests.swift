import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Several gateways on one database, of which one serves: faults under traffic of real clients through HAProxy.
@Suite(.blocking, .serialized, .enabled(if: PostgreSQL.obstacle == nil, "no PostgreSQL can run here"))
struct SeveralGatewaysTests {
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil

    /// Two accounts that write to each other, and that log in again at the gateway that serves.
    private final class People {
        let accounts: AccountLab
        let tap: WireTap
        let lab: GatewaysLab
        private(set) var anna: IRCClient
        private(set) var bert: IRCClient
        private(set) var toAnna = NumberedStream()
        private(set) var toBert = NumberedStream()
        private var logins = 0

        init(policy: String, count: Int = 2) throws {
            accounts = try AccountLab(accounts: ["anna", "bert"])
            tap = try WireTap(backend: accounts.server.port)
            lab = try GatewaysLab(upstream: tap.port, policy: policy, count: count)
            anna = try Self.login(lab, "anna", 0)
            bert = try Self.login(lab, "bert", 0)
        }

        func stop() {
            lab.stop()
            tap.stop()
            accounts.services.stop()
            accounts.server.stop()
        }

        private static func login(_ lab: GatewaysLab, _ account: String, _ number: Int) throws -> IRCClient {
            var attempts = 0
            var found: IRCClient?
            try eventually("a login of \(account)", every: .milliseconds(50)) {
                attempts += 1
                // A nick of before may be in use for a moment.
                let nick = "\(account)\(number)" + (attempts > 1 ? "x\(attempts)" : "")
                let client = try? IRCClient(port: lab.port)
                guard
                    (try? client?.register(
                        nick: nick, caps: ["sasl"], login: (account, AccountLab.password), timeout: .seconds(20)))
                        != nil
                else { return false }
                found = client
                return true
            }
            guard let found else { throw PeerError("no login") }
            return found
        }

        /// Both log in anew; their old connections are returned.
        func loginAgain() throws -> (anna: IRCClient, bert: IRCClient) {
            defer { logins += 1 }
            let old = (anna, bert)
            anna = try Self.login(lab, "anna", logins + 1)
            bert = try Self.login(lab, "bert", logins + 1)
            return old
        }

        /// Lines in both directions, in several writes.
        func talk(_ generator: inout SeededGenerator) {
            for _ in 0..<Int.random(in: 1...3, using: &generator) {
                for _ in 0..<Int.random(in: 5...20, using: &generator) { sendToBert() }
                for _ in 0..<Int.random(in: 1...10, using: &generator) {
                    bert.send("PRIVMSG \(anna.nick) :number \(toAnna.sent)")
                    toAnna.sent += 1
                }
                toBert.collect(bert, for: .milliseconds(Int.random(in: 1...90, using: &generator)))
            }
        }

        /// Lines that are under way when the caller goes on.
        func burst(_ generator: inout SeededGenerator) {
            for _ in 0..<Int.random(in: 0...20, using: &generator) {
                sendToBert()
                bert.send("PRIVMSG \(anna.nick) :number \(toAnna.sent)")
                toAnna.sent += 1
            }
        }

        func sendToBert() {
            anna.send("PRIVMSG \(bert.nick) :number \(toBert.sent)")
            toBert.sent += 1
        }

        /// Reads what connections that have ended still hold.
        func collectEnded(_ old: (anna: IRCClient, bert: IRCClient)) throws {
            for client in [old.anna, old.bert] { try client.expectEnd() }
            toBert.collect(old.bert, for: .zero)
            toAnna.collect(old.anna, for: .zero)
        }

        func collect(for duration: Duration) {
            toBert.collect(bert, for: duration)
            toAnna.collect(anna, for: duration)
        }

        /// All that was accepted is shown, and one message more in each direction; then everything is counted.
        ///
        /// - Parameter bursts: how many gateways died between a write to a client and its mark.
        func finish(_ accepted: Set<String>, bursts: Int) throws {
            let serving = try lab.serving()
            try eventually("nothing is pending") {
                collect(for: .milliseconds(50))
                return try lab.rows(serving, "pending").isEmpty
            }
            sendToBert()
            bert.send("PRIVMSG \(anna.nick) :number \(toAnna.sent)")
            toAnna.sent += 1
            try? eventually("the last two") {
                collect(for: .milliseconds(50))
                return toBert.read.last == toBert.sent - 1 && toAnna.read.last == toAnna.sent - 1
            }
            #expect(toBert.read.last == toBert.sent - 1 && toAnna.read.last == toAnna.sent - 1, "sessions do not go on")
            let dead = try lab.rows(serving, "dead")
            #expect(dead.isEmpty, "given up: \(dead)")
            #expect(accepted.isSubset(of: try lab.ids(serving)))
            var envelopes: [String: Set<String>] = ["anna": [], "bert": []]
            for line in tap.lines(.fromClient) where line.command == "PRIVMSG" && line.body.hasPrefix("?PAWL:") {
                envelopes[String(line.parameters[0].prefix(4))]?.insert(line.body)
            }
            let twice =
                toBert.judge(envelopes["bert"] ?? [], bursts: bursts, "bert")
                + toAnna.judge(envelopes["anna"] ?? [], bursts: bursts, "anna")
            try lab.expectAllWasReadable(serving)
            #expect(!tap.shows("number "))
            print(
                "sent \(toBert.sent) and \(toAnna.sent), read \(toBert.read.count) and \(toAnna.read.count), twice \(twice)"
            )
        }
    }

    /// Nothing that a gateway accepted is lost or out of order, whatever happens to it, and no session breaks.
    @Test func faultsUnderTraffic() throws {
        var generator = SeededGenerator(seed: UInt64.random(in: 0...UInt64.max))
        print("seed of the faults: \(generator.seed)")
        let people = try People(policy: "hosted")
        defer { people.stop() }
        let lab = people.lab
        let faults = GatewayFault.allCases
        let rounds = Self.isLong ? 100 : faults.count
        var accepted: Set<String> = []
        for round in 0..<rounds {
            people.talk(&generator)
            let serving = try lab.serving()
            // Half of the faults come without a pause for the look into the queue.
            if Bool.random(using: &generator) { accepted.formUnion(try lab.ids(serving)) }
            var old = (anna: people.anna, bert: people.bert)
            let process = lab.gateways[serving].pid
            people.burst(&generator)
            let next = try faults[round % faults.count].happen(to: lab) { _ in
                // What it had written before it was stopped has arrived by now.
                people.collect(for: .milliseconds(200))
                old = try people.loginAgain()
                people.talk(&generator)
                // It gets this when it runs again, and must neither show it nor send anything for it.
                old.anna.send("PRIVMSG \(old.bert.nick) :number -2")
                people.sendToBert()
            }
            // A gateway without a commit under way goes on when the database is back.
            if next != serving || lab.gateways[next].pid != process {
                if people.anna === old.anna { old = try people.loginAgain() }
                try people.collectEnded(old)
            }
            let missing = accepted.subtracting(try lab.ids(next))
            #expect(missing.isEmpty, "lost from the database in round \(round): \(missing)")
        }
        try people.finish(accepted, bursts: rounds)
    }

    /// All gateways are restarted one after the other, as in an upgrade: nothing is lost, and nothing is shown twice.
    @Test func aRollingUpgradeUnderTraffic() throws {
        var generator = SeededGenerator(seed: UInt64.random(in: 0...UInt64.max))
        print("seed of the upgrade: \(generator.seed)")
        let people = try People(policy: "hosted", count: 3)
        defer { people.stop() }
        let lab = people.lab
        // Those that stand by first.
        let first = try lab.serving()
        for (number, gateway) in lab.gateways.enumerated() where number != first {
            people.talk(&generator)
            #expect(gateway.stop() == .exited(0))
            try gateway.start()
            #expect(lab.ready(number) == 503)
        }
        people.talk(&generator)
        let accepted = try lab.ids(first)
        people.burst(&generator)
        let next = try GatewayFault.drain.happen(to: lab)
        try people.collectEnded(try people.loginAgain())
        people.talk(&generator)
        #expect(next != first)
        try people.finish(accepted, bursts: 0)
    }

    /// The order of what happens around a killed gateway: at no time do two of them serve, nobody is connected before the
    /// next one serves, and `pawl gateways` shows it.
    @Test func theOrderOfEventsAroundAKill() throws {
        let server = try NgIRCd()
        let lab = try GatewaysLab(upstream: server.port, policy: "hosted", count: 3)
        defer {
            lab.stop()
            server.stop()
        }
        let first = try lab.serving()
        let standbys = lab.gateways.indices.filter { $0 != first }
        let watcher = try #require(standbys.first)
        // Each one tells what it has read with its last beat.
        try eventually("pawl gateways before", every: .milliseconds(100)) {
            let states = try lab.states(watcher)
            return states[GatewaysLab.name(first)] == "serving"
                && standbys.allSatisfy { states[GatewaysLab.name($0)] == "standing-by" }
        }
        for number in standbys { #expect(lab.ready(number) == 503) }
        let client = try IRCClient(port: lab.port)
        try client.register(nick: "before", caps: nil)

        let killed = ContinuousClock.now
        lab.gateways[first].crash()
        #expect(try client.expectEnd() == .closed)
        var events: [String] = []
        func note(_ event: String) { if events.last != event { events.append(event) } }
        var found: IRCClient?
        try eventually("a client is connected again", every: .milliseconds(10)) {
            let servingNow = standbys.filter { lab.ready($0) == 200 }
            #expect(servingNow.count <= 1)
            note(servingNow.isEmpty ? "nobody serves" : "\(servingNow[0]) serves")
            guard let next = try? IRCClient(port: lab.port), (try? next.register(nick: "after", caps: nil)) != nil
            else {
                return false
            }
            note("connected")
            found = next
            return true
        }
        print("connected again after \(ContinuousClock.now - killed) at the default lease")
        let next = try lab.serving()
        // The look and the try to connect are two acts: the next gateway may begin to serve between them.
        let orders = [["nobody serves", "\(next) serves", "connected"], ["nobody serves", "connected"]]
        #expect(orders.contains(events) || events == ["\(next) serves", "connected"], "\(events)")
        #expect(found != nil)
        try eventually("pawl gateways after the kill", every: .milliseconds(100)) {
            let states = try lab.states(next)
            #expect(states.values.count { $0 == "serving" } <= 1, "\(states)")
            return states[GatewaysLab.name(next)] == "serving" && states[GatewaysLab.name(first)] == nil
        }
        // Started again, it stands by.
        try lab.gateways[first].start()
        #expect(lab.ready(first) == 503)
        try eventually("it stands by", every: .milliseconds(100)) {
            try lab.states(next)[GatewaysLab.name(first)] == "standing-by"
        }
    }

    /// A stricter policy that has returned at one gateway is in force at the next one.
    @Test func aStricterPolicyOutlivesItsGateway() throws {
        let people = try People(policy: "observe")
        defer { people.stop() }
        let lab = people.lab
        people.anna.send("PRIVMSG \(people.bert.nick) :in the clear")
        try people.bert.expectMessage("in the clear")
        #expect(people.tap.shows("in the clear"))
        let first = try lab.serving()
        let answer = try lab.gateways[first].admin(["policy", "set", "hosted", "--yes"])
        #expect(answer.succeeded, "\(answer)")
        lab.gateways[first].crash()
        let next = try lab.serving()
        #expect(try lab.gateways[next].admin(["policy", "get"]).stdout.contains("hosted"))
        _ = try people.loginAgain()
        people.anna.send("PRIVMSG \(people.bert.nick) :never in the clear")
        try people.bert.expectMessage("never in the clear")
        #expect(!people.tap.shows("never in the clear"))
    }

    /// A gateway that was stopped while the policy became stricter at another one passes on no plaintext when it runs again.
    @Test func aGatewayThatWasStoppedPassesOnNoPlaintext() throws {
        let people = try People(policy: "observe")
        defer { people.stop() }
        let lab = people.lab
        let (anna, bert) = (people.anna, people.bert)
        anna.send("PRIVMSG \(bert.nick) :in the clear")
        try bert.expectMessage("in the clear")
        _ = try GatewayFault.stop.happen(to: lab) { stopped in
            let next = try lab.serving(except: stopped)
            let answer = try lab.gateways[next].admin(["policy", "set", "hosted", "--yes"])
            #expect(answer.succeeded, "\(answer)")
            anna.send("PRIVMSG \(bert.nick) :too late for plaintext")
            bert.send("PRIVMSG \(anna.nick) :too late as well")
        }
        try anna.expectEnd()
        try bert.expectEnd()
        for text in ["too late for plaintext", "too late as well"] {
            #expect(!people.tap.shows(text), "the backend saw: \(text)")
            #expect([anna, bert].allSatisfy { client in !client.transcript.contains { $0.body == text } })
        }
        _ = try people.loginAgain()
        people.anna.send("PRIVMSG \(people.bert.nick) :sealed now")
        try people.bert.expectMessage("sealed now")
        #expect(!people.tap.shows("sealed now"))
    }

    /// A gateway that serves and one that sees it and stands by.
    private static func pair(_ lab: GatewaysLab) throws -> (first: Int, next: Int) {
        let first = try lab.serving()
        let next = try #require(lab.gateways.indices.first { $0 != first })
        try eventually("the other one stands by") {
            try lab.states(first)[GatewaysLab.name(next)] == "standing-by"
                && lab.states(next)[GatewaysLab.name(first)] == "serving"
        }
        return (first, next)
    }

    /// A gateway that is asked to drain while it takes over ends when it has loaded the store, and not only its row says so.
    @Test(arguments: [true, false]) func aDrainDuringATakeover(throughDatabase: Bool) throws {
        let server = try NgIRCd()
        let lab = try GatewaysLab(upstream: server.port, policy: "hosted")
        defer {
            lab.stop()
            server.stop()
        }
        let (first, next) = try Self.pair(lab)
        let name = GatewaysLab.name(next)
        let lock = try lab.database.lock("pawl.policy", "ACCESS EXCLUSIVE")
        lab.gateways[first].crash()
        try lock.waitForOthers()
        #expect(try lab.states(next)[name] == "serving" && lab.ready(next) == 503)
        let words = throughDatabase ? ["gateways", "drain", name, "--yes"] : ["drain"]
        let output = try lab.gateways[next].admin(words)
        #expect(output.succeeded, "\(output)")
        if throughDatabase {
            try eventually("it has read it") {
                try lab.database.query("SELECT draining FROM pawl.gateway WHERE name = '\(name)'") == "1"
            }
        }
        try lock.release()
        try eventually("its end") { !lab.gateways[next].isRunning }
        #expect(lab.gateways[next].stop() == .exited(0), "\(lab.gateways[next].output)")
    }

    /// A gateway that drains beats on while its commit waits, and no other one takes over from it.
    @Test func aDrainWhoseCommitWaits() throws {
        let server = try NgIRCd()
        let lab = try GatewaysLab(upstream: server.port, policy: "hosted")
        defer {
            lab.stop()
            server.stop()
        }
        let (first, next) = try Self.pair(lab)
        let name = GatewaysLab.name(first)
        let lock = try lab.database.lock("pawl.audit", "EXCLUSIVE")
        let output = try lab.gateways[next].admin(["gateways", "drain", name])
        #expect(output.succeeded, "\(output)")
        try lock.waitForOthers()
        func beat() throws -> Int {
            Int(try lab.database.query("SELECT beat FROM pawl.gateway WHERE name = '\(name)'")) ?? -1
        }
        let before = try beat()
        // More beats than the readings of a suspicion.
        try eventually("its beat rises") { try beat() >= before + 10 }
        try lock.release()
        try eventually("its end") { !lab.gateways[first].isRunning }
        #expect(lab.gateways[first].stop() == .exited(0), "\(lab.gateways[first].output)")
        #expect(try lab.serving() == next)
    }

    /// A gateway that is stopped inside a commit and taken over from ends as one that was taken over from.
    @Test func aGatewayIsStoppedInACommit() throws {
        let people = try People(policy: "hosted")
        defer { people.stop() }
        let lab = people.lab
        let (first, next) = try Self.pair(lab)
        // So that the statement is prepared: its outcome is unknown only after that.
        for number in 0..<4 {
            people.anna.send("PRIVMSG \(people.bert.nick) :before \(number)")
            try people.bert.expectMessage("before \(number)")
        }
        let lock = try lab.database.lock("pawl.queue_request", "EXCLUSIVE")
        people.anna.send("PRIVMSG \(people.bert.nick) :under way")
        try lock.waitForOthers()
        lab.gateways[first].signal(SIGSTOP)
        try eventually("the other one owns the shards") {
            try lab.states(next)[GatewaysLab.name(next)] == "serving"
        }
        try lock.release()
        #expect(try lab.serving(except: first) == next)
        lab.gateways[first].signal(SIGCONT)
        try eventually("its end") { !lab.gateways[first].isRunning }
        #expect(lab.gateways[first].stop() == .exited(76), "\(lab.gateways[first].output)")
    }

    /// Gateways whose tables are gone have failed, and a service manager starts them again; they were not stopped.
    @Test func gatewaysWithoutTheirTablesFail() throws {
        let server = try NgIRCd()
        let lab = try GatewaysLab(upstream: server.port, policy: "hosted")
        defer {
            lab.stop()
            server.stop()
        }
        _ = try lab.serving()
        _ = try lab.database.query("DROP SCHEMA pawl CASCADE")
        for gateway in lab.gateways {
            try eventually("its end") { !gateway.isRunning }
            #expect(gateway.stop() == .exited(1), "\(gateway.output)")
        }
    }

    /// A start in an outage of the database waits for a while, so that a service manager does not give the gateway up.
    @Test func aStartWaitsForTheDatabase() throws {
        let database = try PostgreSQL()
        database.stop()
        let scratch = try ScratchDirectory()
        let port = try FreePort()
        let gateway = try ChildProcess(
            PawlProcess.binary(),
            ["serve", "--listen", "irc://127.0.0.1:\(port.number)", "--data", scratch.file("data"), "--metrics", ""],
            environment: ["PAWL_STORE_URL": database.url])
        defer { gateway.stop() }
        try gateway.waitForOutput("tried again")
        try database.start()
        // On a machine that is slow it may have given up.
        try eventually("it is ready, or has ended") {
            gateway.stdout.contains("pawl is ready") || gateway.exitStatus == .exited(1)
        }
    }

    // MARK: HTTP

    /// Writes of a client that repeats what was not answered, under the same id: the chat has each once and in order, and
    /// the next gateway reads what the one before has sealed.
    @Test func faultsUnderTrafficOverHTTP() throws {
        let backend = try ChatBackendProcess()
        let lab = try GatewaysLab(
            upstream: backend.port, policy: "hosted", scheme: "http",
            environment: ["PAWL_MAPPING": JSONLab.mapping("generic"), "PAWL_QUEUE_CREDENTIALS": "sealed"])
        defer {
            lab.stop()
            backend.stop()
        }
        let alice = try ChatPerson("alice", port: lab.port)
        let bob = try ChatPerson("bob", port: lab.port)
        _ = try bob.ask("GET", "/me")
        let faults: [GatewayFault] = [.kill, .database, .drain, .stop]
        let rounds = Self.isLong ? 100 : 2
        for round in 0..<rounds {
            let conversation = "c\(round)"
            try Self.repeated {
                try alice.ask("POST", "/conversations", ["id": .string(conversation), "members": ["bob"]])
            }
            var texts: [String] = []
            func post() throws {
                let text = "number \(texts.count) of \(round)"
                let id = "id-\(round)-\(texts.count)"
                try Self.repeated {
                    let answer = try alice.tryPosting(text, in: conversation, id: id)
                    guard (200..<300).contains(answer.status) else { throw PeerError("\(answer.status)") }
                }
                texts.append(text)
            }
            for _ in 0..<4 { try post() }
            // One is under way when it happens; its client asks again.
            let under = "id-\(round)-\(texts.count)"
            let body: JSONValue = ["id": .string(under), "text": .string("number \(texts.count) of \(round)")]
            let pending = try alice.begin("POST", "/conversations/\(conversation)/messages", body)
            _ = try faults[round % faults.count].happen(to: lab)
            pending.hangUp()
            for _ in 0..<4 { try post() }
            try eventually("all of \(conversation)", every: .milliseconds(100)) {
                (try? bob.texts(conversation)) == texts
            }
            #expect(try bob.texts(conversation) == texts)
        }
        // The keys of the first conversation are those of a gateway that ended long ago.
        #expect(try bob.texts("c0").count == 8)
        let stored = try backend.messages().map { $0["text"].string ?? "" }
        #expect(stored.count == rounds * 8 && stored.allSatisfy { !$0.contains("number") }, "\(stored.count) messages")
        try lab.expectAllWasReadable(try lab.serving())
        let posts = try backend.received().filter {
            $0["method"] == "POST" && ($0["target"].string ?? "").hasSuffix("/messages")
        }
        print("\(stored.count) messages, sent \(posts.count) times to the backend")
    }

    /// Until it succeeds, as clients do that lose their connection.
    private static func repeated(_ body: () throws -> Void) throws {
        var last: any Error = PeerError("it was not tried")
        do {
            try eventually("an answer", every: .milliseconds(50)) {
                do {
                    try body()
                    return true
                } catch {
                    last = error
                    return false
                }
            }
        } catch {
            throw PeerError("\(error): \(last)")
        }
    }

    // MARK: Pages

    /// Commands and statements of OPERATIONS that need a database, as they stand there.
    @Test func theCommandsOfThePage() throws {
        let lab = try GatewaysLab(upstream: 1, policy: "hosted", count: 3)
        defer { lab.stop() }
        let first = try #require(
            lab.gateways.indices.first { (try? lab.states($0)[GatewaysLab.name($0)]) == "serving" })
        let watcher = first == 0 ? 1 : 0
        let killed = try #require(lab.gateways.indices.first { $0 != first && $0 != watcher })
        lab.gateways[killed].crash()
        try eventually("the killed one is silent", every: .milliseconds(200)) {
            try lab.states(watcher)[GatewaysLab.name(killed)] == "silent"
        }
        var count = 0
        for command in try PageCommand.all(of: "deploy/OPERATIONS.md") {
            guard command.begins("pawl gateways") || command.begins("pawl shards") else { continue }
            count += 1
            var text = command.text.replacing("gateway1", with: GatewaysLab.name(first))
            if text.contains("ID") {
                let list = try lab.gateways[watcher].admin(["gateways", "--json"]).json["gateways"].array
                let row = try #require(list.first { $0["state"].string == "silent" })
                text = text.replacing("ID", with: row["id"].string ?? "-")
            }
            let words = text.split(separator: " ").dropFirst().map(String.init)
            let output = try lab.gateways[watcher].admin(words)
            #expect(output.succeeded && !output.stdout.isEmpty, "\(command.place): \(output)")
        }
        #expect(count == 4)
        try eventually("end of the gateway that drains") { !lab.gateways[first].isRunning }
        try eventually("the other one serves") { try lab.states(watcher)[GatewaysLab.name(watcher)] == "serving" }
        // What needs the store is refused at a standby, with the name of the one that serves.
        try lab.gateways[first].start()
        let refused = try lab.gateways[first].admin(["policy", "get"])
        #expect(
            refused.failureCode == "standing-by" && refused.stderr.contains(GatewaysLab.name(watcher)), "\(refused)")
        #expect(try lab.gateways[first].admin(["status"]).succeeded)
        // What the alerts ask for is there, at a standby and at the one that serves.
        let alerts = try String(contentsOfFile: GatewaysLab.alerts, encoding: .utf8)
        let names = Set(alerts.matches(of: /pawl_[a-z_]+/).map { String($0.output) })
        for number in [first, watcher] {
            let samples = Set(try lab.samples(number).keys.map { String($0.prefix { $0 != "{" }) })
            #expect(names.count > 3 && names.isSubset(of: samples), "\(names.subtracting(samples))")
        }

        let page = try String(contentsOfFile: GatewaysLab.page, encoding: .utf8)
        var statements = 0
        for block in page.components(separatedBy: "\n```sql\n").dropFirst() {
            for line in (block.components(separatedBy: "\n```").first ?? "").split(separator: "\n") {
                // The role is there, as the administrator of this server.
                let statement = String(line).replacing(/(ROLE|DATABASE|OWNER) pawl/) { "\($0.output.1) page" }
                _ = try lab.database.query(statement)
                statements += 1
            }
        }
        #expect(statements == 6)
    }

    /// The play of `--gateways`, which checks for itself what all people saw and what the backend and the database hold.
    /// It takes longer than a minute.
    @Test(.enabled(if: isLong)) func theQuickstartEndsWell() throws {
        let output = try ChildProcess.run(
            GatewaysLab.quickstart, ["--gateways", "3", "--once"],
            environment: ["PAWL_BIN": PawlProcess.binary(), "NO_COLOR": "1"], timeout: .seconds(900))
        #expect(output.succeeded, "\(output.stdout.suffix(3000))\(output.stderr.suffix(2000))")
        #expect(output.stdout.contains("Everybody saw every one of"))
        print(output.stdout.split(separator: "\n").filter { $0.contains("under way was seen") }.joined(separator: "\n"))
    }

    // MARK: HAProxy

    /// The delivered files are valid, and clients' addresses arrive at the chat server through HAProxy.
    @Test func theDeliveredHAProxyConfigurations() throws {
        for name in ["haproxy-gateways", "haproxy-ready"] {
            let output = try HAProxy.check(GatewaysLab.file(name))
            #expect(output.succeeded, "\(name): \(output)")
        }
        var options = NgIRCd.Options()
        options.webircPassword = "webpass"
        let server = try NgIRCd(options)
        let lab = try GatewaysLab(
            upstream: server.port, policy: "hosted", environment: ["PAWL_UPSTREAM_WEBIRC_PASSWORD": "webpass"])
        defer {
            lab.stop()
            server.stop()
        }
        for host: UInt8 in [7, 8] {
            let client = try IRCClient(port: lab.port, host: host)
            try client.register(nick: "host\(host)", caps: nil)
            client.send("WHOIS host\(host)")
            #expect(try client.expect("311").text.contains("127.0.0.\(host)"))
        }
        // Nothing but /ready passes.
        let door = WebClient(port: lab.door(try lab.serving()))
        #expect(try door.request("GET", "/ready").status == 200)
        #expect(try door.request("GET", "/metrics").status == 404)
        #expect(try door.request("POST", "/ready").status == 404)
        let watcher = try lab.doorForPrometheus(try lab.serving())
        for (path, status) in [("/ready", 200), ("/metrics", 200), ("/", 404)] {
            #expect(try WebClient(port: watcher.port).request("GET", path).status == status)
        }
    }
}
