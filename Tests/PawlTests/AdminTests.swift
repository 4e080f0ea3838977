import ArgumentParser
import Envelope
import Foundation
import IRCGateway
import Logging
import PawlConfiguration
import PeerKit
import Protection
import SQLiteStore
import StorePort
import TestThreads
import Testing

@testable import pawl

/// Admin commands with hostile arguments: no input may end the process.
@Suite(.serialized) struct AdminTests {
    /// `Tests/fuzz admin` sets it. Parsing takes most of the time of a command without optimisation.
    private static let runs = ProcessInfo.processInfo.environment["PAWL_FUZZ_RUNS"].flatMap { Int($0) } ?? 50

    /// A gateway that listens nowhere, with everything a command may find in its store.
    static func gateway(
        _ scratch: ScratchDirectory, upstream: String, listen: String, as role: Role = .front
    ) throws -> Gateway {
        var overrides = PawlConfiguration.Overrides(
            listen: [listen], upstream: upstream, policy: "observe", data: scratch.file("data"))
        overrides.set("metrics.listen", to: .one(""), option: "test")
        if upstream.hasPrefix("http") {
            let mapping = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
                .appendingPathComponent("../../config/mappings/generic.yaml").path
            overrides.set("mapping", to: .one(mapping), option: "test")
        }
        let configuration = try PawlConfiguration.load(overrides: overrides, protocols: Assembly.protocols)
        var logger = Logger(label: "test")
        logger.logLevel = .critical
        return try Assembly.assemble(
            configuration, as: role, logger: logger, reload: { configuration }, requestStop: {}
        ).gateway
    }

    /// What people whom nobody has checked leave in the store.
    private static func fill(_ gateway: Gateway) throws {
        let names = ["alice", "#ops", "", "~ff", "a b", "\u{1B}]0;OWNED\u{7}\u{1B}[31mvictim", "x\ny", "\u{9B}2J"]
        let hour = SystemClock.now().wall / 3_600_000
        for (number, name) in names.enumerated() {
            let extreme = number.isMultiple(of: 2) ? Int64.max : .min
            try gateway.commit([
                .addEvidence(
                    EvidenceRow(
                        name: name, verified: number.isMultiple(of: 3), software: name, asked: true, firstSeen: extreme,
                        lastSeen: extreme, registrations: .max)),
                .addObservation(
                    ObservationRow(
                        sender: name, target: name, recipient: "outsider", messages: .max, lastSeen: extreme)),
                .audit(AuditRow(at: extreme, actor: name, action: name, detail: name)),
                .addTally(
                    TallyRow(
                        hour: hour - Int64(number), kind: "sent_plaintext", count: .max)
                ),
                .putConversation(
                    ConversationRow(
                        id: ConversationID(AccountID(text: name), .room(name)), latch: .gateway, since: extreme,
                        peerNameForFirst: name, peerNameForSecond: name)),
            ])
        }
        // One name twice: as an account, as earlier versions accepted it, and as a room.
        for account in [AccountID.services("#ops"), .room("#ops"), .services("~ff"), .room("")] {
            try gateway.setPolicy(.observe, for: account)
        }
    }

