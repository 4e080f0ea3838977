import IRCGateway
import Protection
import Reports
import StorePort
import Testing

/// What reports know of people under `observe`: services, client software, and names of those without an account.
@Suite struct ObservedPeopleTests {
    /// The server is not asked: observing changes nothing.
    @Test(arguments: [Policy.observe, .opportunistic])
    func whatIsSaidToServicesCountsAsServices(_ policy: Policy) throws {
        let world = try World(policy) { $0.exemptions = [Exemption(nick: "*Serv", proof: .server("services.*"))] }
        let alice = world.connect("alice")
        world.connect("bob")
        for _ in 1...2 { world.send(alice, "PRIVMSG NickServ :IDENTIFY secret") }
        world.send(alice, "NS IDENTIFY secret")
        #expect(world.environment.tally[.sentExempt] == 3 && world.environment.tally[.sentPlaintext] == 0)
        for _ in 1...2 { world.send(alice, "PRIVMSG bob :hello") }
        #expect(world.environment.tally[.sentExempt] == 3 && world.environment.tally[.sentPlaintext] == 2)
        #expect(!world.backend.seen.contains { $0.hasPrefix("WHOIS") })
        world.advance(seconds: 3)
        let rows = try world.store.observations(limit: 10)
        #expect(rows.first { $0.target == "NickServ" }?.recipient == ObservedRecipient.exempt.rawValue)
    }

    @Test(arguments: [
        ("PING LAG1699999999", "HexChat"), ("QUIT :WeeChat 3.8", "WeeChat 3.8"),
        ("NOTICE bob :\u{1}VERSION irssi v1.4.3\u{1}", "irssi v1.4.3"), ("PING LAGoon", ""), ("QUIT :Leaving", ""),
    ])
    func softwareIsKnownOfClientsThatNameIt(_ line: String, _ software: String) throws {
        let world = try World(.observe)
        let alice = world.connect("alice")
        let read = alice.read
        world.send(alice, line)
        #expect(!alice.read.dropFirst(read.count).contains { $0.contains("VERSION") }, "nobody is asked")
        world.close(alice)
        world.advance(seconds: 3)
        let names = Set(try world.store.evidence(limit: 10).map(\.software)).subtracting([""])
        #expect(names == (software.isEmpty ? [] : [software]))
    }

    /// An answer to CTCP VERSION is more exact than what a client lets slip.
    @Test func theNameOfTheRegistrationIsReplacedByAnAnswer() throws {
        let world = try World(.observe)
        let alice = world.open()
        world.send(alice, "NICK alice")
        world.send(alice, "USER alice 0 * :ZNC - https://znc.in")
        world.send(alice, "NOTICE bob :\u{1}VERSION ZNC 1.8.2\u{1}")
        world.close(alice)
        let names = try world.store.evidence(limit: 10).map(\.software)
        #expect(Set(names) == ["ZNC - https://znc.in", "ZNC 1.8.2"])
    }

    @Test func whoHasLeftKeepsTheirNameInReports() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob", account: "bob")
        let account = try #require(world.environment.roster.owner(ofFoldedNick: "alice")?.account)
        #expect(world.environment.roster.nicks(of: account) == ["alice"])
        world.send(alice, "NICK alicia")
        world.close(alice)
        world.close(bob)
        #expect(world.environment.roster.nicks(of: account).isEmpty)
        #expect(world.environment.roster.nickOfLeft(account) == "alicia")
        #expect(world.environment.roster.nickOfLeft(.services("bob")) == nil, "an account has its own name")
    }

    /// The table is bounded; the oldest are forgotten.
    @Test func onlySoManyWhoHaveLeftAreKept() {
        let roster = Roster()
        func account(_ number: Int) -> AccountID { .connection(UInt64(number), logouts: 0) }
        for number in 1...Roster.leftLimit + 1 {
            let id = ConnectionID(UInt64(number))
            let entry = RosterEntry(
                connection: id, account: account(number), nick: "n\(number)", participates: true,
                askedForCapability: false)
            roster.put(entry, foldedNick: entry.nick, now: 0)
            roster.remove(id, now: 0)
        }
        #expect(roster.nickOfLeft(account(1)) == nil)
        #expect(roster.nickOfLeft(account(2)) == "n2")
        #expect(roster.nickOfLeft(account(Roster.leftLimit + 1)) == "n\(Roster.leftLimit + 1)")
    }
}
