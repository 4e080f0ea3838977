import Devices
import DoubleRatchet
import Envelope
import Testing

/// Lists of devices that somebody forges on purpose.
@Suite struct DeviceChainTests {
    private func listed(_ number: UInt64, _ identity: borrowing IdentityKeyPair) -> ListedDevice {
        ListedDevice(id: DeviceID(number), identity: identity.publicKey)
    }

    /// What a device has said by its number it has said with its key: after its removal the number has no other owner.
    @Test func aRemovedNumberComesBackWithItsOwnKeyOnly() throws {
        var random = SeededSource(seed: 1)
        let desk = IdentityKeyPair(random: &random)
        let phone = IdentityKeyPair(random: &random)
        let other = IdentityKeyPair(random: &random)
        let one = DeviceChain(of: listed(2, desk), identity: desk)
        let removed = one.adding(listed(4, phone), by: DeviceID(2), desk)?
            .removing(DeviceID(4), by: DeviceID(2), desk)
        let same = removed?.adding(listed(4, phone), by: DeviceID(2), desk)
        for chain in [removed, same] {
            let chain = try #require(chain)
            #expect(try DeviceChain(chain.bytes) == chain)
        }
        let otherKey = removed?.adding(listed(4, other), by: DeviceID(2), desk)
        let forged = try #require(otherKey).bytes
        #expect(throws: EnvelopeError.malformed) { try DeviceChain(forged) }
    }

    @Test func everyVersionIsSignedByADeviceOfTheOneBefore() throws {
        var random = SeededSource(seed: 2)
        let desk = IdentityKeyPair(random: &random)
        let stranger = IdentityKeyPair(random: &random)
        let chain = DeviceChain(of: listed(2, desk), identity: desk)
        #expect(try DeviceChain(chain.bytes) == chain)
        // The first version names the desk's key, and somebody else has signed it.
        let first = DeviceChain(of: listed(2, desk), identity: stranger)
        #expect(throws: EnvelopeError.malformed) { try DeviceChain(first.bytes) }
        // A second version that adds a stranger's device, signed by that device under its own number or under the desk's.
        let added = [listed(2, desk), listed(4, stranger)]
        for signer in [2, 4] as [UInt64] {
            var signed: [UInt8] = [0, 0, 0, 2] + chain.lists[0].signature
            signed.append(bigEndian: signer)
            var list: [UInt8] = [2]
            for device in added {
                list.append(bigEndian: device.id.value)
                list += device.identity.bytes
            }
            signed += list
            var bytes = chain.bytes
            bytes[1] = 2
            bytes += list
            bytes.append(bigEndian: signer)
            // With the desk's own signature these bytes are a list.
            if signer == 2 {
                let good = bytes + desk.sign(signed.span, context: "pawl device list")
                #expect(try DeviceChain(good).current == added)
            }
            let forged = bytes + stranger.sign(signed.span, context: "pawl device list")
            #expect(throws: EnvelopeError.malformed) { try DeviceChain(forged) }
        }
        // And no byte of a signature may change.
        let bytes = chain.bytes
        for place in (bytes.count - 64)..<bytes.count {
            var altered = bytes
            altered[place] ^= 0x10
            #expect(throws: EnvelopeError.malformed) { try DeviceChain(altered) }
        }
    }
}
