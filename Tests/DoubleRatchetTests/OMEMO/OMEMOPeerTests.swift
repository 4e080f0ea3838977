import PeerKit
import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

/// Conversations with implementations that we did not write, over a channel that loses, delays, duplicates and forges.
@Suite("OMEMO against independent implementations", .serialized)
struct OMEMOPeerTests {
    struct Way: CustomTestStringConvertible, Sendable {
        let implementation: OMEMOPeer.Implementation
        let profile: OMEMOProfile
        let weInitiate: Bool

        var testDescription: String {
            "\(implementation.rawValue), \(profile.namespace), \(weInitiate ? "we" : "they") begin"
        }
    }

    static let ways = OMEMOPeer.Implementation.allCases.flatMap { implementation in
        OMEMOProfile.allCases.flatMap { profile in
            [true, false].map { Way(implementation: implementation, profile: profile, weInitiate: $0) }
        }
    }

    @Test("a long conversation with loss, reordering, copies, forgeries and restarts", arguments: ways)
    func longConversation(_ way: Way) throws {
        let seed = UInt64.random(in: 0...UInt64.max)
        var conversation = try OMEMOConversation(way, seed: seed)
        for _ in 0..<250 { try conversation.round() }
        try conversation.deliverRest()
        #expect(conversation.opened > 1200, "seed \(seed): \(conversation.opened) messages opened")
        #expect(conversation.forged > 200 && conversation.copied > 80, "seed \(seed)")
        print("\(way.testDescription): \(conversation.summary), seed \(seed)")
    }

    @Test("identities of both signs", arguments: OMEMOProfile.allCases)
    func signs(_ profile: OMEMOProfile) throws {
        for implementation in OMEMOPeer.Implementation.allCases {
            for (ours, theirs, weInitiate) in [(0, 0, true), (0, 1, false), (1, 0, false), (1, 1, true), (1, 0, true)] {
                let way = Way(implementation: implementation, profile: profile, weInitiate: weInitiate)
                var conversation = try OMEMOConversation(
                    way, seed: 77, ourSign: UInt8(ours), theirSign: UInt8(theirs))
                for _ in 0..<3 { try conversation.round() }
                try conversation.deliverRest()
                #expect(conversation.opened > 5)
            }
        }
    }

    @Test("hundreds of messages that come late and backwards", arguments: ways)
    func backwards(_ way: Way) throws {
        var conversation = try OMEMOConversation(way, seed: 78)
        try conversation.round()
        try conversation.deliverRest()
        try conversation.backwards(count: 300)
    }

    /// libomemo-c says one message too few of its previous chain.
    @Test("the last message of a chain may come after the next chain has begun", arguments: ways)
    func lateLast(_ way: Way) throws {
        var conversation = try OMEMOConversation(way, seed: 79)
        try conversation.round()
        try conversation.deliverRest()
        try conversation.lateLast()
    }

    @Test("1000 lost messages are skipped, and 53 call for a heartbeat", arguments: ways.filter { !$0.weInitiate })
    func limits(_ way: Way) throws {
        var conversation = try OMEMOConversation(way, seed: 80)
        try conversation.round()
        try conversation.deliverRest()
        try conversation.limits()
    }

    @Test(
        "both begin at once, and go on in the session that opened the latest message",
        arguments: ways.filter(\.weInitiate))
    func bothBegin(_ way: Way) throws {
        var conversation = try OMEMOConversation(way, seed: 82)
        try conversation.bothBegin()
    }

    @Test("payloads of the Python implementations", arguments: OMEMOProfile.allCases)
    func payloads(_ profile: OMEMOProfile) throws {
        var random = SeededGenerator(seed: 81)
        let peer = try OMEMOPeer(.python, profile, seed: random.bytes(32))
        // They take a payload without bytes for none.
        for length in [1, 15, 16, 17, 31, 32, 100, 1000, 5000] {
            let text = random.bytes(length)
            let ours = OMEMOPayload.seal(text.span, profile: profile, random: &random)
            #expect(try peer.open(ours.ciphertext, iv: ours.iv, keyMaterial: ours.keyMaterial.array) == text)
            let theirs = try peer.seal(text)
            var opened: [UInt8] = []
            try OMEMOPayload.open(
                theirs.ciphertext.span, iv: theirs.iv.span, keyMaterial: theirs.keyMaterial.span, profile: profile,
                into: &opened)
            #expect(opened == text)
        }
    }
}
