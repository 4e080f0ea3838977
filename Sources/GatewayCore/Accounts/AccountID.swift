// Who somebody is, as far as the backend vouches for it.

/// The identity of an account on one network.
///
/// A services account is its folded name, and outlives connections. Without one, the connection itself is the account:
/// a random name behind `~`, so that nobody inherits anything by taking a nick.
package struct AccountID: Hashable, Sendable, Comparable {
    package let text: String

    /// A services account, from its folded name.
    package static func services(_ foldedName: String) -> AccountID { AccountID(text: foldedName) }

    /// A connection without a login, from a number that is never used twice.
    package static func connection(_ nonce: UInt64) -> AccountID { AccountID(text: "~" + String(nonce, radix: 16)) }

    /// An account from the text that a row holds.
    package init(text: String) { self.text = text }

    /// Whether the backend's services vouch for it.
    package var isVerified: Bool { text.utf8.first != UInt8(ascii: "~") }

    package static func < (left: AccountID, right: AccountID) -> Bool { left.text < right.text }
}
