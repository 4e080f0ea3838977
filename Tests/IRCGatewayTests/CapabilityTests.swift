import IRCCodec
import IRCGateway
import NIOCore
import Protection
import StorePort
import Testing

/// Negotiation as a transcript: what each side hears.
@Suite struct CapabilityTests {
    @Test func aClientThatSendsEverythingAtOnce() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        world.backend.isStalled = true
        let client = world.open()
        world.send(client, "CAP LS 302")
        world.send(client, "NICK alice")
        world.send(client, "USER alice 0 * :alice")
        world.backend.resume()
        world.settle()
        world.send(client, "CAP REQ :echo-message labeled-response batch pawl/e2ee")
        world.send(client, "CAP END")
        let caps = client.read.filter { $0.contains(" CAP ") }
        #expect(caps.count == 2)
        #expect(caps[0].contains(" LS :") && caps[0].hasSuffix(" pawl/e2ee"))
        #expect(caps[1].hasSuffix(" ACK :echo-message labeled-response batch pawl/e2ee"))
        #expect(client.read.contains { $0.contains(" 001 alice ") })
    }

    /// TLS cannot begin under the messages of a WebSocket, nor inside TLS.
    @Test(arguments: [Policy.observe, .hosted], [true, false])
    func startTLSIsForConnectionsThatCanUseIt(_ policy: Policy, _ can: Bool) throws {
        let world = try World(policy, offers: ["tls", "multi-prefix"]) { settings in
            (settings.terminatesStartTLS, settings.visibility.hidesStartTLS) = (true, false)
        }
        let client = world.open(mayStartTLS: can)
        world.send(client, "CAP LS 302")
        #expect(client.read.last?.contains(" LS ") == true && client.read.last?.contains("tls") == can)
        world.send(client, "STARTTLS")
        #expect(client.read.last?.contains(can ? " 670 " : " 421 ") == true, "\(client.read)")
        #expect(!world.canary.contains("STARTTLS"))
    }

    /// A busy server answers after it was given up: it must hear the end, or it would let nobody in.
    @Test(arguments: [[], ["multi-prefix"], SimulatedBackend.modern], [false, true])
    func aBackendThatAnswersLate(_ offers: [String], _ asks: Bool) throws {
        for policy in [Policy.observe, .hosted] where asks || policy == .hosted {
            let world = try World(policy, offers: offers)
            world.backend.isStalled = true
            let client = world.open()
            if asks { world.send(client, "CAP LS 302") }
            world.send(client, "NICK alice")
            world.send(client, "USER alice 0 * :alice")
            world.advance(seconds: 5.5)
            if asks { world.send(client, "CAP END") }
            world.backend.resume()
            world.settle()
            #expect(client.read.contains { $0.contains(" 001 alice ") })
            #expect(client.read.count { $0.contains(" CAP ") } == (asks ? 1 : 0))
            #expect(world.canary.contains("CAP REQ") == (offers.count > 1 && policy == .hosted))
        }
    }

    @Test func aSilentBackendIsAnsweredFor() throws {
        let world = try World(.observe)
        world.backend.isStalled = true
        let client = world.open()
        world.send(client, "CAP LS 302")
        #expect(client.read.isEmpty)
        world.advance(seconds: 5.1)
        #expect(client.read == [":pawl CAP * LS :pawl/e2ee"])
        world.send(client, "CAP REQ :pawl/e2ee")
        #expect(client.read.last == ":pawl CAP * ACK :pawl/e2ee")
        world.send(client, "CAP REQ :pawl/e2ee sasl")
        #expect(client.read.last == ":pawl CAP * NAK :pawl/e2ee sasl")
    }

    /// A sidecar needs the list of names: it withholds messages of people who are not in it.
    @Test(arguments: ["no-implicit-names", "draft/no-implicit-names"])
    func aSidecarAlwaysGetsTheNamesInARoom(_ name: String) throws {
        let world = try World(.opportunistic, offers: [name, "multi-prefix"], sidecar: true)
        let client = world.open()
        world.send(client, "CAP LS 302")
        let list = try #require(client.read.last)
        #expect(list.contains("multi-prefix") && !list.contains("implicit-names"))
        world.send(client, "CAP REQ :\(name)")
        #expect(client.read.last?.contains(" NAK :\(name)") == true)
        #expect(!world.canary.contains("implicit-names"))
    }

    /// The gateway asks for the names of a room that it has joined again, because the server does not send them.
    @Test(arguments: ["no-implicit-names", "draft/no-implicit-names"])
    func aRoomIsRestoredWithoutImplicitNames(_ name: String) throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern + [name])
        let alice = world.connect("alice", lines: ["CAP LS 302", "CAP REQ :\(name)", "CAP END"])
        world.send(alice, "JOIN #room")
        world.backendDies()
        world.backendReturns()
        world.advance(seconds: 1)
        #expect(!alice.read.contains { $0.contains(" 353 ") || $0.contains(" 366 ") })
        world.send(alice, "NAMES #room")
        #expect(alice.read.contains { $0.contains(" 353 ") } && alice.read.last?.contains(" 366 ") == true)
    }

    @Test func mixedRequestsAreAllOrNothing() throws {
        let world = try World(.observe, offers: SimulatedBackend.modern)
        let client = world.open()
        world.send(client, "CAP REQ :multi-prefix pawl/e2ee nosuch")
        #expect(client.read.last == ":srv CAP * NAK :multi-prefix pawl/e2ee nosuch")
        world.send(client, "CAP LIST")
        #expect(client.read.last == ":srv CAP * LIST :")
        world.send(client, "CAP REQ :pawl/e2ee multi-prefix")
        #expect(client.read.last == ":srv CAP * ACK :pawl/e2ee multi-prefix")
        world.send(client, "CAP LIST")
        #expect(client.read.last == ":srv CAP * LIST :multi-prefix pawl/e2ee")
        world.send(client, "CAP REQ :-pawl/e2ee")
        world.send(client, "CAP LIST")
        #expect(client.read.last == ":srv CAP * LIST :multi-prefix")
    }

    @Test func whatWouldNotBeTrueIsNotShown() throws {
        let world = try World(.observe, offers: SimulatedBackend.modern)
        let client = world.open()
        world.send(client, "CAP LS 302")
        let list = try #require(client.read.last)
        #expect(list.contains("sasl=PLAIN") && !list.contains("EXTERNAL"))
        #expect(!list.contains(" tls") && !list.contains("sts="))
        let rewriting = try World(.observe, offers: SimulatedBackend.modern) { $0.visibility.stsPort = 7000 }
        let other = rewriting.open()
        rewriting.send(other, "CAP LS 302")
        #expect(other.read.last?.contains("sts=port=7000,duration=1") == true)
    }

    /// If the backend learns of clients' certificates, their logins by EXTERNAL reach it.
    @Test(arguments: [Policy.observe, .hosted]) func externalIsShownWhereItIsTrue(_ policy: Policy) throws {
        let world = try World(policy, offers: SimulatedBackend.modern) { $0.visibility.hidesExternal = false }
        let client = world.open()
        world.send(client, "CAP LS 302")
        #expect(client.read.last?.contains("sasl=PLAIN,EXTERNAL") == true)
        world.send(client, "CAP REQ :sasl")
        world.send(client, "AUTHENTICATE EXTERNAL")
        #expect(world.canary.contains("AUTHENTICATE EXTERNAL"))
        #expect(!client.read.contains { $0.contains(" 904 ") })
    }

    @Test func aClientAskingForEverythingIsBelievedNothing() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let names = SimulatedBackend.modern.map { $0.prefix { $0 != "=" } }.filter { $0 != "tls" && $0 != "sts" }
        let alice = world.connect(
            "alice", lines: ["CAP LS 302", "CAP REQ :\(names.joined(separator: " ")) pawl/e2ee", "CAP END"])
        let bob = world.connect("bob")
        // Asking is recorded and changes nothing: there is no bundle, so messages stay end-to-gateway.
        world.send(bob, "PRIVMSG alice :still sealed")
        #expect(alice.messages.last?.hasSuffix(":still sealed") == true)
        #expect(!world.canary.contains("still sealed"))
        #expect(try world.store.evidence(limit: 10).contains { $0.name == "alice" && $0.asked })
    }
}
