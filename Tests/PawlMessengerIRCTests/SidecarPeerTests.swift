import Foundation
import NIOSSL
import PawlMessenger
import PawlMessengerIRC
import PeerKit
import QRCode
import TestKit
import TestThreads
import Testing

/// Messengers and real clients behind `pawl sidecar`, on real servers.
@Suite(.serialized) struct SidecarPeerTests {
    @Test(arguments: IRCLab.Kind.allCases) func aMessengerAndIrssiTalkAndVerify(_ kind: IRCLab.Kind) async throws {
        let lab = try await IRCLab(kind)
        defer { lab.stop() }
        let sidecar = try await lab.sidecar()
        let irssi = try await blocking { try Irssi(port: sidecar.port, nick: "bob") }
        defer { irssi.stop() }
        let alice = try await lab.app("alice")
        let chat = alice.chat("bob")

        #expect(try await chat.sendText("hello in the clear").isEncrypted == false)
        try await blocking {
            try irssi.waitFor("hello in the clear")
            try irssi.waitFor("Keys were exchanged with alice")
        }
        try await alice.hasKeys(of: "bob")
        #expect(alice.transport.support(of: "bob") == .capable)
        #expect(try await chat.sendText("canary for irssi").isEncrypted)
        try await blocking {
            try irssi.waitFor("[e2e] canary for irssi")
            try irssi.send("/msg alice canary for the messenger")
        }
        try await alice.expect("canary for the messenger", from: "bob")
        try await eventuallyAsync("both are protected") {
            try await chat.messages().suffix(2).allSatisfy(\.isEncrypted)
        }
        #expect(try await chat.messages().allSatisfy { !$0.isVerified })

        // Both sides show the same digits.
        let report = try await sidecar.sidecar("verify", "alice", "--json")
        let digits = try #require(report.firstMatch(of: /"safetyNumber" ?: ?"([0-9 ]+)"/)?.1)
        #expect(digits.filter(\.isNumber) == chat.safetyNumber()?.filter(\.isNumber))
        try await chat.verify()
        _ = try await sidecar.sidecar("verify", "alice", "--matches")
        try await chat.sendText("canary, verified")
        try await blocking {
            try irssi.waitFor("[e2e verified] canary, verified")
            try irssi.send("/msg alice canary, verified too")
        }
        try await alice.expect("canary, verified too", from: "bob")
        #expect(try await chat.messages().last?.isVerified == true)

        // Long ones, many, an action; in both directions.
        let long = "canary " + String(repeating: "long words ", count: 90)
        try await chat.sendText(long)
        for index in 0..<10 { try await chat.sendText("canary number \(index)") }
        try await blocking {
            for index in 0..<10 { try irssi.waitFor("canary number \(index)") }
            try irssi.send("/query alice")
            try irssi.send("/me waves with a canary")
        }
        try await alice.expect("/me waves with a canary", from: "bob")
        #expect(!lab.tap.shows("canary"))
        #expect(lab.tap.longestLine(.fromServer) <= 512)
        #expect(alice.handler.events.unreadable.isEmpty)
        alice.close()
    }

