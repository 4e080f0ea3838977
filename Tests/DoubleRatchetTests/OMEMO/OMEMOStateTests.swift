import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

@Suite("The state of an OMEMO session at rest")
struct OMEMOStateTests {
    private func golden(
        _ profile: OMEMOProfile
    ) throws -> (alice: [UInt8], bob: [UInt8], messages: [OMEMOPeer.Message]) {
        var random = SeededGenerator(seed: 440)
        let aliceIdentity = IdentityKeyPair(random: &random)
        let device = try OMEMODevice(profile, &random)
        var alice = try OMEMOSession.initiate(
            identity: aliceIdentity, with: device.bundle, expecting: nil, random: &random)
        let first = try alice.seal([1], random: &random)
        let lost = try alice.seal([2], random: &random)
        let third = try alice.seal([3], random: &random)
        var plaintext: [UInt8] = []
        var bob = try device.respond(to: third.bytes, into: &plaintext)
        let reply = try bob.seal([4], random: &random)
        return (alice.state, bob.state, [first, lost, third, reply])
    }

    /// A session after some turns, with all parts of the state in use.
    private func full(_ profile: OMEMOProfile) throws -> [UInt8] {
        var pair = try OMEMOPair(profile, seed: 441)
        for _ in 0..<8 {
            _ = try pair.alice.seal([], random: &pair.random)
            _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
            _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        }
        return pair.bob.state
    }

    @Test("version 1, byte for byte", arguments: OMEMOProfile.allCases) func goldenBytes(_ profile: OMEMOProfile) throws
    {
        let (alice, bob, messages) = try golden(profile)
        let expected: [OMEMOProfile: [String]] = [
            .axolotl: [
                "5384a21daff0ed048df15102d135d7612a073a5e1c5e8495a535c0bf734ff1a8",
                "84dddd213c5df84663162623b8232d03e3eb16468eb11e42e1cbc79ee08f2337",
                "05e3d0e1fd36bb08e0821eef7cc100df9d81e479a1968210833cd9ab1035392f",
            ],
            .omemo2: [
                "6d97b8595623bde0cd32ea70c3c240366f5993f01d2816b73aa2c2212498d03d",
                "abbf86df27d1d23ec54c5e10020a70c8f7c573010ef81926b44095b34a7f27f1",
                "921ab9024d7477ed9ca2d2cbe69f3daee3e7f5526c830d972255badfb4a7be3d",
            ],
        ]
        #expect([sha256(alice), sha256(bob), sha256(messages.flatMap(\.bytes))] == expected[profile])
        #expect((alice.count, bob.count) == (280, 452))
    }

    @Test("a state of the golden conversation goes on", arguments: OMEMOProfile.allCases)
    func goldenContinues(_ profile: OMEMOProfile) throws {
        let (aliceState, bobState, messages) = try golden(profile)
        var alice = try restoredOMEMO(aliceState)
        var bob = try restoredOMEMO(bobState)
        #expect(try alice.open(messages[3]) == [4])
        #expect(alice.isEstablished == true)
        #expect(try bob.open(messages[1]) == [2])
        #expect(try bob.open(messages[0]) == [1])
        #expect(bob.refusal(of: messages[2]) == .duplicate)
    }

    @Test("there and back is the same bytes; cut off or longer it is nothing", arguments: OMEMOProfile.allCases)
    func roundTrip(_ profile: OMEMOProfile) throws {
        let (alice, bob, _) = try golden(profile)
        for state in [alice, bob, try full(profile)] {
            #expect(try restoredOMEMO(state).state == state)
            for length in state.indices {
                #expect(throws: RatchetError.malformed) { _ = try restoredOMEMO(Array(state[..<length])) }
            }
            #expect(throws: RatchetError.malformed) { _ = try restoredOMEMO(state + [0]) }
        }
    }

