import Foundation
import IRCGateway
import PeerKit
import Protection
import Reports
import TestThreads
import Testing

@testable import pawl

/// What a gateway has in one role, or in front of one protocol, the others refuse in words.
@Suite(.blocking) struct RoleTests {
    /// The three gateways that exist.
    enum Kind: CaseIterable { case irc, http, sidecar }

    private let scratch: ScratchDirectory

    init() throws { scratch = try ScratchDirectory() }

    private func gateway(_ kind: Kind) throws -> Gateway {
        let scheme = kind == .http ? "http" : "irc"
        return try AdminTests.gateway(
            scratch, upstream: "\(scheme)://127.0.0.1:1", listen: "\(scheme)://127.0.0.1:0",
            as: kind == .sidecar ? .sidecar : .front)
    }

    private static let ofSidecars = [
        ["status"], ["verify", "bob"], ["accept", "bob"], ["forget", "bob"], ["adopt", "bob"], ["join", "bob"],
        ["revoke", "ff"], ["protect", "#a"], ["plain", "#a"], ["card"], ["scan", "pawl:contact?"], ["devices"],
    ]

    @Test(arguments: [Kind.irc, .http]) func onlyASidecarExecutesItsCommands(_ kind: Kind) async throws {
        let gateway = try gateway(kind)
        #expect(Self.ofSidecars.count == SidecarCommand.asking.count)
        for words in Self.ofSidecars {
            let answer = await AdminGrammar.perform(["sidecar"] + words, on: gateway)
            #expect(answer.exit == 1 && answer.failure == .isGateway, "\(words)")
        }
        #expect(throws: Never.self) { try gateway.directory() }
        await gateway.front.close()
    }

    @Test func aSidecarHasNoDirectory() async throws {
        let gateway = try gateway(.sidecar)
        for words in [["list"], ["revoke", "bob"], ["block", "bob"], ["unblock", "bob"]] {
            let answer = await AdminGrammar.perform(["devices"] + words, on: gateway)
            #expect(answer.exit == 1 && answer.failure == .isSidecar)
        }
        #expect(await AdminGrammar.perform(["sidecar", "status"], on: gateway).exit == 0)
        // Its user decides about each room, so nothing is forecast.
        #expect(try gateway.latchForecast { $0.everyone = .hosted }.rises.isEmpty)
    }

    @Test func aSidecarInFrontOfHTTPIsRefused() throws {
        let failure = try #require(throws: AdminFailure.self) {
            try AdminTests.gateway(
                scratch, upstream: "http://127.0.0.1:1", listen: "http://127.0.0.1:0", as: .sidecar)
        }
        #expect(failure.code == FailureCode.noSidecar.rawValue)
    }

    @Test(arguments: Kind.allCases) func onlyHTTPHasAMapping(_ kind: Kind) async throws {
        let gateway = try gateway(kind)
        let answer = await AdminGrammar.perform(["unmatched"], on: gateway)
        #expect((answer.exit == 0) == (kind == .http))
        #expect(answer.failure == (kind == .http ? nil : .noMapping))
        await gateway.front.close()
    }

    /// A page without people is not read as a gateway without users.
    @Test(arguments: Kind.allCases) func onlyIRCCountsPeopleByTheirConnections(_ kind: Kind) async throws {
        let gateway = try gateway(kind)
        let page = await MetricsPage.text(gateway)
        #expect(page.contains("pawl_people_present 0") == (kind != .http))
        #expect(page.contains("pawl_accounts_behind 0") == (kind == .http))
        #expect(page.contains("pawl_conversations_latched 0"))
        await gateway.front.close()
    }

    /// The nick of a connection without a login is its name, and the account's are in the reports by their names.
    @Test func connectedPeopleAreInTheReports() async throws {
        let gateway = try gateway(.irc)
        let front = try #require(gateway.front as? IRCFront)
        let guest = AccountID.connection(1)
        front.environment.roster.put(
            RosterEntry(
                connection: ConnectionID(1), account: guest, nick: "Guest", participates: true,
                askedForCapability: false), foldedNick: "guest", now: 0)
        front.environment.rooms.put(ConnectionID(1), of: guest, as: "guest", into: "#ops")
        front.environment.rooms.saw(["stranger"], in: "#ops")
        #expect(gateway.displayName(guest) == "Guest" && gateway.account(named: "Guest") == guest)
        #expect(gateway.front.presence().nicks == ["guest"] && gateway.front.presence().accounts == [guest])
        #expect(gateway.front.connectionCount(of: guest) == 1)
        #expect(gateway.front.connectionCount(of: .room("#ops")) == 1)
        #expect(try KnownNames(gateway).hasSeen(.room("#ops")))
        let report = try await gateway.status()
        #expect(report.accounts.connectedNow == 1)
        #expect(report.blockers.map(\.name) == ["stranger in #ops"])
    }
}
