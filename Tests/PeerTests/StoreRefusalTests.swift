import Foundation
import Glibc
import PeerKit
import TestKit
import TestThreads
import Testing

/// Starts that are refused before anything is changed, and what brings the store back.
@Suite(.blocking, .serialized) struct StoreRefusalTests {
    private func start(_ data: String) throws -> ChildProcess.Output {
        let port = try FreePort()
        return try PawlProcess.run([
            "serve", "--listen", "irc://127.0.0.1:\(port.number)", "--upstream", "irc://127.0.0.1:1", "--metrics", "",
            "--data", data,
        ])
    }

    private func bytes(_ path: String) throws -> Data {
        guard let bytes = FileManager.default.contents(atPath: path) else { throw PeerError("no \(path)") }
        return bytes
    }

    /// Says something protected, so that the store has a latch and sessions.
    private func speak(_ lab: Lab, _ text: String) throws {
        let anna = try AccountLab.login(lab.gateway.port, nick: "anna", account: "anna")
        let bert = try AccountLab.login(lab.gateway.port, nick: "bert", account: "bert")
        anna.send("PRIVMSG bert :\(text)")
        try bert.expectMessage(text)
        #expect(!lab.tap.shows(text))
        for person in [anna, bert] {
            person.send("QUIT")
            try person.expectEnd()
        }
    }

    @Test func fourRefusalsChangeNothing() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        try speak(lab, "kept in the store")
        let data = lab.gateway.dataDirectory
        let locked = try start(data)
        #expect(locked.status == .exited(1) && locked.failureCode == "store-locked")
        #expect(locked.stderr.contains("\(lab.gateway.pid ?? 0)"))
        #expect(lab.gateway.stop() == .exited(0))

        let store = data + "/pawl.sqlite"
        let key = data + "/storage.key"
        let good = (store: try bytes(store), key: try bytes(key))
        // SQLite's user_version, which counts the migrations, stands at offset 60.
        var newer = good.store
        newer.replaceSubrange(60..<64, with: [0, 0, 0x27, 0x0F])
        try newer.write(to: URL(fileURLWithPath: store))
        let tooNew = try start(data)
        #expect(tooNew.status == .exited(1) && tooNew.failureCode == "store-too-new")
        #expect(try bytes(store) == newer)

        // The second half is damaged: one page alone may be a free one, whose bytes mean nothing.
        var damaged = good.store
        let half = 4096 * (damaged.count / 4096 / 2)
        damaged.replaceSubrange(half..., with: Data(repeating: 0xA5, count: damaged.count - half))
        try damaged.write(to: URL(fileURLWithPath: store))
        let corrupt = try start(data)
        #expect(corrupt.status == .exited(1) && corrupt.failureCode == "store-damaged", "\(corrupt.stderr)")
        #expect(try bytes(store) == damaged)

        // Cut off.
        try good.store.prefix(8192 + 100).write(to: URL(fileURLWithPath: store))
        let cut = try start(data)
        #expect(cut.status == .exited(1) && cut.failureCode == "store-damaged", "\(cut.stderr)")

        // Gone, while its key is there: never made anew.
        try FileManager.default.removeItem(atPath: store)
        let missing = try start(data)
        #expect(missing.status == .exited(1) && missing.failureCode == "store-missing", "\(missing.stderr)")
        #expect(!FileManager.default.fileExists(atPath: store))

        // Another key; then one that others may read.
        try good.store.write(to: URL(fileURLWithPath: store))
        var other = good.key
        other[other.startIndex] = other[other.startIndex] == 0x41 ? 0x42 : 0x41
        try other.write(to: URL(fileURLWithPath: key))
        chmod(key, 0o600)
        let wrong = try start(data)
        #expect(wrong.status == .exited(1) && wrong.failureCode == "store-wrong-key", "\(wrong.stderr)")
        try good.key.write(to: URL(fileURLWithPath: key))
        chmod(key, 0o644)
        #expect(try start(data).failureCode == "store-unusable-key")
        chmod(key, 0o600)

