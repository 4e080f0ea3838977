// Who somebody is, as far as the backend vouches for it.

import RequestQueue

/// The identity of an account on one network.
///
/// A services account is its folded name, and outlives connections. Without one, the connection itself is the account:
/// a random name behind `~`, so that nobody inherits anything by taking a nick.
package struct AccountID: Hashable, Sendable, Comparable {
    private let name: ExactText

    package var text: String { name.text }

    /// A services account, from its folded name. The space that keeps rooms, nicks and the own device apart is no part of
    /// it, whatever a backend says.
    package static func services(_ foldedName: String) -> AccountID {
        guard foldedName.utf8.contains(0x20) else { return AccountID(text: foldedName) }
        return AccountID(text: String(decoding: foldedName.utf8.map { $0 == 0x20 ? 0x5F : $0 }, as: UTF8.self))
    }

    /// A connection without a login, from a number that is never used twice.
    package static func connection(_ nonce: UInt64) -> AccountID { AccountID(text: "~" + String(nonce, radix: 16)) }

    /// The hosted members of a room, or those of them with a status: one recipient with one device. The space keeps it
    /// apart from every services account.
    ///
    /// - Parameter status: the prefixes of a message for some members only, as `@` in `@#room`; mostly none.
    package static func room(_ foldedName: String, status: String = "") -> AccountID {
        AccountID(text: "room " + foldedName + (status.isEmpty ? "" : " " + status))
    }

    /// An account from the text that a row holds.
    package init(text: String) { name = ExactText(text) }

    /// Whether the backend's services vouch for it.
    package var isVerified: Bool { text.utf8.first != UInt8(ascii: "~") }

    /// The folded name of a room; nothing where this is a person.
    package var roomName: String? {
        guard text.utf8.starts(with: "room ".utf8) else { return nil }
        return String(Substring(text.utf8.dropFirst(5).prefix { $0 != 0x20 }))
    }

    /// Whether it stands for members with a status only.
    package var isPartOfRoom: Bool { roomName.map { text.utf8.count > 5 + $0.utf8.count } ?? false }

    package static func < (left: AccountID, right: AccountID) -> Bool { left.name < right.name }
}
