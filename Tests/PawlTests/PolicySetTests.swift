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

    private func accounts(_ gateway: Gateway) -> [AccountID: Policy] {
        gateway.tables.policies.snapshot.accounts
    }

    @Test func anUnknownAccountIsRefusedWithTheNearest() async throws {
        try gateway.commit([Self.saw("alice"), Self.saw("alina"), Self.saw("bob"), Self.saw("nina", verified: false)])
        let typo = await set(gateway, "hosted", "--account", "alise")
        #expect(typo.exit == 1 && typo.error.contains("knows no account alise"))
        #expect(typo.error.contains("alice, alina") && !typo.error.contains("bob") && typo.error.contains("--force"))
        let nick = await set(gateway, "hosted", "--account", "nina")
        #expect(nick.exit == 1 && nick.error.contains("nick of someone without an account"))
        let spaced = await set(gateway, "hosted", "--account", "al ice", "--force")
        #expect(spaced.exit == 1 && spaced.error.contains("space"))
        #expect(accounts(gateway).isEmpty)
        let known = await set(gateway, "hosted", "--account", "Alice")
        #expect(
            known.exit == 0 && known.out.contains("It covers 1 known person, 0 connections and 0 conversations now."))
        #expect(accounts(gateway) == [.services("alice"): .hosted])
        let everyone = await set(gateway, "opportunistic")
        #expect(everyone.out.contains("It covers 3 known people, 0 connections and 0 conversations now."))
    }

    @Test func forceTakesAName() async throws {
        let forced = await set(gateway, "hosted", "--account", "zed", "--force")
        #expect(forced.exit == 0 && forced.out.contains("never seen that name, so it protects nobody now"))
        #expect(accounts(gateway) == [.services("zed"): .hosted])
        // What is set can be changed and taken back without it, and is still nobody's.
        let changed = await set(gateway, "required", "--account", "zed", "--json")
        #expect(
            changed.exit == 0 && changed.out.contains(#""known" : false"#) && changed.out.contains(#""people" : 0"#))
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
        #expect(typo.exit == 1 && typo.error.contains("knows no room #stuff") && typo.error.contains("#staff"))
        let known = await set(gateway, "hosted", "--room", "#Staff")
        #expect(known.exit == 0 && known.out.contains("and 1 conversation now"))
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
        #expect(short.exit == 1 && short.error.contains("Known and similar: @alice:localhost."))
        #expect(accounts(matrix).isEmpty)
        #expect(await set(matrix, "hosted", "--account", "@Alice:localhost").exit == 1)
        // The same letter in other bytes is the known account.
        let composed = await set(matrix, "hosted", "--account", "@zoe\u{308}:localhost")
        #expect(composed.exit == 0 && accounts(matrix) == [.services("@zo\u{EB}:localhost"): .hosted])
        let room = await set(matrix, "hosted", "--room", "!abc:localhost")
        #expect(room.exit == 1 && room.error.contains("knows no room"))
        await matrix.front.close()
    }

    @Test func nearestNames() {
        let names = ["@alice:a", "alicia", "#alice", "bob", "", String(repeating: "x", count: 1000)]
        #expect(KnownNames.nearest("alice", among: names) == ["#alice", "@alice:a", "alicia"])
        #expect(KnownNames.nearest("", among: names) == [""])
        #expect(KnownNames.nearest(String(repeating: "x", count: 999), among: names).count == 1)
    }
}