        // With all in its place, everything is as it was, and the sessions go on.
        try lab.gateway.start()
        try speak(lab, "after all refusals")
        #expect(try (lab.json(["conversations", "list"]) as? [Any])?.count == 1)
    }

    @Test func anOlderStateIsNotTakenInSilence() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        try speak(lab, "the first time")
        lab.gateway.stop()
        let store = lab.gateway.dataDirectory + "/pawl.sqlite"
        let older = try bytes(store)
        try lab.gateway.start()
        try speak(lab, "the second time")
        lab.gateway.stop()
        // Copied back by other means than `pawl restore`.
        for end in ["-wal", "-shm"] { try? FileManager.default.removeItem(atPath: store + end) }
        try older.write(to: URL(fileURLWithPath: store))
        let refused = try start(lab.gateway.dataDirectory)
        #expect(refused.status == .exited(1) && refused.failureCode == "store-rolled-back")
        let accepted = try PawlProcess.run(["restore", "--accept-rollback", "--data", lab.gateway.dataDirectory])
        #expect(accepted.succeeded, "\(accepted.stderr)")
        try lab.gateway.start()
        // Keys may have been used since, so the sessions are new ones; the latch is as it was.
        #expect(try (lab.json(["conversations", "list"]) as? [Any])?.count == 1)
        try speak(lab, "the third time")
    }

    @Test func aReloadDropsNobody() throws {
        let server = try NgIRCd()
        let scratch = try ScratchDirectory()
        try scratch.write("pawl.yaml", "refusal:\n  outsider: \"First way to {target}.\"\n")
        let gateway = try PawlProcess(
            upstream: server.port, Lab.options("hosted", arguments: ["--config", scratch.file("pawl.yaml")]))
        defer { gateway.stop() }
        let alice = try IRCClient(port: gateway.port)
        try alice.register(nick: "alice", caps: nil)
        func refusal() throws -> String {
            alice.send("PRIVMSG nobody :x")
            return try alice.expect("531").body
        }
        #expect(try refusal() == "First way to nobody.")
        // By the command and by the signal: refused, and the old one kept.
        for (number, wrong) in [
            "log:\n  level: loud\n", "polcy: hosted\n", "refusal: [\n", "limits:\n  connections: many\n",
            "starttls: terminate\n",
        ].enumerated() {
            try scratch.write("pawl.yaml", wrong)
            let reload = try gateway.admin(["config", "reload"])
            #expect(!reload.succeeded && !reload.stderr.isEmpty, "\(number): \(reload)")
            gateway.signal(SIGHUP)
            try eventually("the log has it") {
                gateway.output.components(separatedBy: "not reloaded").count == number + 2
            }
            #expect(try refusal() == "First way to nobody.")
        }
        try scratch.write("pawl.yaml", "refusal:\n  outsider: \"Second way to {target}.\"\n")
        gateway.signal(SIGHUP)
        // Who connects from now on gets the new words; nobody is dropped.
        try eventually("the new words") {
            let next = try IRCClient(port: gateway.port)
            defer { next.close() }
            try next.register(nick: "next\(UInt16.random(in: 0...9999))", caps: nil)
            next.send("PRIVMSG nobody :x")
            return try next.expect("531").body == "Second way to nobody."
        }
        _ = try alice.synchronize()
    }

    @Test func gatewayEndsWithPeopleConnected() throws {
        for policy in ["observe", "hosted"] {
            let lab = try Lab(try NgIRCd(), policy: policy)
            defer { lab.stop() }
            let alice = try lab.person("alice")
            let silent = try IRCClient(port: lab.gateway.port)
            #expect(lab.gateway.stop() == .exited(0), "\(policy)")
            try alice.expectEnd()
            try silent.expectEnd()
            // And it starts again at once on the same port.
            try lab.gateway.start()
            _ = try lab.person("again")
        }
    }
}
