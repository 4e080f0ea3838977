// The identity of this device for transports and direct connections.

import Devices
import DoubleRatchet
import Envelope
import PeerConnection

/// The device with its identity key. Neither changes, so threads may share it; hence `@unchecked Sendable`.
final class DeviceIdentity: @unchecked Sendable {
    private let device: HostedDevice

    init(_ device: HostedDevice) { self.device = device }

    var deviceId: DeviceId { DeviceId(device.id) }
    /// The public part of the identity key: 32 bytes.
    var publicKey: [UInt8] { device.identity.publicKey.bytes }

    var endpoint: PeerEndpoint {
        PeerEndpoint(device: device.id.value, identity: device.identity.publicKey)
    }

    func sign(_ message: [UInt8], _ context: String) -> [UInt8] {
        device.identity.sign(message.span, context: context)
    }
}
