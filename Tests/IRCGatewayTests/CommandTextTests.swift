import IRCGateway
import Protection
import Reports
import StorePort
import Testing

/// The texts of TOPIC, KICK, PART, QUIT, AWAY and WALLOPS: refused, removed or passed, as the operator has chosen.
@Suite struct CommandTextTests {
    /// A command with a text, and what is sent in its place if the text is removed.
    struct Case: Sendable, CustomTestStringConvertible {
        var text: CommandText
        var stripped: String
        var line: String { "\(stripped.split(separator: ":").first ?? "") :the secret text".replacing("  ", with: " ") }
        var testDescription: String { text.rawValue }
    }

    static let cases = [
        Case(text: .topic, stripped: "TOPIC #room :"), Case(text: .kick, stripped: "KICK #room bob"),
        Case(text: .part, stripped: "PART #room"), Case(text: .quit, stripped: "QUIT"),
        Case(text: .away, stripped: "AWAY :Away"), Case(text: .wallops, stripped: "WALLOPS :(text removed)"),
    ]

    @Test func everyTextHasACase() { #expect(Self.cases.map(\.text) == CommandText.allCases) }

    @Test(arguments: cases, [Policy.hosted, .required])
    func theOperatorChooses(_ example: Case, _ policy: Policy) throws {
        for treatment in CommandTextTreatment.allCases {
            let world = try World(policy) { settings in
                settings.commandTexts[example.text, under: policy] = treatment
            }
            let alice = world.connect("alice")
            world.send(alice, "JOIN #room")
            world.send(alice, example.line)
            let last = world.backend.seen.last
            switch treatment {
            case .refuse:
                #expect(last == "JOIN #room")
                #expect(alice.read.contains { $0.contains(" 421 alice ") })
            case .strip: #expect(last == example.stripped)
            case .pass: #expect(last == example.line)
            }
            #expect(world.canary.contains("secret") == (treatment == .pass))
            let notice = Notices.stripped(String(example.line.prefix { $0 != " " }))
            #expect(alice.wasNotified(notice) == (treatment == .strip))
            let counted = [TallyKind.refusedVerb, .strippedText, .passedText].map { world.environment.tally[$0] }
            #expect(counted == CommandTextTreatment.allCases.map { $0 == treatment ? 1 : 0 })
        }
    }

    @Test(arguments: cases) func withoutATextTheCommandPasses(_ example: Case) throws {
        let world = try World(.required) { settings in
            settings.commandTexts[example.text, under: .required] = .refuse
        }
        let alice = world.connect("alice")
        world.send(alice, "JOIN #room")
        let bare = example.text == .topic ? "TOPIC #room :" : String(example.line.prefix { $0 != ":" })
        world.send(alice, bare)
        #expect(world.backend.seen.last == bare)
    }

    /// A choice for one policy is none for the other.
    @Test func thePoliciesHaveTheirOwnChoices() throws {
        for policy in [Policy.hosted, .required] {
            let world = try World(policy) { $0.commandTexts[.topic, under: .hosted] = .pass }
            let alice = world.connect("alice")
            world.send(alice, "TOPIC #room :the secret text")
            #expect(world.canary.contains("secret") == (policy == .hosted))
        }
    }

    // MARK: Rooms

    /// In a protected room the text is protected for everybody, and elsewhere for nobody.
    @Test(arguments: ["policy", "latch"])
    func aProtectedRoomProtectsTheTextsOfItsCommands(_ protection: String) throws {
        let world = try World(.observe)
        let alice = world.connect("alice")
        let carol = world.connect("carol")
        for room in ["#room", "#open"] { world.send(alice, "JOIN \(room)") }
        world.send(carol, "JOIN #room")
        world.environment.policies.update { $0.accounts[.room("#room")] = .hosted }
        if protection == "latch" {
            world.send(alice, "PRIVMSG #room :raises it")
            world.environment.policies.update { $0.accounts = [:] }
        }
        world.send(alice, "TOPIC #Room :secret")
        world.send(alice, "KICK #room bob :secret")
        // She is in it still.
        world.send(carol, "QUIT :secret")
        world.send(alice, "PART #open,#room :secret")
        #expect(!world.canary.contains("secret"))
        // These are shown elsewhere, or a name in them is no room that is shown them.
        for line in ["TOPIC #open :plain", "KICK #open bob :#room", "PART #open :plain", "AWAY :plain"] {
            world.send(alice, line)
            #expect(world.backend.seen.last == line)
        }
    }

    // MARK: Outages

    @Test(arguments: CommandTextTreatment.allCases)
    func afterAnOutageTheServerLearnsNoMore(_ treatment: CommandTextTreatment) throws {
        let world = try World(.hosted) { $0.commandTexts[.away, under: .hosted] = treatment }
        let alice = world.connect("alice")
        world.send(alice, "AWAY :at the secret place")
        world.backendDies()
        let before = world.backend.seen.count
        world.backendReturns()
        let repeated = world.backend.seen.dropFirst(before).filter { $0.hasPrefix("AWAY") }
        switch treatment {
        case .refuse: #expect(repeated.isEmpty)
        case .strip: #expect(repeated == ["AWAY :Away"])
        case .pass: #expect(repeated == ["AWAY :at the secret place"])
        }
    }

    /// It has not ended anything, so the outage is survived.
    @Test func aRefusedQuitEndsNothing() throws {
        let world = try World(.hosted) { $0.commandTexts[.quit, under: .hosted] = .refuse }
        let alice = world.connect("alice")
        world.send(alice, "QUIT :secret")
        #expect(alice.machine.outlivesBackend)
        world.send(alice, "QUIT")
        #expect(!alice.machine.outlivesBackend)
    }

    // MARK: Simulation

    /// What is counted under `observe` is what people lose under `hosted`.
    @Test func theSimulationCountsWhatIsRemoved() throws {
        let world = try World(.observe)
        let alice = world.connect("alice")
        world.send(alice, "JOIN #room")
        for example in Self.cases { world.send(alice, example.line) }
        world.advance(seconds: 3)
        let observations = try world.store.observations(limit: 100)
        var texts = CommandTexts()
        texts[.kick, under: .hosted] = .pass
        let hosted = SimulationReport(.hosted, observations, texts: texts)
        #expect(hosted.byRoute == ["TOPIC": 1, "WALLOPS": 1] && hosted.refusedMessages == 2)
        #expect(hosted.strippedTexts == ["PART": 1, "QUIT": 1, "AWAY": 1])
        #expect(hosted.passedTexts == ["KICK": 1])
        #expect(SimulationReport(.required, observations, texts: texts).passedTexts.isEmpty)
        let below = SimulationReport(.opportunistic, observations, texts: texts)
        #expect(below.refused.isEmpty && below.strippedTexts.isEmpty && below.passedTexts.isEmpty)
    }
}
