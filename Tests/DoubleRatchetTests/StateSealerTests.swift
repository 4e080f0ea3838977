import TestKit
import Testing

@testable import DoubleRatchet

@Suite("Sealed states")
struct StateSealerTests {
    private static let key = [UInt8](repeating: 9, count: 32)
    private let sealer = StateSealer(key: key.span)
    private let place = Array("session 1 2".utf8)

    private func seal(_ state: [UInt8], _ counter: UInt64, seed: UInt64 = 1) -> [UInt8] {
        var random = SeededGenerator(seed: seed)
        var output: [UInt8] = []
        sealer.seal(state.span, place: place, counter: counter, random: &random, into: &output)
        return output
    }

    private func refusal(
        _ sealed: [UInt8], by sealer: StateSealer? = nil, place: [UInt8]? = nil, atLeast counter: UInt64 = 0
    ) -> RatchetError? {
        var output: [UInt8] = [5]
        do throws(RatchetError) {
            _ = try (sealer ?? self.sealer).open(
                sealed.span, place: place ?? self.place, atLeast: counter, into: &output)
            return nil
        } catch {
            #expect(output == [5])
            return error
        }
    }

    @Test("there and back, with its counter") func roundTrip() throws {
        for state in [[], [1], [UInt8](repeating: 7, count: 3000)] {
            let sealed = seal(state, 258)
            #expect(sealed.count == state.count + StateSealer.overhead)
            #expect(sealed.prefix(9) == [1, 0, 0, 0, 0, 0, 0, 1, 2])
            var output: [UInt8] = [5]
            #expect(try sealer.open(sealed.span, place: place, atLeast: 258, into: &output) == 258)
            #expect(output == [5] + state)
        }
    }

    @Test("attack: a state of before is told from a damaged one") func rolledBack() {
        let (old, new) = (seal([1], 7), seal([2], 8))
        #expect(refusal(new, atLeast: 8) == nil && refusal(new, atLeast: 7) == nil)
        #expect(refusal(old, atLeast: 8) == .rolledBack)
        // With the number of a newer one it is a forgery.
        var renumbered = old
        renumbered[8] = 8
        #expect(refusal(renumbered, atLeast: 8) == .authenticationFailed)
    }

    @Test("every changed byte, every cut, another place, another key") func refusals() {
        let sealed = seal([1, 2, 3], 1)
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 1
            #expect(refusal(changed) == (index == 0 ? .unsupportedVersion : .authenticationFailed), "\(index)")
        }
        for length in 0..<StateSealer.overhead { #expect(refusal(Array(sealed[..<length])) == .malformed, "\(length)") }
        for length in StateSealer.overhead..<sealed.count {
            #expect(refusal(Array(sealed[..<length])) == .authenticationFailed, "\(length)")
        }
        #expect(refusal(sealed + [0]) == .authenticationFailed)
        #expect(refusal(sealed, place: Array("session 2 1".utf8)) == .authenticationFailed)
        let other = [UInt8](repeating: 8, count: 32)
        #expect(refusal(sealed, by: StateSealer(key: other.span)) == .authenticationFailed)
    }

    @Test("the same randomness twice, as in a cloned machine: two states share no key stream") func sameNonce() {
        let (one, two) = (seal([0, 0, 0, 0], 1), seal([0, 0, 0, 1], 1))
        #expect(one.suffix(16) != two.suffix(16))
        #expect(zip(one.suffix(20), two.suffix(20)).prefix(4).map { $0 ^ $1 } != [0, 0, 0, 1])
    }
}
