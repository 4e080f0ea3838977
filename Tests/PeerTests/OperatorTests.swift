import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// What an operator does: starts, refusals, reloads, backups, drains.
@Suite(.blocking, .serialized) struct OperatorTests {
    private func start(_ data: String, _ more: [String] = []) throws -> ChildProcess.Output {
        let port = try FreePort()
        return try PawlProcess.run(
            [
                "serve", "--listen", "irc://127.0.0.1:\(port.number)", "--upstream", "irc://127.0.0.1:1", "--metrics",
                "",
                "--data", data,
            ] + more)
    }

    @Test func refusalsNameTheirRepair() throws {
        let server = try NgIRCd()
        let lab = try Lab(server, policy: "hosted")
        defer { lab.stop() }
        let data = lab.gateway.dataDirectory
        let second = try start(data)
        #expect(!second.succeeded && second.failureCode == "store-locked")
        lab.gateway.stop()
        let key = data + "/storage.key"
        let good = try #require(FileManager.default.contents(atPath: key))
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: key)
        #expect(try start(data).failureCode == "store-unusable-key")
        try FileManager.default.removeItem(atPath: key)
        #expect(try start(data).failureCode == "store-missing")
        _ = FileManager.default.createFile(
            atPath: key, contents: Data(repeating: 9, count: 32), attributes: [.posixPermissions: 0o600])
        #expect(!(try start(data)).succeeded)
        _ = FileManager.default.createFile(atPath: key, contents: good, attributes: [.posixPermissions: 0o600])
        try lab.gateway.start()
        lab.gateway.stop()
        _ = FileManager.default.createFile(atPath: data + "/pawl.sqlite", contents: Data("not a database".utf8))
        let corrupt = try start(data)
        #expect(!corrupt.succeeded && corrupt.failureCode == "store-damaged")
    }

    @Test func wrongOptionsAndFiles() throws {
        let scratch = try ScratchDirectory()
        let nearest = try PawlProcess.run(["serve", "--data", scratch.path], environment: ["PAWL_POLCY": "x"])
        #expect(nearest.status == .exited(78) && nearest.failureCode == "configuration-refused")
        let plain = try start(scratch.file("d"), ["--listen", "irc://0.0.0.0:6667"])
        #expect(!plain.succeeded && plain.failureCode == "configuration-refused")
        _ = try scratch.write("bad.yaml", "polcy: hosted\n")
        let checked = try PawlProcess.run(["config", "check", scratch.file("bad.yaml")])
        #expect(checked.status == .exited(78) && checked.failureCode == "configuration-refused")
        _ = try scratch.write("good.yaml", "policy: hosted\n")
        let fine = try PawlProcess.run(["config", "check", scratch.file("good.yaml")])
        #expect(fine.succeeded && fine.stdout.contains("hosted"))
        #expect(try PawlProcess.run(["status", "--data", scratch.path]).status == .exited(69))
    }

    /// Scripts get an object for each failure, and the log as objects if the configuration says so.
    @Test func failuresAndTheLogAsJSON() throws {
        func failure(_ output: ChildProcess.Output) throws -> [String: Any] {
            let line = try JSONSerialization.jsonObject(with: Data(output.stderr.utf8)) as? [String: Any]
            return try #require(line?["error"] as? [String: Any], "\(output)")
        }
        let scratch = try ScratchDirectory()
        let nobody = try PawlProcess.run(["status", "--json", "--data", scratch.path])
        #expect(nobody.status == .exited(69))
        #expect(try failure(nobody)["code"] as? String == "no-gateway")
        let typed = try PawlProcess.run(["statsu", "--json"])
        #expect(typed.status == .exited(64) && typed.stdout.isEmpty)
        #expect(try failure(typed)["hint"] as? String == "pawl status")
        #expect(try failure(typed)["exit"] as? Int == 64)
        let text = try PawlProcess.run(["statsu"])
        #expect(text.failureCode == "wrong-usage" && text.stderr.contains("'pawl status'"))
        #expect(try PawlProcess.run(["status", "--help"]).succeeded)
        let restored = try PawlProcess.run(["restore", "/nowhere", "--json", "--data", scratch.path])
        #expect(restored.status == .exited(1))
        #expect(try failure(restored)["message"] is String)
        _ = try scratch.write("bad.yaml", "polcy: hosted\n")
        let checked = try PawlProcess.run(["config", "check", "--json", scratch.file("bad.yaml")])
        #expect(checked.status == .exited(78))
        #expect(try failure(checked)["code"] as? String == "configuration-refused")
        _ = try scratch.write("good.yaml", "policy: hosted\n")
        let good = try PawlProcess.run(["config", "check", "--json", scratch.file("good.yaml")])
        #expect(good.json["changed"][0]["key"].string == "policy", "\(good)")
        #expect(try PawlProcess.run(["config", "keys", "--json"]).json[0]["key"].string == "listen")

        let refused = try start(scratch.file("d"), ["--log-format", "json", "--config", scratch.file("bad.yaml")])
        let line = try JSONSerialization.jsonObject(with: Data(refused.stderr.utf8)) as? [String: Any]
        #expect(refused.status == .exited(78) && line?["level"] as? String == "critical")
        #expect(line?["code"] as? String == "configuration-refused" && line?["time"] is String)
        let gateway = try PawlProcess(upstream: 1, Lab.options("observe", arguments: ["--log-format", "json"]))
        defer { gateway.stop() }
        #expect(
            try gateway.admin(["policy", "set", "opportunistic", "--json"]).json["policy"].string == "opportunistic")
        try eventually("the act is in the log") { gateway.output.contains("policy changed") }
        for line in gateway.output.split(separator: "\n") {
            #expect((try? JSONSerialization.jsonObject(with: Data(line.utf8))) is [String: Any], "\(line)")
        }
    }

    @Test func aReloadAppliesOrRefuses() throws {
        let server = try NgIRCd()
        let scratch = try ScratchDirectory()
        _ = try scratch.write("pawl.yaml", "policy: observe\n")
        let gateway = try PawlProcess(
            upstream: server.port,
            {
                var options = Lab.options("observe", arguments: ["--config", scratch.file("pawl.yaml")])
                options.environment["PAWL_LIMITS_CONNECTIONS"] = "50"
                return options
            }())
        defer { gateway.stop() }
        _ = try scratch.write("pawl.yaml", "polcy: hosted\n")
        let refused = try gateway.admin(["config", "reload"])
        #expect(refused.status == .exited(78) && refused.failureCode == "configuration-refused")
        _ = try scratch.write("pawl.yaml", "refusal:\n  outsider: \"No way to {target}.\"\n")
        let applied = try gateway.admin(["config", "reload"])
        #expect(applied.succeeded && applied.stdout.contains("refusal.outsider"))
        #expect(try gateway.admin(["policy", "set", "hosted", "--yes"]).succeeded)
        let alice = try IRCClient(port: gateway.port)
        try alice.register(nick: "alice", caps: nil)
        alice.send("PRIVMSG nobody :x")
        #expect(try alice.expect("531").body == "No way to nobody.")
        #expect(try gateway.admin(["audit"]).stdout.contains("reload"))
    }

    /// A renewed certificate is applied and said; a key that is set back to what runs waits for nothing.
    @Test func aReloadReportsItsChanges() throws {
        let scratch = try ScratchDirectory()
        let (first, second) = (try ScratchDirectory(), try ScratchDirectory())
        let paths = (certificate: scratch.file("certificate.pem"), key: scratch.file("key.pem"))
        func install(_ certificate: Certificate) throws {
            for (from, to) in [(certificate.certificatePath, paths.certificate), (certificate.keyPath, paths.key)] {
                try Data(contentsOf: URL(fileURLWithPath: from)).write(to: URL(fileURLWithPath: to))
            }
        }
        try install(Certificate(in: first))
        let tls = "tls:\n  certificate: \(paths.certificate)\n  key: \(paths.key)\n"
        _ = try scratch.write("pawl.yaml", tls)
        let gateway = try PawlProcess(
            upstream: 1, Lab.options("observe", arguments: ["--config", scratch.file("pawl.yaml")]))
        defer { gateway.stop() }
        #expect(try gateway.admin(["config", "reload"]).stdout == "Nothing has changed.\n")
        try install(Certificate(in: second))
        let renewed = try gateway.admin(["config", "reload"]).stdout
        #expect(
            renewed.contains("tls.certificate: \(paths.certificate) has other contents, valid until 20"), "\(renewed)")
        #expect(try gateway.admin(["audit"]).stdout.contains("tls.certificate"))
        _ = try scratch.write("pawl.yaml", tls + "limits:\n  request_age: 100\n")
        #expect(try gateway.admin(["config", "reload"]).stdout.contains("300 → 100 (at the next start)"))
        _ = try scratch.write("pawl.yaml", tls)
        let json = try gateway.admin(["config", "reload", "--json"]).stdout
        #expect(json.contains("100 → 300 (in force; no restart needed)"), "\(json)")
    }

    /// A crash names functions; registers and the memory behind them stay out of the log.
    @Test func aCrashShowsNoMemory() throws {
        var options = Lab.options("observe")
        options.environment["SWIFT_BACKTRACE"] = ""
        let gateway = try PawlProcess(upstream: 1, options)
        defer { gateway.stop() }
        let pid = try #require(gateway.pid)
        let environment = try #require(FileManager.default.contents(atPath: "/proc/\(pid)/environ"))
        #expect(String(decoding: environment, as: UTF8.self).contains("SWIFT_BACKTRACE=enable=yes,registers=none"))
        let limits = try String(contentsOfFile: "/proc/\(pid)/limits", encoding: .utf8)
        #expect(limits.contains(/Max core file size +0 +0/))
        gateway.signal(SIGSEGV)
        try eventually("the crash is reported", timeout: .seconds(300)) { gateway.output.contains("Backtrace took") }
        let output = gateway.output
        // A signal from outside leaves no fault to run into again: the process goes on behind its report.
        gateway.signal(SIGKILL)
        try eventually("the gateway has ended") { !gateway.isRunning }
        #expect(output.contains("Program crashed"), "\(output)")
        #expect(!output.contains("Registers") && !output.contains(/(?:\b[0-9a-f]{2} ){8}/), "\(output)")
    }

    @Test func backupAndRestore() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let anna = try AccountLab.login(lab.gateway.port, nick: "anna", account: "anna")
        let bert = try AccountLab.login(lab.gateway.port, nick: "bert", account: "bert")
        anna.send("PRIVMSG bert :before the backup")
        try bert.expectMessage("before the backup")
        let scratch = try ScratchDirectory()
        let file = scratch.file("backup")
        #expect(try lab.gateway.admin(["backup", file]).succeeded)
        #expect(try lab.gateway.admin(["backup", file]).failureCode == "store-unavailable")
        anna.send("PRIVMSG bert :after the backup")
        try bert.expectMessage("after the backup")
        lab.gateway.stop()
        let data = lab.gateway.dataDirectory
        #expect(!(try PawlProcess.run(["restore", file, "--data", data])).succeeded)
        let restored = try PawlProcess.run(["restore", file, "--data", data, "--force"])
        #expect(restored.succeeded && restored.stdout.contains("set up anew"))
        try lab.gateway.start()
        // The latch is there; sessions begin anew and work.
        #expect(try lab.gateway.admin(["conversations", "list"]).stdout.contains("anna"))
        let again = try AccountLab.login(lab.gateway.port, nick: "anna3", account: "anna")
        let other = try AccountLab.login(lab.gateway.port, nick: "bert3", account: "bert")
        again.send("PRIVMSG bert3 :after the restore")
        try other.expectMessage("after the restore")
        #expect(try lab.gateway.admin(["audit"]).stdout.contains("store.restored"))
        #expect(!lab.tap.shows("after the restore"))
    }

    /// `limits.message_fragments` bounds the lines of a sealed message.
    @Test func aMessageOfTooManyLinesIsRefused() throws {
        let lab = try Lab(
            try NgIRCd(), policy: "hosted", environment: ["PAWL_LIMITS_MESSAGE_FRAGMENTS": "1"])
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        alice.send("PRIVMSG bob :" + String(repeating: "long ", count: 80))
        #expect(try alice.expect("531").body.contains(Notices.messageTooLong))
        alice.send("PRIVMSG bob :short")
        try bob.expectMessage("short")
    }

    @Test func watchingLooksAgain() throws {
        let lab = try Lab(try NgIRCd(), policy: "observe")
        defer { lab.stop() }
        let looks = try lab.gateway.admin(["watch", "--every", "0.2", "--count", "3"])
        #expect(looks.succeeded && looks.stdout.components(separatedBy: "conversations ").count == 4, "\(looks.stdout)")
        // Into a file, nothing is overwritten in place.
        #expect(!looks.stdout.contains("\u{1B}"))
        let lines = try lab.gateway.admin(["watch", "--json", "--every", "0.2", "--count", "3"]).stdout
        let reports = try lines.split(separator: "\n").map { try JSONValue(Array($0.utf8)) }
        #expect(reports.count == 3 && reports.allSatisfy { $0["reachable"] == true }, "\(lines)")
        #expect(reports.allSatisfy { $0["status"]["policy"].string == "observe" && $0["time"].string != nil })
        // One report has no rates, two have.
        #expect(reports[0]["perSecond"] == .null && reports[2]["perSecond"]["refused"] == 0)
        let once = try lab.gateway.admin(["watch", "--once", "--json"])
        #expect(once.succeeded && once.json["perSecond"]["gateway"] == 0, "\(once)")
        lab.gateway.stop()
        let alone = try lab.gateway.admin(["watch", "--count", "1"])
        #expect(alone.status == .exited(69) && alone.failureCode == "no-gateway")
    }

    /// The page fits a small terminal, shows what happens now, and goes on after a restart of the gateway.
    @Test func watchingOutlivesTheGateway() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let scratch = try ScratchDirectory()
        let watch = try Terminal(
            PawlProcess.binary(), ["watch", "--data", lab.gateway.dataDirectory, "--every", "0.3"], in: scratch,
            columns: 80, rows: 24)
        defer { watch.stop() }
        func isShown(_ what: String, _ pattern: Regex<Substring>, while act: () throws -> Void = {}) throws {
            var screen = ""
            do {
                try eventually(what, every: .milliseconds(200)) {
                    try act()
                    screen = try watch.screen()
                    return screen.contains(pattern)
                }
            } catch {
                throw PeerError("\(error)\n\(screen)")
            }
            let lines = screen.split(separator: "\n", omittingEmptySubsequences: false)
            // Nothing has scrolled, nothing was wrapped.
            #expect(lines.first?.first?.isNumber == true && lines.allSatisfy { $0.count <= 80 }, "\(screen)")
        }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        try isShown("messages a second", /a second +0\.0 +[0-9]*\.?[0-9]*[1-9]/) { alice.send("PRIVMSG bob :hello") }
        try bob.expectMessage("hello")
        // A name that would run over the edge, and one that the terminal must not obey.
        alice.send("PRIVMSG \(String(repeating: "long", count: 30)) :x")
        alice.send("PRIVMSG \u{1B}[2Jfake :x")
        try isShown("refusals", /outsider +/)
        lab.gateway.stop()
        try isShown("that there is no answer", /NO ANSWER since/)
        try lab.gateway.start()
        try isShown("the status again", /Z  up \d/)
        let (again, other) = (try lab.person("alice"), try lab.person("bob"))
        try isShown("messages after the restart", /a second +0\.0 +[0-9]*\.?[0-9]*[1-9]/) {
            again.send("PRIVMSG bob :hello again")
        }
        try other.expectMessage("hello again")
    }

    @Test func drainAndStop() throws {
        let lab = try Lab(try NgIRCd(), policy: "observe")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        #expect(try lab.gateway.admin(["drain"]).succeeded)
        #expect(throws: (any Error).self) { try IRCClient(port: lab.gateway.port).register(nick: "late", caps: nil) }
        alice.send("PRIVMSG alice :still connected")
        try alice.expectMessage("still connected")
        alice.close()
        try eventually("the gateway has stopped") { !lab.gateway.isRunning }
        try lab.gateway.start()
        #expect(lab.gateway.stop() == .exited(0))
    }

    @Test func theControlSocketIsItsOwners() throws {
        let lab = try Lab(try NgIRCd(), policy: "observe")
        defer { lab.stop() }
        let path = lab.gateway.dataDirectory + "/pawl.sock"
        let attributes = try FileManager.default.attributesOfItem(atPath: path)
        #expect(attributes[.posixPermissions] as? Int == 0o600)
        for words in [["status"], ["users"], ["clients"], ["queue"], ["policy", "get"], ["policy", "simulate"]] {
            let json = try lab.gateway.admin(words + ["--json"])
            #expect(json.succeeded)
            #expect((try? JSONSerialization.jsonObject(with: Data(json.stdout.utf8))) != nil, "\(words)")
        }
    }
}
