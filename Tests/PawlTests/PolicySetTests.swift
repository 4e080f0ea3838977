import Envelope
import Foundation
import IRCGateway
import PeerKit
import Protection
import StorePort
import TestThreads
import Testing

@testable import pawl

/// A policy for a name that nobody has protects nobody, and says so.
@Suite(.blocking) struct PolicySetTests {
    private let scratch: ScratchDirectory
    private let gateway: Gateway

    /// A gateway that has seen some people.
    init() throws {
        scratch = try ScratchDirectory()
        gateway = try AdminTests.gateway(scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0")
    }

    private static func saw(_ name: String, verified: Bool = true) -> StoreChange {
        .addEvidence(
            EvidenceRow(
                name: name, verified: verified, software: "", asked: false, firstSeen: 1, lastSeen: 1, registrations: 1)
        )
    }

    private func set(_ gateway: Gateway, _ words: String...) async -> AdminAnswer {
        await AdminGrammar.perform(["policy", "set"] + words, on: gateway)
    }

    /// The report of a command that succeeds.
    private func report(_ gateway: Gateway, _ words: String...) async throws -> PolicyCommand.Set.Report {
        let answer = await AdminGrammar.perform(["policy", "set"] + words + ["--json"], on: gateway)
        try #require(answer.exit == 0, "\(answer)")
        return try JSONDecoder().decode(PolicyCommand.Set.Report.self, from: Data(answer.out.utf8))
    }

    private func accounts(_ gateway: Gateway) -> [AccountID: Policy] {
        gateway.tables.policies.snapshot.accounts
    }

    @Test func anUnknownAccountIsRefusedWithTheNearest() async throws {
        try gateway.commit([Self.saw("alice"), Self.saw("alina"), Self.saw("bob"), Self.saw("nina", verified: false)])
        let typo = await set(gateway, "hosted", "--account", "alise")
        #expect(typo.exit == 1 && typo.failure == .unknownAccount)
        #expect(typo.error.contains("alice, alina") && !typo.error.contains("bob"))
        let nick = await set(gateway, "hosted", "--account", "nina")
        #expect(nick.exit == 1 && nick.failure == .nickWithoutAccount)
        let spaced = await set(gateway, "hosted", "--account", "al ice", "--force")
        #expect(spaced.exit == 1 && spaced.failure == .nameWithSpace)
        #expect(accounts(gateway).isEmpty)
        let known = try await report(gateway, "hosted", "--account", "Alice")
        #expect(known.covers == KnownNames.Coverage(people: 1, connections: 0, conversations: 0))
        #expect(accounts(gateway) == [.services("alice"): .hosted])
        let everyone = try await report(gateway, "opportunistic")
        #expect(everyone.covers == KnownNames.Coverage(people: 3, connections: 0, conversations: 0))
    }

    @Test func forceTakesAName() async throws {
        let forced = try await report(gateway, "hosted", "--account", "zed", "--force")
        #expect(!forced.known)
        #expect(accounts(gateway) == [.services("zed"): .hosted])
        // What is set can be changed and taken back without it, and is still nobody's.
        let changed = try await report(gateway, "required", "--account", "zed")
        #expect(!changed.known && changed.covers.people == 0)
        #expect(await set(gateway, "default", "--account", "zed").exit == 0)
        #expect(await set(gateway, "default", "--account", "zed").exit == 1)
        #expect(accounts(gateway).isEmpty)
    }

    @Test func anUnknownRoomIsRefused() async throws {
        try gateway.commit([
            .putConversation(
                ConversationRow(
                    id: .ofRoom("#staff"), latch: .gateway, since: 1, peerNameForFirst: "", peerNameForSecond: ""))
        ])
        let typo = await set(gateway, "hosted", "--room", "#stuff")
        #expect(typo.exit == 1 && typo.failure == .unknownRoom && typo.error.contains("#staff"))
        let known = try await report(gateway, "hosted", "--room", "#Staff")
        #expect(known.known && known.covers.conversations == 1)
        #expect(accounts(gateway) == [.room("#staff"): .hosted])
    }

    @Test func whatAnEarlierVersionAcceptedCanBeTakenBack() async throws {
        try gateway.setPolicy(.hosted, for: .services("#ops"))
        #expect(await set(gateway, "default", "--account", "#ops").exit == 0)
        #expect(accounts(gateway).isEmpty)
    }

    /// The documented form of IRC protects nobody on Matrix, whose accounts have other names.
    @Test func aLocalPartIsNoMatrixAccount() async throws {
        let scratch = try ScratchDirectory()
        let matrix = try AdminTests.gateway(scratch, upstream: "http://127.0.0.1:1", listen: "http://127.0.0.1:0")
        try matrix.commit([Self.saw("@alice:localhost"), Self.saw("@zo\u{EB}:localhost"), Self.saw("@bob:localhost")])
        let short = await set(matrix, "hosted", "--account", "alice")
        #expect(short.exit == 1 && short.failure == .unknownAccount && short.error.contains("@alice:localhost"))
        #expect(accounts(matrix).isEmpty)
        #expect(await set(matrix, "hosted", "--account", "@Alice:localhost").exit == 1)
        // The same letter in other bytes is the known account.
        let composed = await set(matrix, "hosted", "--account", "@zoe\u{308}:localhost")
        #expect(composed.exit == 0 && accounts(matrix) == [.services("@zo\u{EB}:localhost"): .hosted])
        let room = await set(matrix, "hosted", "--room", "!abc:localhost")
        #expect(room.exit == 1 && room.failure == .unknownRoom)
        await matrix.front.close()
    }

    @Test func nearestNames() {
        let names = ["@alice:a", "alicia", "#alice", "bob", "", String(repeating: "x", count: 1000)]
        #expect(KnownNames.nearest("alice", among: names) == ["#alice", "@alice:a", "alicia"])
        #expect(KnownNames.nearest("", among: names) == [""])
        #expect(KnownNames.nearest(String(repeating: "x", count: 999), among: names).count == 1)
    }
}