    private static func attack(_ gateway: Gateway, _ directory: String, withAll: Bool = false) async throws {
        try fill(gateway)
        var corpus = AdminCorpus.random()
        corpus.directory = directory
        for words in (withAll ? corpus.all().shuffled(using: &corpus).prefix(5 * runs) : [])
            + (0..<runs).map({ _ in corpus.words() })
        {
            let answer = await AdminGrammar.perform(words, on: gateway)
            let text = answer.out + answer.error
            #expect(
                !text.unicodeScalars.contains { $0 != "\n" && $0.properties.generalCategory == .control }, "\(words)")
            if answer.exit == 0, words.contains("--json"), text.hasPrefix("{") || text.hasPrefix("[") {
                #expect((try? JSONSerialization.jsonObject(with: Data(answer.out.utf8))) != nil, "\(words)")
            }
        }
        _ = await AdminGrammar.perform(["drain"], on: gateway)
        #expect(await AdminGrammar.perform(["version"], on: gateway).out == ProgramVersion.text)
    }

    @Test func hostileArgumentsInFrontOfIRC() async throws {
        let scratch = try ScratchDirectory()
        let gateway = try Self.gateway(scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0")
        try await Self.attack(gateway, scratch.path, withAll: true)
    }

    @Test func hostileArgumentsInFrontOfHTTP() async throws {
        let scratch = try ScratchDirectory()
        let gateway = try Self.gateway(scratch, upstream: "http://127.0.0.1:1", listen: "http://127.0.0.1:0")
        try await Self.attack(gateway, scratch.path)
        await gateway.front.close()
    }

    @Test func hostileArgumentsToASidecar() async throws {
        let scratch = try ScratchDirectory()
        let gateway = try Self.gateway(
            scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0", as: .sidecar)
        try await Self.attack(gateway, scratch.path)
    }

    /// The same from the shell's end of the socket, against the program; afterwards the same process still answers.
    @Test func hostileArgumentsOverTheSocket() async throws {
        // On threads of its own: hundreds of answers would each wait for one of those that blocking tests share.
        try await blocking { try await Self.attackOverTheSocket() }
    }

    private static func attackOverTheSocket() async throws {
        let gateway = try PawlProcess(upstream: 1, .init(policy: "observe", arguments: ["--metrics", ""]))
        defer { gateway.stop() }
        let pid = try #require(gateway.pid)
        let client = AdminClient(try CommonOptions.parse(["--data", gateway.dataDirectory]))
        var corpus = AdminCorpus.random()
        corpus.directory = gateway.dataDirectory
        func send(_ words: [String]) async throws {
            do {
                _ = try await client.send(words)
            } catch {
                throw PeerError("no answer to \(words)\n\(gateway.output.suffix(5000))")
            }
        }
        for command in AdminCorpus.commands where command != ["drain"] {
            for argument in ["--limit=-1", "--account=#ops", "--room=#ops", "", "18446744073709551615", "\u{1B}[2J"] {
                try await send(command + [argument])
            }
        }
        for words in [
            ["users", "--limit=-1"], ["policy", "set", "hosted", "--account", "#ops"],
            ["policy", "set", "hosted", "--room", "#ops"], ["policy", "get"], [], ["pawl"], ["", ""],
        ] {
            try await send(words)
        }
        for _ in 0..<100 { try await send(corpus.words()) }
        #expect(gateway.isRunning && gateway.pid == pid)
        #expect(try await client.send(["policy", "get"]).exit == 0)
        #expect(try await client.send(["drain"]).exit == 0)
    }

    /// Negative limits, empty names, names of rooms given as accounts: each is refused in words.
    @Test func refusalsOfOddArguments() async throws {
        let scratch = try ScratchDirectory()
        let gateway = try Self.gateway(scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0")
        for command in [["users"], ["audit"], ["queue", "list"], ["conversations", "list"]] {
            let answer = await AdminGrammar.perform(command + ["--limit=-1"], on: gateway)
            #expect(answer.exit == 64 && answer.failure == .wrongUsage, "\(command): \(answer)")
        }
        let room = await AdminGrammar.perform(["policy", "set", "hosted", "--account", "#ops"], on: gateway)
        #expect(room.exit == 1 && room.failure == .nameOfRoom)
        let empty = await AdminGrammar.perform(["policy", "set", "off", "--account", ""], on: gateway)
        #expect(empty.exit == 64)
        #expect(gateway.tables.policies.snapshot.accounts.isEmpty)
        #expect(throws: (any Error).self) { try Watch.parse(["--every", "1e300"]) }
        #expect(throws: (any Error).self) { try Watch.parse(["--every", "nan"]) }
    }

    /// A store of an earlier version may hold a policy for an account called as a room.
    @Test func oneNameAsAccountAndAsRoom() async throws {
        let scratch = try ScratchDirectory()
        let gateway = try Self.gateway(scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0")
        try gateway.setPolicy(.hosted, for: .services("#ops"))
        try gateway.setPolicy(.required, for: .room("#ops"))
        let text = await AdminGrammar.perform(["policy", "get"], on: gateway).out
        #expect(text.contains("#ops") && text.contains("account  hosted") && text.contains("room     required"))
        let json = await AdminGrammar.perform(["policy", "get", "--json"], on: gateway).out
        #expect(json.contains(##""accounts" : {\##n    "#ops" : "hosted""##) && json.contains("required"))
    }

    @Test func namesCannotCommandATerminal() {
        let name = "\u{1B}]0;OWNED\u{7}\u{1B}[31mvictim\u{9B}2J\u{202E}"
        let escaped = #"\u001B]0;OWNED\u0007\u001B[31mvictim\u009B2J\u202E"#
        #expect(Printable.text(name) == escaped)
        #expect(Table.text(["NAME", "X"], [[name, "one\ntwo"]]).hasSuffix(escaped + #"  one\u000Atwo"#))
        #expect(AdminAnswer.failure(.init(.noKeys, "no \(name)\n")).error == "no \(escaped)\n")
        #expect(Printable.text("Zoë, \u{1F468}\u{200D}\u{1F469}") == "Zoë, \u{1F468}\u{200D}\u{1F469}")
        let wide = Table.text(
            ["NAME", "WHY"], [[String(repeating: "x", count: 120), String(repeating: "y", count: 120)]])
        #expect(wide.contains("x…") && wide.hasSuffix(String(repeating: "y", count: 120)))
    }

    /// JSON stays JSON, and means the same.
    @Test func jsonOfHostileNames() throws {
        let name = "\u{1B}[2J\u{9B}\u{202E}\"\\"
        let answer = try AdminAnswer.json([name])
        #expect(!answer.out.unicodeScalars.contains { $0 != "\n" && $0.properties.generalCategory == .control })
        #expect(try JSONDecoder().decode([String].self, from: Data(answer.out.utf8)) == [name])
    }
}
