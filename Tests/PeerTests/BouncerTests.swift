import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Software that stays connected for people: a bouncer and a bot, as Debian has them, behind the gateway.
@Suite(.blocking, .serialized) struct BouncerTests {
    /// ZNC with one user, whose nick and password are the same word.
    private final class ZNC {
        let port: FreePort
        private let scratch: ScratchDirectory
        private let process: ChildProcess

        /// - Parameter prefix: what the names of its own modules begin with; they cannot be a sidecar's.
        init(_ gateway: UInt16, nick: String, room: String, prefix: String = "*") throws {
            scratch = try ScratchDirectory()
            port = try FreePort()
            try scratch.directory("configs")
            try scratch.write(
                "configs/znc.conf",
                """
                Version = 1.8.2
                ConnectDelay = 0
                ServerThrottle = 0
                <Listener one>
                    Port = \(port.number)
                    Host = 127.0.0.1
                    IPv4 = true
                    IPv6 = false
                    SSL = false
                    AllowIRC = true
                    AllowWeb = false
                </Listener>
                <User \(nick)>
                    Pass = plain#\(nick)
                    Nick = \(nick)
                    Ident = \(nick)
                    RealName = \(nick)
                    Buffer = 50
                    StatusPrefix = \(prefix)
                    AutoClearChanBuffer = true
                    AutoClearQueryBuffer = true
                    <Network test>
                        FloodBurst = 100
                        FloodRate = 100.00
                        IRCConnectEnabled = true
                        Server = 127.0.0.1 \(gateway)
                        <Chan \(room)>
                        </Chan>
                    </Network>
                </User>

                """)
            process = try ChildProcess("znc", ["--foreground", "--allow-root", "--datadir", scratch.path])
            try process.waitUntilListening(port.number, timeout: .seconds(300))
        }

        /// Attaches a client of its user.
        func attach(_ nick: String) throws -> IRCClient {
            let client = try IRCClient(port: port.number)
            client.send("PASS \(nick)/test:\(nick)")
            try client.register(nick: nick, caps: nil)
            return client
        }

        func stop() { process.stop() }
    }

