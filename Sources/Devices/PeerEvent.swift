// What changes about the devices of a peer, and what a person decides about them.

package import DoubleRatchet
package import Protection

/// A change in what is known about the devices of a peer.
package enum PeerEvent: Sendable, Equatable {
    /// Keys were exchanged with a peer for the first time.
    case keysExchanged(AccountID)
    /// Keys were exchanged again, or for one more device.
    case renewed(AccountID)
    /// A later list of a peer lacks devices that it had.
    case removedDevices(AccountID)
    /// A device shows other keys than those pinned for this name.
    case changed(AccountID)
    /// A device shows a fork of the list that is pinned for this name; the person's own list under ``AccountID/own``.
    /// `isNew` is false if the person was notified before, and has not decided yet.
    case forked(AccountID, isNew: Bool)
    /// A member writes end to end in the room of this folded name, so the person's messages are sealed there too.
    case roomProtected(String)
    /// The person's device list includes this device from now on.
    case adopted(AccountID)
    /// Another of the person's own devices has removed this one.
    case revoked
    /// A known peer writes under a new name.
    case otherName(AccountID)
    /// A member of a room asks the others to protect it, or to stop.
    case asked(RoomRequest)
    /// Both ends have begun a session, and ours is kept: the other end is to be notified. `isText` is true if the
    /// message was a text, which is not shown.
    case crossed(isText: Bool)
}

extension PeerEvent {
    /// Whether nothing is sent to the peer until the person has decided about the keys that it shows.
    package var awaitsDecision: Bool {
        switch self {
        case .changed, .forked: true
        case .keysExchanged, .renewed, .removedDevices, .roomProtected, .adopted, .revoked, .otherName, .asked,
            .crossed:
            false
        }
    }
}

/// A person's decision about the devices of a peer.
package enum PeerDecision: Sendable, Equatable {
    /// Trusts the offered keys.
    case accept
    /// Keeps the pinned list, and drops the one that is offered.
    case keep
    /// Marks the safety number as compared.
    case verify
    /// Marks the safety number as compared, if the pinned list has this root and no other keys are offered.
    case confirm(IdentityKey)
    /// Removes what is known; keys are exchanged again.
    case forget
    /// The devices are the person's own: this device adds theirs to its list.
    case adopt
    /// The devices are the person's own: this device asks to be added to their list.
    case join
}

/// The names under which a message came. The backend chose them, so they are claims.
package struct MessageSource: Sendable, Equatable {
    /// The folded name in the message's source; empty if there is none besides the accounts.
    package var name: String
    /// The accounts that the source may belong to, the most likely first.
    package var accounts: [AccountID]

    package init(name: String = "", accounts: [AccountID]) { (self.name, self.accounts) = (name, accounts) }
}
