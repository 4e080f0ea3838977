// The calls that wait until entries come into the mailbox of a device.

import Envelope
import Protection

/// Waiting calls, by device. In memory only: a call also ends by itself, so none has to be found again.
struct MailWaiters {
    struct Waiter: Equatable {
        var connection: ConnectionID
        /// The number of the call on its connection.
        var call: UInt32
    }

    /// Ours: waiting calls of one device. A new call takes the place of the oldest one, whose client may have ended.
    static let deviceLimit = 4

    private var waiters: [DeviceID: [Waiter]] = [:]

    mutating func add(_ connection: ConnectionID, _ call: UInt32, for device: DeviceID) {
        let others = (waiters[device] ?? []).suffix(Self.deviceLimit - 1)
        waiters[device] = others + [Waiter(connection: connection, call: call)]
    }

    /// Whether calls wait for one of some devices.
    func holds(_ devices: [DeviceID]) -> Bool { devices.contains { waiters[$0] != nil } }

    /// Removes and returns the calls that wait for some devices.
    mutating func take(_ devices: [DeviceID]) -> [Waiter] {
        devices.flatMap { waiters.removeValue(forKey: $0) ?? [] }
    }
}
