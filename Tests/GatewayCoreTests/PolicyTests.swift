import Envelope
import Protection
import Testing

/// The table of design section 2, cell by cell, as far as this version has capable people: it has none.
@Suite struct PolicyTests {
    static let account = AccountID.services("bob")
    static let room = AccountID.room("#room")

    static let outbound: [(Policy, Recipient, Verdict)] = [
        (.off, .legacy(account), .plaintext), (.off, .outsider, .plaintext), (.off, .room(room), .plaintext),
        (.observe, .legacy(account), .plaintext), (.observe, .outsider, .plaintext),
        (.observe, .room(room), .plaintext),
        (.opportunistic, .legacy(account), .plaintext), (.opportunistic, .outsider, .plaintext),
        (.opportunistic, .room(room), .plaintext),
        (.hosted, .legacy(account), .seal(account)), (.hosted, .outsider, .refuse(.outsider)),
        (.hosted, .room(room), .seal(room)), (.hosted, .exempt, .plaintext),
        (.required, .legacy(account), .refuse(.required)), (.required, .outsider, .refuse(.outsider)),
        (.required, .room(room), .refuse(.room)), (.required, .exempt, .plaintext),
    ]

    @Test(arguments: outbound) func withoutALatch(_ policy: Policy, _ recipient: Recipient, _ verdict: Verdict) {
        #expect(policy.outbound(to: recipient, latch: .plaintext) == verdict)
    }

    @Test(arguments: Policy.allCases) func aLatchNeverLetsPlaintextOut(_ policy: Policy) {
        #expect(policy.outbound(to: .legacy(Self.account), latch: .gateway) != .plaintext)
        #expect(policy.outbound(to: .legacy(Self.account), latch: .device) != .plaintext)
        #expect(policy.outbound(to: .outsider, latch: .gateway) != .plaintext)
    }

    @Test(arguments: [
        (Policy.off, InboundVerdict.deliver), (.observe, .deliver), (.opportunistic, .deliver), (.hosted, .mark),
        (.required, .withhold),
    ]) func inbound(_ policy: Policy, _ expected: InboundVerdict) {
        #expect(policy.inbound(fromExempt: false, latch: .plaintext) == expected)
        #expect(policy.inbound(fromExempt: true, latch: .gateway) == .deliver)
        #expect(policy.inbound(fromExempt: false, latch: .gateway) == (policy == .off ? .deliver : .withhold))
    }

    @Test(arguments: [
        (Policy.off, "", false), (.observe, "takes part", false), (.opportunistic, "takes part seeks", false),
        (.hosted, "takes part seeks demands", true), (.required, "takes part seeks demands devices", false),
    ]) func whatAPolicyMeans(_ policy: Policy, _ expected: String, _ seals: Bool) {
        let meanings = [
            policy.takesPart ? "takes part" : nil, policy.seeksProtection ? "seeks" : nil,
            policy.demandsProtection ? "demands" : nil, policy.demandsDevices ? "devices" : nil,
        ]
        #expect(meanings.compactMap(\.self).joined(separator: " ") == expected)
        #expect(policy.sealsEndToGateway == seals)
    }

    @Test func aConversationHasTheStricterPolicy() {
        for one in Policy.allCases {
            for other in Policy.allCases { #expect(Policy.ofConversation(one, other) == max(one, other)) }
        }
    }

    @Test func latchesRiseAndNeverFallByThemselves() {
        let latches = LatchTable()
        let id = ConversationID(.services("a"), .services("b"))
        #expect(id == ConversationID(.services("b"), .services("a")))
        #expect(latches.isEmpty)
        #expect(latches.raise(id, to: .gateway))
        #expect(!latches.raise(id, to: .gateway))
        #expect(latches.raise(id, to: .device))
        #expect(!latches.raise(id, to: .gateway))
        #expect(latches.latch(of: id) == .device)
        latches.reset(id)
        #expect(latches.latch(of: id) == .plaintext)
        #expect(latches.isEmpty)
    }

    @Test func nobodyInheritsByTakingANick() {
        #expect(AccountID.services("bob") != AccountID.connection(1))
        #expect(AccountID.connection(1) != AccountID.connection(2))
        #expect(!AccountID.connection(1).isVerified && AccountID.services("bob").isVerified)
    }
}