    /// A scan in each direction, and the picture that a phone reads from the sidecar's terminal.
    @Test func contactCardsVerifyOnBothSides() async throws {
        let lab = try await IRCLab(.ngircd)
        defer { lab.stop() }
        let sidecar = try await lab.sidecar()
        let bob = try await IRCPerson("bob", at: sidecar)
        let alice = try await lab.app("alice")
        try await alice.chat("bob").sendText("hello in the clear")
        try await alice.hasKeys(of: "bob")
        let report = try await sidecar.sidecar("verify", "alice", "--json")
        let uri = String(try #require(report.firstMatch(of: /"card" ?: ?"([^"]+)"/)?.1))
        let code = try #require(QRCode(Array(uri.utf8)))
        let picture = code.plain(quietZone: code.quietZone(fitting: 23))
        #expect(try await sidecar.sidecar("verify", "alice").contains(picture))
        #expect(try await alice.messenger.verify(card: ContactCard(uri: uri)) == .verified)
        let own = try await alice.messenger.contactCard()
        #expect(try await sidecar.sidecar("verify", "alice", "--card", own.uri).contains("verified"))
        try await alice.chat("bob").sendText("canary, verified")
        try await bob.expect("[e2e verified] canary, verified")
        try await bob.send("PRIVMSG alice :canary, verified too")
        try await alice.expect("canary, verified too", from: "bob")
        #expect(try await alice.chat("bob").messages().last?.isVerified == true)
        #expect(!lab.tap.shows("canary"))
        alice.close()
    }

    /// The sidecar writes first.
    @Test func irssiBegins() async throws {
        let lab = try await IRCLab(.ngircd)
        defer { lab.stop() }
        let sidecar = try await lab.sidecar()
        let alice = try await lab.app("alice")
        let irssi = try await blocking { try Irssi(port: sidecar.port, nick: "bob") }
        defer { irssi.stop() }
        try await blocking {
            try irssi.send("/msg alice hello in the clear")
            try irssi.waitFor("Keys were exchanged with alice")
        }
        try await alice.expect("hello in the clear", from: "bob")
        try await alice.hasKeys(of: "bob")
        try await blocking { try irssi.send("/msg alice canary of irssi") }
        try await alice.expect("canary of irssi", from: "bob")
        try await alice.chat("bob").sendText("canary of alice")
        try await blocking { _ = try irssi.waitFor("[e2e] canary of alice") }
        #expect(!lab.tap.shows("canary"))
        alice.close()
    }

    @Test func devicesAreRevokedOnBothSides() async throws {
        let lab = try await IRCLab(.ngircd)
        defer { lab.stop() }
        let (first, second) = (try await lab.sidecar(), try await lab.sidecar())
        let bob = try await blocking { try Irssi(port: first.port, nick: "bob") }
        defer { bob.stop() }
        let phone = try await blocking { try Irssi(port: second.port, nick: "bobphone") }
        defer { phone.stop() }
        let (alice, tablet) = (try await lab.app("alice"), try await lab.app("alicetablet"))

        // Bob's phone is added to his devices, and the messenger's tablet to Alice's, before they write to each other.
        try await blocking {
            try phone.send("/msg bob hello, it is me")
            try phone.waitFor("Keys were exchanged with bob")
            try bob.waitFor("Keys were exchanged with bobphone")
        }
        _ = try await second.sidecar("join", "bob")
        _ = try await first.sidecar("adopt", "bobphone")
        try await tablet.chat("alice").sendText("hello, it is me")
        try await alice.hasKeys(of: "alicetablet")
        try await tablet.hasKeys(of: "alice")
        #expect(alice.chat("alicetablet").safetyNumber() == tablet.chat("alice").safetyNumber())
        try await tablet.chat("alice").joinDevices()
        try await alice.chat("alicetablet").adoptDevice()
        try await eventuallyAsync("the tablet is one of Alice's devices") {
            await tablet.messenger.listDevices().count == 2
        }

        try await alice.chat("bob").sendText("hello in the clear")
        try await alice.hasKeys(of: "bob")
        try await alice.chat("bob").sendText("canary one")
        try await blocking { _ = try bob.waitFor("[e2e] canary one") }
        try await eventuallyAsync("Alice knows both of Bob's devices") { alice.chat("bob").devices.count == 2 }
        let devices = try await first.sidecar("status", "--json")
        #expect(devices.contains(#/"devices" : 2/#))

        // The sidecar's device is removed by the sidecar: the messenger notices it.
        let lost = try #require(
            alice.chat("bob").devices.first { device in
                devices.contains(#""device" : "\#(device.raw)""#) && !isFirst(device.raw, devices)
            })
        _ = try await first.sidecar("revoke", lost.raw)
        try await blocking { try bob.send("/msg alice canary two") }
        try await alice.expect("canary two", from: "bob")
        try await eventuallyAsync("the messenger has noticed it") {
            alice.chat("bob").devices.count == 1 && !alice.chat("bob").devices.contains(lost)
        }

        // The messenger's device is removed by the messenger: the sidecar notices it.
        try await alice.messenger.revokeDevice(tablet.messenger.deviceId)
        try await eventuallyAsync("the sidecar has noticed it", every: .milliseconds(200)) {
            try await !first.sidecar("status", "--json").contains(#/"devices" : 2/#)
        }
        try await alice.chat("bob").sendText("canary three")
        try await blocking { _ = try bob.waitFor("[e2e] canary three") }
        #expect(!lab.tap.shows("canary"))
        for app in [alice, tablet] { app.close() }
    }

    /// Whether a device is the sidecar's own, in its report.
    private func isFirst(_ device: String, _ report: String) -> Bool {
        report.replacing(" ", with: "").replacing("\n", with: "").contains(#""device":"\#(device)","isThisOne":true"#)
    }

    @Test(arguments: IRCLab.Kind.allCases) func anOldClientSeesWordsOrNothing(_ kind: IRCLab.Kind) async throws {
        let lab = try await IRCLab(kind)
        defer { lab.stop() }
        let port = lab.tap.port
        let irssi = try await blocking { try Irssi(port: port, nick: "olga") }
        defer { irssi.stop() }
        let alice = try await lab.app("alice")
        let strict = try await lab.app("strict") { $0.policy = .required }
        #expect(try await alice.chat("olga").sendText("hello, olga").isEncrypted == false)
        try await blocking {
            try irssi.waitFor("hello, olga")
            try irssi.send("/msg alice hello, alice")
            try irssi.send("/msg strict hello, you")
        }
        try await alice.expect("hello, alice", from: "olga")
        try await strict.expect("hello, you", from: "olga")
        #expect(alice.transport.support(of: "olga") == .legacy)
        await #expect(throws: CypherMessengerError.keysMissing) { try await strict.chat("olga").sendText("canary") }
        try await alice.chat("olga").sendText("the last one")
        let screen = try await blocking { try irssi.waitFor("the last one") }
        #expect(!screen.contains("PAWL") && !screen.contains("canary"))
        for app in [alice, strict] { app.close() }
    }

    /// Two messengers, an absent reader, a server that restarts, and a messenger that does.
    @Test func messagesWaitForReaderAndServer() async throws {
        let lab = try await IRCLab(.ngircd)
        defer { lab.stop() }
        let database = MessengerDatabase.inMemory()
        let alice = try await lab.app("alice")
        let bob = try await lab.app("bob", database)
        try await alice.chat("bob").sendText("hello in the clear")
        for (app, name) in [(alice, Username("bob")), (bob, "alice")] { try await app.hasKeys(of: name) }
        try await alice.chat("bob").sendText("canary one")
        try await bob.expect("canary one", from: "alice")
        bob.close()
        try await bob.transport.disconnect()
        try await alice.chat("bob").sendText("canary while bob is away")
        lab.tap.resetAll()
        let again = try await lab.app("bob", database)
        try await again.expect("canary while bob is away", from: "alice")
        try await blocking {
            lab.server.stop()
            try lab.server.start()
        }
        try await alice.chat("bob").sendText("canary after the restart")
        try await again.chat("alice").sendText("canary back")
        try await again.expect("canary after the restart", from: "alice")
        try await alice.expect("canary back", from: "bob")
        // Nothing is shown twice.
        #expect(try await again.texts(with: "alice").count { $0.hasPrefix("canary") } == 4)
        // A server that speaks in somebody's name is not believed.
        // The newest connection is that of one of the two.
        lab.tap.inject(":alice!alice@localhost PRIVMSG bob :forged", .fromServer)
        lab.tap.inject(":bob!bob@localhost PRIVMSG alice :forged", .fromServer)
        try await eventuallyAsync("it is withheld") {
            again.handler.events.withheld + alice.handler.events.withheld != []
        }
        #expect(try await !again.texts(with: "alice").contains("forged"))
        #expect(try await !alice.texts(with: "bob").contains("forged"))
        #expect(!lab.tap.shows("canary"))
        for app in [alice, again] { app.close() }
    }

    @Test func tlsAndLogin() async throws {
        let (server, services) = try await blocking {
            var options = InspIRCd.Options()
            (options.servicesLink, options.tls) = (true, true)
            let server = try InspIRCd(options)
            let services = try Services(on: server)
            let client = try IRCClient(port: server.port)
            try client.register(nick: "alice", caps: nil)
            client.send("PRIVMSG NickServ :REGISTER correct-horse alice@example.org")
            try client.expect("900")
            client.send("QUIT")
            client.close()
            return (server, services)
        }
        defer {
            services.stop()
            server.stop()
        }
        let port = try #require(server.tlsPort)
        let certificate = server.scratch.file("certificate.pem")
        @Sendable func trusting(_ settings: inout IRCChat.Settings) {
            var tls = TLSConfiguration.makeClientConfiguration()
            tls.trustRoots = .file(certificate)
            (settings.security, settings.host) = (.tls(tls), "localhost")
        }
        let alice = try await IRCApp.register("alice", port: port) {
            trusting(&$0)
            $0.login = ("alice", "correct-horse")
        }.connected()
        let whois = try await blocking {
            let client = try IRCClient(port: server.port)
            try client.register(nick: "carol", caps: nil)
            client.send("WHOIS alice")
            return try client.expect("330").parameters
        }
        #expect(whois.contains("alice"))
        // A wrong password, and a certificate that nobody has signed: no connection, and no text leaves.
        let wrong = try await IRCApp.register("mallory", port: port) {
            trusting(&$0)
            $0.login = ("alice", "wrong")
        }
        try await eventuallyAsync("the login is refused") { wrong.transport.authenticated == .authenticationFailure }
        let distrusting = try await IRCApp.register("dora", port: port) {
            ($0.security, $0.host) = (.tls(.makeClientConfiguration()), "localhost")
        }
        try await distrusting.chat("alice").sendText("hello")
        try await Task.sleep(for: .milliseconds(500))
        #expect(distrusting.transport.authenticated == .unauthenticated)
        for app in [alice, wrong, distrusting] { app.close() }
    }
}
