import Devices
import DoubleRatchet
import Envelope
import TestKit
import Testing

/// Lists of devices that somebody forges on purpose.
@Suite struct DeviceListTests {
    private func listed(_ number: UInt64, _ identity: borrowing IdentityKeyPair) -> ListedDevice {
        ListedDevice(id: DeviceID(number), identity: identity.publicKey)
    }

    /// What a device has said by its number it has said with its key: after its removal the number has no other owner.
    @Test func aRemovedNumberComesBackWithItsOwnKeyOnly() throws {
        var random = SeededGenerator(seed: 1)
        let desk = IdentityKeyPair(random: &random)
        let phone = IdentityKeyPair(random: &random)
        let other = IdentityKeyPair(random: &random)
        let one = DeviceList(of: listed(2, desk), identity: desk)
        let removed = one.adding(listed(4, phone), by: DeviceID(2), desk)?
            .removing(DeviceID(4), by: DeviceID(2), desk)
        let same = removed?.adding(listed(4, phone), by: DeviceID(2), desk)
        for deviceList in [removed, same] {
            let deviceList = try #require(deviceList)
            #expect(try DeviceList(deviceList.bytes) == deviceList)
        }
        let otherKey = removed?.adding(listed(4, other), by: DeviceID(2), desk)
        let forged = try #require(otherKey).bytes
        #expect(throws: EnvelopeError.malformed) { try DeviceList(forged) }
    }

    @Test func everyVersionIsSignedByADeviceOfTheOneBefore() throws {
        var random = SeededGenerator(seed: 2)
        let desk = IdentityKeyPair(random: &random)
        let stranger = IdentityKeyPair(random: &random)
        let deviceList = DeviceList(of: listed(2, desk), identity: desk)
        #expect(try DeviceList(deviceList.bytes) == deviceList)
        // The first version names the desk's key, and somebody else has signed it.
        let first = DeviceList(of: listed(2, desk), identity: stranger)
        #expect(throws: EnvelopeError.malformed) { try DeviceList(first.bytes) }
        // A second version that adds a stranger's device, signed by that device under its own number or under the desk's.
        let added = [listed(2, desk), listed(4, stranger)]
        for signer in [2, 4] as [UInt64] {
            var signed: [UInt8] = [0, 0, 0, 2] + deviceList.versions[0].signature
            signed.append(bigEndian: signer)
            var list: [UInt8] = [2]
            for device in added {
                list.append(bigEndian: device.id.value)
                list += device.identity.bytes
            }
            signed += list
            var bytes = deviceList.bytes
            bytes[1] = 2
            bytes += list
            bytes.append(bigEndian: signer)
            // With the desk's own signature these bytes are a list.
            if signer == 2 {
                let good = bytes + desk.sign(signed.span, context: "pawl device list")
                #expect(try DeviceList(good).current == added)
            }
            let forged = bytes + stranger.sign(signed.span, context: "pawl device list")
            #expect(throws: EnvelopeError.malformed) { try DeviceList(forged) }
        }
        // And no byte of a signature may change.
        let bytes = deviceList.bytes
        for place in (bytes.count - 64)..<bytes.count {
            var altered = bytes
            altered[place] ^= 0x10
            #expect(throws: EnvelopeError.malformed) { try DeviceList(altered) }
        }
    }
}
