import Envelope
import Protection
import Testing

/// The table of design section 2, cell by cell, as far as this version has capable people: it has none.
@Suite struct PolicyTests {
    static let account = AccountID.services("bob")
    static let room = AccountID.room("#room")

    static func outbound(_ policy: Policy) -> [(Recipient, Verdict)] {
        switch policy {
        case .off, .observe, .opportunistic:
            [(.legacy(account), .plaintext), (.outsider, .plaintext), (.room(room), .plaintext), (.exempt, .plaintext)]
        case .hosted:
            [
                (.legacy(account), .seal(account)), (.outsider, .refuse(.outsider)), (.room(room), .seal(room)),
                (.exempt, .plaintext),
            ]
        case .required:
            [
                (.legacy(account), .refuse(.required)), (.outsider, .refuse(.outsider)), (.room(room), .refuse(.room)),
                (.exempt, .plaintext),
            ]
        }
    }

    @Test(arguments: Policy.allCases) func withoutALatch(_ policy: Policy) {
        for (recipient, verdict) in Self.outbound(policy) {
            #expect(policy.outbound(to: recipient, latch: .plaintext) == verdict, "\(recipient)")
        }
    }

    @Test(arguments: Policy.allCases) func aLatchNeverLetsPlaintextOut(_ policy: Policy) {
        #expect(policy.outbound(to: .legacy(Self.account), latch: .gateway) != .plaintext)
        #expect(policy.outbound(to: .legacy(Self.account), latch: .device) != .plaintext)
        #expect(policy.outbound(to: .outsider, latch: .gateway) != .plaintext)
    }

    @Test(arguments: Policy.allCases) func inbound(_ policy: Policy) {
        let expected: InboundVerdict =
            switch policy {
            case .off, .observe, .opportunistic: .deliver
            case .hosted: .mark
            case .required: .withhold
            }
        #expect(policy.inbound(fromExempt: false, latch: .plaintext) == expected)
        #expect(policy.inbound(fromExempt: true, latch: .gateway) == .deliver)
        #expect(policy.inbound(fromExempt: false, latch: .gateway) == (policy == .off ? .deliver : .withhold))
    }

    @Test(arguments: Policy.allCases) func whatAPolicyMeans(_ policy: Policy) {
        let expected =
            switch policy {
            case .off: ""
            case .observe: "takes part"
            case .opportunistic: "takes part, seeks"
            case .hosted: "takes part, seeks, demands, seals"
            case .required: "takes part, seeks, demands, devices"
            }
        let meanings = [
            policy.takesPart ? "takes part" : nil, policy.seeksProtection ? "seeks" : nil,
            policy.demandsProtection ? "demands" : nil, policy.demandsDevices ? "devices" : nil,
            policy.sealsEndToGateway ? "seals" : nil,
        ]
        #expect(meanings.compactMap(\.self).joined(separator: ", ") == expected)
    }

    @Test func helpTextsNameEveryPolicy() {
        #expect(Policy.choices == "off, observe, opportunistic, hosted or required")
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
