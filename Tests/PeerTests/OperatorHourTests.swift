import Foundation
import Glibc
import PeerKit
import TestKit
import TestThreads
import Testing

/// An operator's hour: from the package to a restore, with the program of the installed package, the configuration that it
/// brings, the command line of its unit, and the commands of `deploy/OPERATIONS.md`.
///
/// Without systemd, with which ``SystemdTests`` plays: the unit's command is run as it stands there, and the restart of an
/// upgrade by hand.
@Suite(.blocking, .serialized, .enabled(if: PackageMachine.isPlayed, "it is long, and dpkg changes owners"))
struct OperatorHourTests {
    /// The operator's machine, with the package installed.
    private final class Desk {
        let machine: PackageMachine
        private let package: String
        private var gateway: ChildProcess?

        private var environment: [String: String] {
            let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
            return [
                "PATH": "\(machine.root)/usr/bin:\(path)", "PAWL_DATA": machine.root + "/var/lib/pawl",
                "HOME": machine.root, "NO_COLOR": "1",
            ]
        }

        init() throws {
            machine = try PackageMachine()
            package = try PackageMachine.make("0.1.0", in: machine.scratch.file("made"))
            _ = try PageCommand.operations("apt-get install ./pawl_*.deb")
            try machine.dpkg("-i", package)
        }