    /// A bot waits in the room and answers there and in private, with the gateway's policy and no plaintext at the backend.
    @Test func limnoriaAnswers() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let scratch = try ScratchDirectory()
        let directories = ["backup", "conf", "data", "log", "plugins"]
        for directory in directories { try scratch.directory(directory) }
        let places = directories.map { "supybot.directories.\($0): \(scratch.file($0))" }
        try scratch.write(
            "bot.conf",
            """
            supybot.nick: robot
            supybot.ident: robot
            supybot.user: robot
            supybot.networks: test
            supybot.networks.test.servers: 127.0.0.1:\(lab.gateway.port)
            supybot.networks.test.channels: #bots
            supybot.networks.test.ssl: False
            \(places.joined(separator: "\n"))
            supybot.log.stdout: True
            supybot.reply.whenAddressedBy.chars: @
            supybot.plugins: Misc Utilities
            supybot.plugins.Misc: True
            supybot.plugins.Utilities: True
            supybot.plugins.Utilities.public: True
            supybot.flush: False
            supybot.protocols.irc.throttleTime: 0.0

            """)
        let bot = try ChildProcess(
            "supybot", ["--allow-root", scratch.file("bot.conf")], workingDirectory: scratch.path)
        defer { bot.stop() }
        let alice = try lab.person("alice")
        alice.send("JOIN #bots")
        try alice.expect("366")
        try eventually("the bot is in the room", timeout: .seconds(300), every: .milliseconds(500)) {
            alice.send("NAMES #bots")
            let names = try alice.expect("353")
            try alice.expect("366")
            return names.body.contains("robot")
        }
        alice.send("PRIVMSG #bots :@utilities echo canary in the room")
        try alice.expectMessage("canary in the room")
        alice.send("PRIVMSG robot :utilities echo canary in private")
        try alice.expectMessage("canary in private")
        #expect(!lab.tap.shows("canary"))
    }

    /// A bouncer before the gateway keeps what came while its user was away, and plays it back as it was written.
    @Test func zncKeepsWhatCame() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        alice.send("JOIN #room")
        try alice.expect("366")
        let bouncer = try ZNC(lab.gateway.port, nick: "carol", room: "#room")
        defer { bouncer.stop() }
        try alice.expect("carol's JOIN", timeout: .seconds(300)) { $0.command == "JOIN" && $0.nick == "carol" }
        alice.send("PRIVMSG #room :canary for the room")
        alice.send("PRIVMSG carol :canary for carol")
        try eventually("both are delivered") {
            lab.tap.lines(.fromServer).count { $0.nick == "alice" && $0.body.hasPrefix("?PAWL:") } >= 2
        }
        let carol = try bouncer.attach("carol")
        for (text, target) in [("canary for the room", "#room"), ("canary for carol", "carol")] {
            let line = try carol.expect("what came meanwhile: \(text)") {
                $0.command == "PRIVMSG" && $0.body.hasSuffix(text)
            }
            #expect(line.nick == "alice" && line.parameters.first == target)
        }
        carol.send("PRIVMSG #room :canary from behind a bouncer")
        try alice.expectMessage("canary from behind a bouncer")
        carol.send("PRIVMSG alice :canary of a query")
        try alice.expectMessage("canary of a query")
        #expect(!lab.tap.shows("canary") && !carol.transcript.contains { $0.text.contains("?PAWL") })
    }

    /// A bouncer between the client and the sidecar keeps opened texts, and passes messages to the sidecar itself if its
    /// own modules have other names.
    @Test func zncBeforeASidecar() throws {
        let lab = try SidecarLab(try NgIRCd())
        defer { lab.stop() }
        let alice = try lab.client(try lab.sidecar(), "alice")
        alice.send("JOIN #room")
        try alice.expect("366")
        let bouncer = try ZNC(try lab.sidecar().port, nick: "carol", room: "#room", prefix: "znc-")
        defer { bouncer.stop() }
        try alice.expect("carol's JOIN", timeout: .seconds(300)) { $0.command == "JOIN" && $0.nick == "carol" }
        alice.send("PRIVMSG carol :hello, in the clear")
        try alice.expect("words about keys") { $0.body.contains(Notices.keysExchanged("carol")) }
        alice.send("PRIVMSG carol :canary while away")
        let carol = try bouncer.attach("carol")
        let line = try carol.expect("what came meanwhile") {
            $0.command == "PRIVMSG" && $0.body.hasSuffix("[e2e] canary while away")
        }
        #expect(line.nick == "alice")
        carol.send("PRIVMSG alice :canary from behind a bouncer")
        try alice.expectMessage("[e2e] canary from behind a bouncer")
        carol.send("PRIVMSG *pawl :status")
        try carol.expect("the sidecar's answer") { $0.nick == "*pawl" && $0.body.contains("alice") }
        carol.send("PRIVMSG znc-status :version")
        try carol.expect("the bouncer's answer") { $0.nick == "znc-status" }
        #expect(!lab.tap.shows("canary") && !carol.transcript.contains { $0.text.contains("?PAWL") })
    }

    /// A bouncer between the sidecar and the server keeps envelopes, which the sidecar opens when it is back.
    @Test func aSidecarBeforeZNC() throws {
        let lab = try SidecarLab(try NgIRCd())
        defer { lab.stop() }
        let alice = try lab.client(try lab.sidecar(), "alice")
        alice.send("JOIN #room")
        try alice.expect("366")
        let bouncer = try ZNC(lab.tap.port, nick: "carol", room: "#room")
        defer { bouncer.stop() }
        try alice.expect("carol's JOIN", timeout: .seconds(300)) { $0.command == "JOIN" && $0.nick == "carol" }
        var options = PawlProcess.Options()
        options.isSidecar = true
        options.environment["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND"] = "0"
        let sidecar = try PawlProcess(upstream: bouncer.port.number, options)
        defer { sidecar.stop() }
        func attach() throws -> IRCClient {
            let client = try IRCClient(port: sidecar.port)
            try client.register(nick: "carol", caps: nil, password: "carol/test:carol")
            return client
        }
        let carol = try attach()
        carol.send("PRIVMSG *status :version")
        try carol.expect("the bouncer's answer") { $0.nick == "*status" && $0.body.contains("ZNC 1.") }
        try SidecarTests.exchangeKeys(alice, carol)
        carol.send("PRIVMSG alice :canary to alice")
        try alice.expectMessage("[e2e] canary to alice")
        carol.close()
        alice.send("PRIVMSG carol :canary while away")
        try eventually("the bouncer has it") {
            lab.tap.lines(.fromServer).contains { $0.nick == "alice" && $0.body.hasPrefix("?PAWL:") }
        }
        let again = try attach()
        let line = try again.expect("what came meanwhile") {
            $0.command == "PRIVMSG" && $0.body.hasSuffix("canary while away")
        }
        #expect(line.nick == "alice" && line.body == "[e2e] canary while away")
        #expect(!lab.tap.shows("canary"))
    }
}
