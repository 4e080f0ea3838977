// What a contact card of this account contains.

import DeviceSessions
import Devices
package import DoubleRatchet

extension MessengerParticipants {
    /// The first key of the account's list, and the keys as they were last published; nil before this device is in the
    /// list.
    package var cardKeys: (root: IdentityKey, published: PublishedKeys?)? {
        guard isAdopted else { return nil }
        return (own.deviceList.root, memory.published)
    }
}
