import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Every command of `README.md` and `deploy/OPERATIONS.md` is run as it stands there, in its order, or has a reason here.
///
/// Absolute paths are put under a directory of the test, ports are free ones, and names such as `ID` stand for real ones.
@Suite(.blocking) struct PageCommandTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// Commands that this test cannot run, by their first words.
    private static let notRun = [
        "deploy/quickstart": "PackageTests, PlayTests and SeveralGatewaysTests play it",
        "Tests/run": "it runs this test",
        "swift build": "it takes ten minutes",
        "apt-get install ./pawl_": "PackageTests installs the package",
        "useradd": "it would change this machine; PackageTests makes the user of the package",
        "systemctl enable": "SystemdTests runs it under systemd; ServiceManagerTests is its other end",
        "install -m 644 deploy/pawl.service": "the same",
        "journalctl": "the same",
        "pawl gateways": "SeveralGatewaysTests runs it, on a database",
        "pawl shards": "the same",
    ]

    /// Commands that are refused before this gateway, with the code.
    private static let refused = [
        "pawl unmatched": "no-mapping",
        "pawl queue repair": "no-queue-file",
    ]

    /// What the pages are about: a gateway before a server with accounts, and two people with sidecars elsewhere.
    private final class Place {
        let scratch: ScratchDirectory
        let accounts: AccountLab
        let gateway: PawlProcess
        private let device: PawlProcess
        private let sidecars: SidecarLab
        let sidecar: PawlProcess
        /// The contact card of bob, who has the other sidecar.
        let card: String
        private var people: [IRCClient] = []
        private var logins = 0
        /// The process before which alice's requests were made.
        private var asked: Int32?

        var data: String { scratch.file("var/lib/pawl") }

        init() throws {
            scratch = try ScratchDirectory()
            for path in [
                "bin", ".build/release", "var/lib", "var/backups/pawl", "etc/pawl", "usr/local/bin",
                "usr/share/man/man1",
                "usr/share/doc/pawl", "usr/share/bash-completion/completions",
            ] { try scratch.directory(path) }
            for (path, target) in [
                ("bin/pawl", try PawlProcess.binary()), (".build/release/pawl", try PawlProcess.binary()),
                ("config", root.appending(path: "config").path), ("deploy", root.appending(path: "deploy").path),
                ("usr/share/doc/pawl/examples", root.appending(path: "config").path),
            ] { try FileManager.default.createSymbolicLink(atPath: scratch.file(path), withDestinationPath: target) }

            accounts = try AccountLab(accounts: ["alice", "bob", "carol"])
            var options = Lab.options("observe")
            options.dataDirectory = scratch.file("var/lib/pawl")
            gateway = try PawlProcess(upstream: accounts.server.port, options)
            options = PawlProcess.Options()
            options.isSidecar = true
            device = try PawlProcess(upstream: gateway.port, options)
            sidecars = try SidecarLab(try NgIRCd())
            sidecar = try sidecars.sidecar()
            let other = try sidecars.sidecar()
            let (alice, bob) = (try sidecars.client(sidecar, "alice"), try sidecars.client(other, "bob"))
            try SidecarTests.exchangeKeys(alice, bob)
            let screen = try other.admin(["sidecar", "card", "--plain"]).stdout
            card = screen.split(separator: "\n").first { $0.hasPrefix("pawl:contact?") }.map(String.init) ?? "none"
            for person in [alice, bob] {
                person.send("JOIN #den")
                try person.expect("366")
            }
            people = [alice, bob]
            let (first, second) = try login()
            first.send("PRIVMSG #staff :hello")
            try second.expectMessage("hello")
            try publish()
        }

        /// Carol logs in with a device of her own, unless the gateway has its keys: it takes them at each login.
        func publish() throws {
            func isPublished() throws -> Bool {
                let list = try gateway.admin(["devices", "list"]).stdout
                return list.contains("carol") && list.contains("published")
            }
            guard try !isPublished() else { return }
            logins += 1
            people.append(try AccountLab.login(device.port, nick: "carol\(logins)", account: "carol"))
            try eventually("the device of carol") { try isPublished() }
        }

        func stop() {
            device.stop()
            sidecars.stop()
            gateway.stop()
            accounts.services.stop()
            accounts.server.stop()
        }

        /// Alice and bob behind the gateway, in a room; a restart ends their connections.
        private func login() throws -> (alice: IRCClient, bob: IRCClient) {
            logins += 1
            let both = try ["alice", "bob"].map { name in
                try AccountLab.login(gateway.port, nick: "\(name)\(logins)", account: name)
            }
            for person in both {
                person.send("JOIN #staff")
                try person.expect("366")
            }
            people += both
            return (both[0], both[1])
        }

        func ids(_ state: String) throws -> [String] {
            let list = try gateway.admin(["queue", "list", "--state", state, "--json"])
            return list.json.array.compactMap { $0["id"].string }
        }

        /// A request of alice that waits because it is held, and was made since the last start.
        private func waiting() throws -> String {
            let before = try ids("pending")
            if gateway.pid == asked, let id = before.last { return id }
            let (alice, bob) = try login()
            let held = try gateway.admin(["queue", "hold", "--account", "alice"])
            guard held.succeeded else { throw PeerError("\(held)") }
            for number in 0..<4 { alice.send("PRIVMSG \(bob.nick) :waits \(number)") }
            try eventually("they wait") { try ids("pending").count == before.count + 4 }
            asked = gateway.pid
            return try ids("pending").last ?? ""
        }

        /// The request that a command takes: a dead one for those that bring it back or remove it.
        func id(for command: String) throws -> String {
            guard command.contains("retry") || command.contains("purge") else { return try waiting() }
            if let id = try ids("dead").last { return id }
            let id = try waiting()
            let dropped = try gateway.admin(["queue", "drop", id, "--yes"])
            guard dropped.succeeded else { throw PeerError("\(dropped)") }
            return id
        }
    }

    /// The text as the test's shell runs it.
    private func adapted(_ command: PageCommand, _ place: Place) throws -> String {
        var text = command.text.replacing("sudo -u pawl ", with: "")
        if command.begins("install") { text = text.replacing(/\s-[og] pawl/, with: "") }
        text = text.replacing(/([ >])\/(var|etc|usr)\//) { "\($0.output.1)\(place.scratch.path)/\($0.output.2)/" }
        text = text.replacing("--data DIR", with: "--data \(place.data)").replacing(" [DEVICE]", with: "")
            .replacing("pawl:contact?...", with: place.card)
        // The account with a device of her own.
        if command.begins("pawl devices") {
            try place.publish()
            text = text.replacing("alice", with: "carol")
        }
        if text.contains(/\bID\b/) { text = text.replacing(/\bID(\.\.\.)?/, with: try place.id(for: text)) }
        return command.begins("pawl watch") ? text + " --once" : text
    }

    private func run(_ text: String, _ place: Place, data: String) throws -> ChildProcess.Output {
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        let script = "set -o pipefail; cd '\(place.scratch.path)'; \(text)"
        return try ChildProcess.run(
            "/bin/bash", ["-c", script],
            environment: [
                "PATH": "\(place.scratch.file("bin")):\(path):/usr/sbin", "PAWL_DATA": data, "HOME": place.scratch.path,
            ])
    }

    /// `pawl serve` and `pawl sidecar`, with ports of the test, until they are ready.
    private func serve(_ text: String, _ place: Place) throws {
        let ports = [try FreePort(), try FreePort()]
        let data = try place.scratch.directory("data-\(ports[0].number)")
        let words = text.replacing(/127\.0\.0\.1:(6667|8008)/, with: "127.0.0.1:\(ports[0].number)")
            .replacing(/127\.0\.0\.1:(6668|8009)/, with: "127.0.0.1:\(ports[1].number)")
            .replacing(place.data, with: data).replacing("~/.local/share/pawl", with: data)
        let child = try ChildProcess(
            "/bin/bash", ["-c", "cd '\(place.scratch.path)'; export PAWL_METRICS_LISTEN=; \(words) & wait"],
            environment: ["PATH": "\(place.scratch.file("bin")):/usr/bin:/bin", "PAWL_DATA": ""])
        defer {
            // The shell does not pass the signal on.
            if let pid = try? String(contentsOfFile: data + "/pawl.lock", encoding: .utf8),
                let number = Int32(pid.trimmingCharacters(in: .whitespacesAndNewlines)), number > 1
            {
                kill(number, SIGTERM)
            }
            _ = try? child.waitForExit()
        }
        try child.waitForOutput("ready")
    }

    @Test func everyCommandOfThePagesIsRun() throws {
        let place = try Place()
        defer { place.stop() }
        var reasons = Set(Self.notRun.keys)
        var refusals = Set(Self.refused.keys)
        var count = 0
        for command in try PageCommand.pages.flatMap(PageCommand.all) {
            if let words = Self.notRun.keys.first(where: { command.text.hasPrefix($0) }) {
                reasons.remove(words)
                continue
            }
            count += 1
            let text = try adapted(command, place)
            switch text {
            case "systemctl stop pawl":
                #expect(place.gateway.stop() == .exited(0))
                continue
            case "systemctl start pawl":
                try place.gateway.start()
                continue
            case _ where text.contains(/pawl (serve|sidecar) --listen/):
                try serve(text, place)
                continue
            default: break
            }
            let isOffline = command.comment.contains("offline") || command.comment.contains("gateway stopped")
            if isOffline { place.gateway.stop() }
            let data = command.begins("pawl sidecar") ? place.sidecar.dataDirectory : place.data
            var output = try run(text, place, data: data)
            // What asks first is agreed to.
            if output.status == .exited(75), let token = output.token {
                output = try run("\(text) --confirm \(token)", place, data: data)
            }
            if let words = Self.refused.keys.first(where: command.begins) {
                refusals.remove(words)
                #expect(output.failureCode == Self.refused[words], "\(command.place): \(output)")
            } else {
                #expect(output.succeeded, "\(command.place)\n\(text): \(output)")
            }
            if isOffline { try place.gateway.start() }
        }
        #expect(count > 45)
        #expect(reasons.isEmpty && refusals.isEmpty, "no page has: \(reasons) \(refusals)")
    }

    /// The failure that scripts read, as OPERATIONS shows it.
    @Test func theFailureForScriptsIsThatOfThePage() throws {
        let page = try String(contentsOf: Self.root.appending(path: "deploy/OPERATIONS.md"), encoding: .utf8)
        let line = try #require(page.split(separator: "\n").first { $0.hasPrefix("{\"error\"") })
        let gateway = try PawlProcess(upstream: 1, Lab.options("observe"))
        defer { gateway.stop() }
        let failure = try gateway.admin(["queue", "show", "7", "--json"])
        let (shown, real) = (try JSONValue(Array(line.utf8)), try JSONValue(Array(failure.stderr.utf8)))
        for member in ["code", "hint"] {
            #expect(shown["error"][member].string == real["error"][member].string, "\(failure)")
        }
        #expect(shown["error"]["exit"] == real["error"]["exit"])
    }
}
