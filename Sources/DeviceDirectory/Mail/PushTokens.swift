// The push tokens of devices: opaque texts of their apps, for the operator's push hook.
//
//     pushToken         DEVICE            -> the token

package import Envelope
import StorePort

/// The push tokens of devices, by device.
package struct PushTokens {
    /// Ours: bytes of a token. Those of push services have some hundreds at most.
    package static let sizeLimit = 1024

    package private(set) var all: [DeviceID: String] = [:]

    init(store: any Store) throws(StoreError) {
        for row in try store.records(.pushToken) {
            guard let device = Mailboxes.device(row.name) else {
                throw .corrupt("A push token in the store is damaged. Bring back a backup: pawl restore FILE.")
            }
            all[device] = String(decoding: row.value, as: UTF8.self)
        }
    }

    /// Sets or removes the token of a device.
    mutating func set(_ token: String?, of device: DeviceID, _ changes: inout [StoreChange]) {
        guard all[device] != token else { return }
        all[device] = token
        if let token {
            changes.append(
                .putRecord(RecordRow(kind: .pushToken, name: device.name, value: Array(token.utf8))))
        } else {
            changes.append(.removeRecord(.pushToken, name: device.name))
        }
    }

    /// Reloads the token of a device after a change of it was not committed.
    ///
    /// - Parameter value: the row's value; nil if the store has no such row.
    mutating func restore(_ name: String, _ value: [UInt8]?) {
        guard let device = Mailboxes.device(name) else { return }
        all[device] = value.map { String(decoding: $0, as: UTF8.self) }
    }

    /// Removes the tokens of devices that no longer exist.
    mutating func prune(_ changes: inout [StoreChange], isThere: (DeviceID) -> Bool) {
        for device in all.keys where !isThere(device) { set(nil, of: device, &changes) }
    }
}
