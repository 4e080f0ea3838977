import TestKit
import Testing

@testable import DoubleRatchet

@Suite("The state of a session at rest")
struct StateTests {
    /// Everything in it is determined: a ciphertext that nobody encapsulated decapsulates to a secret all the same.
    private func golden() throws -> (alice: [UInt8], bob: [UInt8], messages: [[UInt8]]) {
        var random = SeededGenerator(seed: 42)
        let aliceIdentity = IdentityKeyPair(random: &random)
        let device = Device(&random)
        let ciphertext = random.bytes(KeySize.kemCiphertext)
        let encapsulation = Primitives.Encapsulation(
            ciphertext: ciphertext, secret: try Primitives.decapsulate(ciphertext, seed: device.kem.seed))
        var alice = try Session.initiate(
            identity: aliceIdentity, with: device.bundle, encapsulation: encapsulation, random: &random)
        let first = try alice.seal([1], data: [9], random: &random)
        let lost = try alice.seal([2], data: [9], random: &random)
        let third = try alice.seal([3], data: [9], random: &random)
        var plaintext: [UInt8] = []
        var bob = try device.respond(to: third, data: [9], into: &plaintext)
        let reply = try bob.seal([4], data: [9], random: &random)
        return (alice.state, bob.state, [first, lost, third, reply])
    }

    @Test("version 2, byte for byte") func goldenBytes() throws {
        let (alice, bob, messages) = try golden()
        #expect(sha256(alice) == "e6096d7277fa5273ec64ca34a4cb19ccc0c5df870872ca000fdf53c772e45afc")
        #expect(sha256(bob) == "950d1b30f5e3ee7bd76da7af8e290d9ea9353497aa6968d6b0cc1b18910ea630")
        #expect(sha256(messages.flatMap { $0 }) == "ad04a3cfd8aa944afeabbb3721ccde36e9af01f77d338fa27c2f9b6e215a6f86")
        #expect((alice.count, bob.count) == (2253, 730))
    }

    @Test("version 2, in the middle of epochs, byte for byte") func goldenEpochs() throws {
        let (aliceState, bobState, messages) = try golden()
        var alice = try restored(aliceState)
        var bob = try restored(bobState)
        _ = try alice.open(messages[3], data: [9])
        var random = SeededGenerator(seed: 43)
        var states: [UInt8] = []
        for round in 0..<110 {
            let (one, two) = (try alice.seal([1], random: &random), try alice.seal([2], random: &random))
            // One of three is lost, so that parity chunks are among those that arrive.
            if round % 3 > 0 { _ = try bob.open(one) }
            _ = try bob.open(two)
            _ = try alice.open(try bob.seal([3], random: &random))
            if round % 10 == 9 { states += alice.state + bob.state }
        }
        let epochs = (alice.ratchet.postQuantum.braid.epoch, bob.ratchet.postQuantum.braid.epoch)
        #expect(epochs == (3, 3))
        #expect(sha256(states) == "f63103b85c831573a0863afe549c83fe8848562a3cc8e2edf7b74cf51b7f2583")
    }

    @Test("a state of the golden conversation goes on") func goldenContinues() throws {
        let (aliceState, bobState, messages) = try golden()
        var alice = try restored(aliceState)
        var bob = try restored(bobState)
        #expect(try alice.open(messages[3], data: [9]) == [4])
        #expect(alice.isEstablished == true)
        #expect(try bob.open(messages[1], data: [9]) == [2])
        #expect(try bob.open(messages[0], data: [9]) == [1])
        #expect(bob.refusal(of: messages[2], data: [9]) == .duplicate)
    }

    @Test("there and back is the same bytes") func roundTrip() throws {
        let (alice, bob, _) = try golden()
        #expect(try restored(alice).state == alice)
        #expect(try restored(bob).state == bob)
    }

    @Test("truncated at every length, and one byte more") func truncated() throws {
        let (alice, bob, _) = try golden()
        for state in [alice, bob] {
            for length in state.indices {
                #expect(throws: RatchetError.malformed, "\(length)") { _ = try restored(Array(state[..<length])) }
            }
            #expect(throws: RatchetError.malformed) { _ = try restored(state + [0]) }
        }
    }

    @Test("other versions, flags and counts are refused") func refused() throws {
        let (alice, bob, _) = try golden()
        for version in UInt8.min...UInt8.max where version != 2 {
            #expect(throws: RatchetError.unsupportedVersion) { _ = try restored([version] + bob.dropFirst()) }
        }
        for state in [alice, bob] {
            // The other role with the same chains has the same form, and so has every version: that, only
            // authentication can tell.
            let roles = state == bob ? [state[1], state[1] ^ 1] : [state[1]]
            let forms = roles.flatMap { [$0, $0 | 32, $0 | 96] }
            for flags in UInt8.min...UInt8.max where !forms.contains(flags) {
                #expect(throws: RatchetError.malformed, "\(flags)") {
                    _ = try restored([2, flags] + state.dropFirst(2))
                }
            }
        }
        let (_, golden, messages) = try golden()
        var confused = try restored([2, golden[1] ^ 1] + golden.dropFirst(2))
        #expect(confused.refusal(of: messages[1], data: [9]) == .differentSession)
        // One skipped key more than are allowed, with all the bytes for it.
        var counted = Array(bob.dropLast(2 + 2 * FinishedChains.keySize))
        counted.append(networkOrder: UInt16(RatchetLimits.maximumSkippedKeys + 1))
        counted += [UInt8](repeating: 0, count: (RatchetLimits.maximumSkippedKeys + 1) * FinishedChains.keySize)
        #expect(throws: RatchetError.malformed) { _ = try restored(counted) }
    }

    @Test("remembered chains are bounded") func rememberedChains() throws {
        var pair = try Pair(seed: 33)
        for _ in 0..<(RatchetLimits.maximumRememberedChains + 10) {
            _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
            _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        }
        #expect(pair.bob.ratchet.finished.chains.count == RatchetLimits.maximumRememberedChains)
        #expect(try restored(pair.bob.state).state == pair.bob.state)
    }
}
