import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// The package under systemd: installed, started, reloaded, backed up, upgraded while people are connected, and removed.
///
/// With the unit as it is delivered, so that all that it forbids is forbidden here.
@Suite(.blocking, .serialized, .enabled(if: PackageMachine.isPlayed && SystemdMachine.canRun, "it needs namespaces"))
struct SystemdTests {
    private static let patience = Duration.seconds(600)

    @Test func theServiceIsUpgraded() throws {
        let package = try PackageMachine()
        let first = try PackageMachine.make("0.1.0", in: package.scratch.file("made"))
        let second = try package.make("0.2.0", from: first)
        let server = try NgIRCd()
        defer { server.stop() }
        let machine = try SystemdMachine(timeout: Self.patience)
        defer { machine.stop() }
        let port = try FreePort()
        for (path, name) in [(first, "first.deb"), (second, "second.deb")] {
            try FileManager.default.copyItem(atPath: path, toPath: "\(machine.share)/\(name)")
        }
        @discardableResult func run(_ line: String) throws -> String {
            let output = try machine.run(line, timeout: Self.patience)
            guard !output.succeeded else { return output.stdout }
            let journal = try machine.run("journalctl -u pawl -n 30 --no-pager").stdout
            throw PeerError("\(line): \(output)\n\(journal)")
        }
        func install(_ name: String) throws {
            try run("dpkg --force-depends --force-confold -i \(SystemdMachine.shared)/\(name)")
        }
        func person(_ nick: String) throws -> IRCClient {
            var client: IRCClient?
            try eventually("\(nick) is connected", every: .milliseconds(100)) {
                let attempt = try? IRCClient(port: port.number)
                guard (try? attempt?.register(nick: nick, caps: nil)) != nil else { return false }
                client = attempt
                return true
            }
            return try #require(client)
        }

        try install("first.deb")
        #expect(try !machine.run("systemctl is-active pawl").succeeded)
        try run(PageCommand.operations("cp /usr/share/doc/pawl/examples/ngircd.yaml /etc/pawl/pawl.yaml").text)
        try run(
            "sed -i 's/127.0.0.1:6667/127.0.0.1:\(port.number)/; s/127.0.0.1:6668/127.0.0.1:\(server.port)/' "
                + "/etc/pawl/pawl.yaml && echo 'metrics: {listen: \"\"}' >> /etc/pawl/pawl.yaml")
        try run(PageCommand.operations("pawl config check /etc/pawl/pawl.yaml").text)
        try run(PageCommand.operations("systemctl enable --now pawl").text)
        // The start ends when the gateway is ready.
        #expect(try run("systemctl is-active pawl") == "active\n")
        #expect(try run("systemctl show -p StatusText pawl").contains("in front of irc://127.0.0.1:\(server.port)"))
        let alice = try person("alice")
        let bob = try person("bob")
        alice.send("PRIVMSG bob :hello")
        try bob.expectMessage("hello")

        // As the user of the service, whose home is the data directory.
        let asPawl = "setpriv --reuid=pawl --regid=pawl --init-groups env HOME=/var/lib/pawl "
        #expect(try run(asPawl + "pawl status").contains("observe"))
        try run("systemctl reload pawl && systemctl is-active pawl")
        try run(PageCommand.operations("pawl policy set hosted").text + " --yes")
        try run(PageCommand.operations("pawl backup /var/backups/pawl/2026-11-21").text)
        alice.send("PRIVMSG bob :sealed")
        try bob.expectMessage("sealed")

        let before = try run("systemctl show -p MainPID pawl")
        try install("second.deb")
        #expect(try run("systemctl is-active pawl") == "active\n")
        #expect(try run("systemctl show -p MainPID pawl") != before)
        let (again, other) = (try person("alice"), try person("bob"))
        again.send("PRIVMSG bob :after the upgrade")
        try other.expectMessage("after the upgrade")
        #expect(try run("pawl policy get").contains("hosted"))

        for words in ["systemctl stop pawl", "sudo -u pawl pawl restore", "systemctl start pawl"] {
            try run(PageCommand.operations(words).text.replacing("sudo -u pawl ", with: asPawl))
        }
        let (last, reader) = (try person("alice"), try person("bob"))
        last.send("PRIVMSG bob :after the restore")
        try reader.expectMessage("after the restore")
        #expect(try run("journalctl -u pawl --no-pager").contains("pawl is ready"))
        try run("dpkg -r pawl")
        #expect(try !machine.run("systemctl is-active pawl").succeeded)
        try run("test -s /var/lib/pawl/storage.key && test ! -e /usr/bin/pawl")
    }
}
