import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

@Suite("OMEMO sessions between two ends of ours")
struct OMEMOSessionTests {
    @Test("the key exchange goes along until the first reply", arguments: OMEMOProfile.allCases)
    func beginning(_ profile: OMEMOProfile) throws {
        var random = SeededGenerator(seed: 400)
        let aliceIdentity = IdentityKeyPair(random: &random)
        let device = try OMEMODevice(profile, &random)
        var alice = try OMEMOSession.initiate(
            identity: aliceIdentity, with: device.bundle, expecting: nil, random: &random)
        let messages = try (0..<3).map { try alice.seal([$0], random: &random) }
        #expect(messages.map(\.isKeyExchange) == [true, true, true])
        #expect(alice.isEstablished == false)

        // The second comes first, and the others belong to the session that it began.
        var text: [UInt8] = []
        var bob = try device.respond(
            to: messages[1].bytes, expecting: aliceIdentity.omemoKey(in: profile), into: &text)
        #expect(text == [1])
        #expect(bob.isEstablished == true)
        #expect(bob.peerIdentity == aliceIdentity.omemoKey(in: profile))
        for message in messages {
            #expect(bob.began(with: try OMEMOKeyExchange(of: message.bytes.span, profile: profile)))
        }
        #expect(try bob.open(messages[2]) == [2])
        #expect(try bob.open(messages[0]) == [0])
        #expect(bob.refusal(of: messages[1]) == .duplicate)

        let empty = OMEMOPayload.emptyKeyMaterial(profile)
        var reply: [UInt8] = []
        #expect(try bob.encrypt(empty, random: &random, into: &reply) == .message)
        #expect(try alice.open(.init(isKeyExchange: false, bytes: reply)) == empty.array)
        #expect(alice.isEstablished == true)
        let later = try alice.seal([7], random: &random)
        #expect(!later.isKeyExchange)
        #expect(try bob.open(later) == [7])
        // One of the first, by then an old chain's.
        #expect(bob.refusal(of: messages[1]) == .duplicate)
    }

    @Test("another key exchange begins another session", arguments: OMEMOProfile.allCases)
    func otherExchange(_ profile: OMEMOProfile) throws {
        var random = SeededGenerator(seed: 401)
        let aliceIdentity = IdentityKeyPair(random: &random)
        let device = try OMEMODevice(profile, &random)
        var first = try OMEMOSession.initiate(
            identity: aliceIdentity, with: device.bundle, expecting: nil, random: &random)
        var second = try OMEMOSession.initiate(
            identity: aliceIdentity, with: device.bundle, expecting: nil, random: &random)
        var text: [UInt8] = []
        var bob = try device.respond(to: try first.seal([1], random: &random).bytes, into: &text)
        let other = try second.seal([2], random: &random)
        #expect(bob.refusal(of: other) == .differentSession)
        #expect(!bob.began(with: try OMEMOKeyExchange(of: other.bytes.span, profile: profile)))
        // Nor does an initiator take one: what comes from the other end is a session that was begun there.
        #expect(first.refusal(of: other) == .differentSession)
        let own = try first.seal([3], random: &random)
        #expect(first.refusal(of: own) == .differentSession)
        // The same bytes without the mark are no message.
        #expect(bob.refusal(of: .init(isKeyExchange: false, bytes: own.bytes)) != nil)
        #expect(try bob.open(own) == [3])
    }