        /// Runs a command of the page, and agrees to what asks first.
        @discardableResult
        func run(_ words: String, _ edit: (String) -> String = { $0 }) throws -> String {
            let text = edit(try PageCommand.operations(words).text).replacing("sudo -u pawl ", with: "")
                .replacing(/([ >])\/(var|etc|usr)\//) { "\($0.output.1)\(machine.root)/\($0.output.2)/" }
            var output = try ChildProcess.run("/bin/bash", ["-c", text], environment: environment)
            if output.status == .exited(75), let token = output.token {
                output = try ChildProcess.run(
                    "/bin/bash", ["-c", "\(text) --confirm \(token)"], environment: environment)
            }
            #expect(output.succeeded, "\(text): \(output)")
            return output.stdout
        }

        /// Takes an example of the package, with the addresses of this machine, and starts the gateway.
        func begin(_ example: String, _ edits: KeyValuePairs<String, String>) throws {
            try run("cp /usr/share/doc/pawl/examples/ngircd.yaml /etc/pawl/pawl.yaml") {
                $0.replacing("ngircd.yaml", with: example)
            }
            var text = try machine.text("/etc/pawl/pawl.yaml")
            for (old, new) in edits {
                #expect(text.contains(old), "\(example) has no \(old)")
                text = text.replacing(old, with: new)
            }
            text = text.replacing(" /etc/pawl/", with: " \(machine.root)/etc/pawl/") + "\nmetrics: {listen: \"\"}\n"
            try Data(text.utf8).write(to: URL(fileURLWithPath: machine.root + "/etc/pawl/pawl.yaml"))
            try run("pawl config check /etc/pawl/pawl.yaml")
            _ = try PageCommand.operations("systemctl enable --now pawl")
            try start()
        }

        func start() throws {
            let unit = try machine.text("/lib/systemd/system/pawl.service")
            let line = try #require(unit.split(separator: "\n").first { $0.hasPrefix("ExecStart=") })
            let words = line.dropFirst("ExecStart=".count).split(separator: " ").map(String.init)
                .map { $0.hasPrefix("/") ? machine.root + $0 : $0 }
            let child = try ChildProcess(words[0], Array(words.dropFirst()), environment: environment)
            try child.waitForOutput("ready")
            gateway = child
        }

        func stop() {
            #expect(gateway?.stop(within: Deadline.usual) == .exited(0))
            gateway = nil
        }

        /// The next version is installed, and the gateway restarted as the package does it under systemd.
        func upgrade() throws {
            let before = try machine.text("/etc/pawl/pawl.yaml")
            let next = try machine.make("0.2.0", from: package)
            try machine.dpkg("-i", next)
            #expect(try machine.dpkg("-s", "pawl").stdout.contains("Version: 0.2.0"))
            #expect(try machine.text("/etc/pawl/pawl.yaml") == before)
            stop()
            try start()
        }

        /// The store is lost, and restored from the backup.
        func restore() throws {
            _ = try PageCommand.operations("systemctl stop pawl")
            stop()
            let data = machine.root + "/var/lib/pawl"
            for name in try FileManager.default.contentsOfDirectory(atPath: data) where name != "storage.key" {
                try FileManager.default.removeItem(atPath: "\(data)/\(name)")
            }
            try run("sudo -u pawl pawl restore /var/backups/pawl/2026-11-21 --force")
            _ = try PageCommand.operations("systemctl start pawl")
            try start()
        }

        /// The first day: the reports show who is there, and the simulation what would be protected.
        func look(for people: [String], and conversations: [String]) throws {
            for command in ["pawl status", "pawl clients"] { try run(command) }
            let users = try run("pawl users")
            for name in people { #expect(users.contains(name), "\(users)") }
            try eventually("it is observed", every: .milliseconds(500)) {
                let simulation = try run("pawl policy simulate hosted")
                return conversations.allSatisfy { simulation.contains($0) }
            }
        }
    }

    @Test func inFrontOfIRC() throws {
        let accounts = try AccountLab(accounts: ["alice", "bob", "carol"])
        let tap = try WireTap(backend: accounts.server.port)
        let desk = try Desk()
        defer {
            desk.stop()
            tap.stop()
            accounts.services.stop()
            accounts.server.stop()
        }
        let (encrypted, plain) = (try FreePort(), try FreePort())
        let certificate = try Certificate(in: desk.machine.scratch)
        for (path, name) in [(certificate.certificatePath, "certificate.pem"), (certificate.keyPath, "key.pem")] {
            let copy = "\(desk.machine.root)/etc/pawl/\(name)"
            try FileManager.default.copyItem(atPath: path, toPath: copy)
            chmod(copy, 0o600)
        }
        try desk.begin(
            "inspircd.yaml",
            [
                "0.0.0.0:6697": "127.0.0.1:\(encrypted.number)", "127.0.0.1:6667": "127.0.0.1:\(plain.number)",
                "url: irc://127.0.0.1:6668": "url: irc://127.0.0.1:\(tap.port)",
            ])
        var logins = 0
        func people() throws -> [IRCClient] {
            logins += 1
            return try ["alice", "bob", "carol"].map { name in
                try AccountLab.login(plain.number, nick: "\(name)\(logins)", account: name)
            }
        }
        /// Whether the server has read what one wrote to the other.
        func passes(_ text: String, _ sender: IRCClient, _ reader: IRCClient) throws -> Bool {
            sender.send("PRIVMSG \(reader.nick) :\(text)")
            try reader.expectMessage(text)
            return tap.shows(text)
        }

        var all = try people()
        #expect(try passes("observed canary", all[0], all[1]))
        #expect(try passes("second canary", all[1], all[2]))
        try desk.look(for: ["alice", "bob", "carol"], and: ["alice and bob", "bob and carol"])
        try desk.run("pawl policy set hosted --account alice")
        #expect(try !passes("her canary", all[0], all[1]))
        #expect(try !passes("answered canary", all[1], all[0]))
        #expect(try passes("others' canary", all[1], all[2]))
        try desk.run("pawl policy set hosted")
        #expect(try !passes("everyone's canary", all[1], all[2]))
        try desk.run("pawl backup /var/backups/pawl/2026-11-21")
        try desk.upgrade()
        all = try people()
        #expect(try !passes("upgraded canary", all[1], all[2]))
        try desk.restore()
        #expect(try desk.run("pawl policy get").contains("hosted"))
        all = try people()
        #expect(try !passes("restored canary", all[1], all[2]))
        #expect(try !passes("her restored canary", all[0], all[1]))
    }

    @Test func inFrontOfHTTP() throws {
        let backend = try ChatBackendProcess()
        let desk = try Desk()
        defer {
            desk.stop()
            backend.stop()
        }
        let port = try FreePort()
        try desk.begin(
            "generic.yaml",
            [
                "http://127.0.0.1:8080": "http://127.0.0.1:\(port.number)",
                "http://127.0.0.1:8081": "http://127.0.0.1:\(backend.port)",
            ])
        let (alice, bob, carol) = (
            try ChatPerson("alice", port: port.number), try ChatPerson("bob", port: port.number),
            try ChatPerson("carol", port: port.number)
        )
        for person in [alice, bob, carol] { _ = try person.ask("GET", "/me") }
        try alice.open("hers", with: ["bob"])
        try bob.open("theirs", with: ["carol"])
        /// Whether the backend has read what one wrote and the other reads.
        func passes(_ text: String, _ sender: ChatPerson, _ reader: ChatPerson, in conversation: String) throws -> Bool
        {
            try sender.post(text, in: conversation)
            #expect(try reader.texts(conversation).last == text)
            return try backend.knows(text)
        }

        #expect(try passes("observed canary", alice, bob, in: "hers"))
        #expect(try passes("second canary", bob, carol, in: "theirs"))
        try desk.look(for: ["alice", "bob", "carol"], and: ["hers", "theirs"])
        try desk.run("pawl policy set hosted --account alice")
        #expect(try !passes("her canary", alice, bob, in: "hers"))
        #expect(try passes("others' canary", bob, carol, in: "theirs"))
        try desk.run("pawl policy set hosted")
        #expect(try !passes("everyone's canary", bob, carol, in: "theirs"))
        try desk.run("pawl backup /var/backups/pawl/2026-11-21")
        try desk.upgrade()
        #expect(try !passes("upgraded canary", bob, carol, in: "theirs"))
        #expect(try bob.texts("hers").last == "her canary")
        try desk.restore()
        #expect(try desk.run("pawl policy get").contains("hosted"))
        #expect(try !passes("restored canary", alice, bob, in: "hers"))
        // What was sealed before the backup is read with the keys that it has.
        #expect(try carol.texts("theirs").contains("everyone's canary"))
    }
}
