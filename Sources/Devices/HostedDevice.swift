// A device whose private key this program holds.

package import DoubleRatchet
package import Envelope
package import Protection

/// A hosted device with its private key.
package final class HostedDevice {
    package let id: DeviceID
    package let account: AccountID
    package let identity: IdentityKeyPair

    package init(id: DeviceID, account: AccountID, identity: consuming IdentityKeyPair) {
        self.id = id
        self.account = account
        self.identity = identity
    }
}