    @Test("an initiator that sent nothing but lost messages takes no reply", arguments: OMEMOProfile.allCases)
    func noStep(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 402)
        // Under a key that nobody has sent, and under the prekey that the session began with.
        let message = try pair.bob.seal([1], random: &pair.random)
        var random = SeededGenerator(seed: 403)
        let device = try OMEMODevice(profile, &random)
        var fresh = try OMEMOSession.initiate(
            identity: IdentityKeyPair(random: &random), with: device.bundle, expecting: nil, random: &random)
        #expect(fresh.refusal(of: message) == .authenticationFailed)
        let key = device.bundle.signedPreKey.key
        var forged: [UInt8] = []
        OMEMOMessage.write(
            OMEMOMessage.authenticated(
                profile: profile, ratchetKey: key, number: 0, previousCount: 0,
                ciphertext: [UInt8](repeating: 0, count: 16)),
            mac: [UInt8](repeating: 0, count: profile.macLength), profile: profile, into: &forged)
        #expect(fresh.refusal(of: .init(isKeyExchange: false, bytes: forged)) == .authenticationFailed)
    }

    @Test("the heartbeat is due once a chain, at 53 or the first number after", arguments: OMEMOProfile.allCases)
    func heartbeat(_ profile: OMEMOProfile) throws {
        for lost in [0, 2] {
            var pair = try OMEMOPair(profile, seed: 404)
            var due: [Int] = []
            for number in 0..<120 {
                let message = try pair.alice.seal([1], random: &pair.random)
                if lost > 0, 53..<(53 + lost) ~= number { continue }
                if try pair.bob.received(message).isHeartbeatDue { due.append(number) }
            }
            #expect(due == [53 + lost])
            // The heartbeat moves the ratchet on, and the next chain counts from 0.
            _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
            #expect(try pair.bob.received(try pair.alice.seal([1], random: &pair.random)).isHeartbeatDue == false)
        }
    }

    @Test("a gap at once in a new chain calls for a heartbeat too", arguments: OMEMOProfile.allCases)
    func heartbeatAfterStep(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 405)
        for _ in 0..<60 { _ = try pair.alice.seal([1], random: &pair.random) }
        let received = try pair.bob.received(try pair.alice.seal([1], random: &pair.random))
        #expect(received == .init(skipped: 60, isHeartbeatDue: true))
    }

    @Test("1000 may be missing, 1001 may not; 1000 keys are kept, the oldest go", arguments: OMEMOProfile.allCases)
    func bounds(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 406)
        _ = try pair.bob.open(try pair.alice.seal([0], random: &pair.random))
        var skipped: [OMEMOPeer.Message] = []
        for _ in 0..<1000 { skipped.append(try pair.alice.seal([1], random: &pair.random)) }
        _ = try pair.bob.open(try pair.alice.seal([2], random: &pair.random))
        #expect(pair.bob.skippedCount == 1000)
        let next = try pair.alice.seal([3], random: &pair.random)
        _ = try pair.bob.open(try pair.alice.seal([4], random: &pair.random))
        #expect(pair.bob.skippedCount == 1000)
        #expect(pair.bob.refusal(of: skipped[0]) == .duplicate)
        #expect(try pair.bob.open(skipped[1]) == [1])
        #expect(try pair.bob.open(skipped[999]) == [1])
        #expect(try pair.bob.open(next) == [3])

        for _ in 0..<1001 { _ = try pair.alice.seal([5], random: &pair.random) }
        let far = try pair.alice.seal([6], random: &pair.random)
        #expect(pair.bob.refusal(of: far) == .tooFarAhead)
        // A chain whose end is that far is left behind by a step, and its first 1000 can still come.
        _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        #expect(try pair.bob.open(try pair.alice.seal([7], random: &pair.random)) == [7])
        #expect(pair.bob.refusal(of: far) == .tooFarAhead)
    }

    @Test("chains of before stay open for what comes late, five in all", arguments: OMEMOProfile.allCases)
    func pastChains(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 407)
        var late: [OMEMOPeer.Message] = []
        for _ in 0..<8 {
            _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random))
            late.append(try pair.alice.seal([2], random: &pair.random))
            _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        }
        // All but the last were named by the next chain's header.
        #expect(pair.bob.skippedCount == 7)
        for message in late { #expect(try pair.bob.open(message) == [2]) }
        #expect(pair.bob.skippedCount == 0)
        for message in late { #expect(pair.bob.refusal(of: message) == .duplicate) }
        #expect(pair.bob.ratchet.past.count == OMEMOLimits.maximumPastChains)
    }

    @Test("a chain ends before its numbers do", arguments: OMEMOProfile.allCases)
    func exhausted(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 408)
        _ = try pair.alice.seal([], random: &pair.random)
        pair.alice.ratchet.sending?.next = .max
        let before = pair.alice.state
        #expect(throws: RatchetError.exhausted) { _ = try pair.alice.seal([], random: &pair.random) }
        #expect(pair.alice.state == before)
    }

    @Test("sizes on the wire", arguments: OMEMOProfile.allCases) func sizes(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 409)
        let material = OMEMOPayload.emptyKeyMaterial(profile).count + 16
        let message = try pair.alice.seal([UInt8](repeating: 0, count: material), random: &pair.random)
        // Key material of 48 or 32 bytes, one block of padding, 61 or 50 bytes around.
        #expect(message.bytes.count == (profile == .omemo2 ? 64 + 60 : 48 + 50))
    }
}