    @Test("other types, versions, profiles, flags and counts are refused", arguments: OMEMOProfile.allCases)
    func refused(_ profile: OMEMOProfile) throws {
        let (alice, bob, _) = try golden(profile)
        for value in UInt8.min...UInt8.max {
            func with(_ index: Int, _ state: [UInt8]) -> [UInt8] {
                var changed = state
                changed[index] = value
                return changed
            }
            if value != 0x4F { #expect(throws: RatchetError.malformed) { _ = try restoredOMEMO(with(0, bob)) } }
            if value != 1 { #expect(throws: RatchetError.unsupportedVersion) { _ = try restoredOMEMO(with(1, bob)) } }
            if OMEMOProfile(rawValue: value) == nil {
                #expect(throws: RatchetError.malformed) { _ = try restoredOMEMO(with(2, bob)) }
            }
            // The other role with the same chains has the same form: that, only authentication can tell.
            for state in [alice, bob] where value != state[3] && value != (state == bob ? state[3] ^ 1 : state[3]) {
                #expect(throws: RatchetError.malformed) { _ = try restoredOMEMO(with(3, state)) }
            }
        }
        // Neither session's state is the other kind's.
        let native = try Pair(seed: 1).alice.state
        #expect(throws: RatchetError.malformed) { _ = try restoredOMEMO(native) }
        #expect(throws: RatchetError.unsupportedVersion) { _ = try restored(bob) }
        // One skipped key, past chain or past key more than are allowed, with all the bytes for it.
        let start = Array(bob.dropLast(4 + 2 * SkippedKeys.recordSize))
        let chains = OMEMOLimits.maximumPastChains
        let keys = OMEMOLimits.maximumRememberedChains
        let records = OMEMOLimits.maximumSkippedKeys
        func state(chains: Int, keys: Int, records: Int) -> [UInt8] {
            var state = start + [UInt8(chains)] + [UInt8](repeating: 0, count: 68 * chains)
            state += [UInt8(keys)] + [UInt8](repeating: 0, count: 8 * keys)
            state.append(networkOrder: UInt16(records))
            return state + [UInt8](repeating: 0, count: records * SkippedKeys.recordSize)
        }
        _ = try restoredOMEMO(state(chains: chains, keys: keys, records: records))
        for state in [
            state(chains: chains + 1, keys: keys, records: records),
            state(chains: chains, keys: keys + 1, records: records),
            state(chains: chains, keys: keys, records: records + 1),
        ] {
            #expect(throws: RatchetError.malformed) { _ = try restoredOMEMO(state) }
        }
    }

    @Test("a signed prekey at rest", arguments: OMEMOProfile.allCases) func signedPreKey(_ profile: OMEMOProfile) throws
    {
        var random = SeededGenerator(seed: 442)
        let identity = IdentityKeyPair(random: &random)
        let key = OMEMOSignedPreKey(id: 3, identity: identity, profile: profile, random: &random)
        var bytes: [UInt8] = []
        key.serialize(into: &bytes)
        #expect(bytes.count == 134)
        let back = try OMEMOSignedPreKey(serialized: bytes.span)
        #expect(back.publicKey == key.publicKey && back.publicKey.keyBytes == key.publicKey.keyBytes)
        try OMEMOBundle(identity: identity.omemoKey(in: profile), signedPreKey: back.publicKey, preKeys: []).verify()
        for length in bytes.indices {
            let cut = Array(bytes[..<length])
            #expect(throws: RatchetError.malformed) { _ = try OMEMOSignedPreKey(serialized: cut.span) }
        }
        let other = [2] + bytes.dropFirst()
        #expect(throws: RatchetError.unsupportedVersion) { _ = try OMEMOSignedPreKey(serialized: other.span) }
        let profileless = [1, 9] + bytes.dropFirst(2)
        #expect(throws: RatchetError.malformed) { _ = try OMEMOSignedPreKey(serialized: profileless.span) }
    }
}
