// Who somebody is, as far as the backend vouches for it.

import RequestQueue

/// The identity of an account on one network.
///
/// A services account is its folded name, and outlives connections. Without one, the connection itself is the account:
/// a random name behind `~`, so that nobody inherits anything by taking a nick.
package struct AccountID: Hashable, Sendable, Comparable {
    /// What stands behind an account.
    private enum Kind: Hashable, Sendable {
        /// The backend vouches for the name.
        case services
        /// One connection without a login.
        case connection
        /// The hosted members of a room.
        case room
    }

    private let kind: Kind
    private let stored: ExactText

    /// The form that rows and keys of tables hold: the name, and for a services account whose name begins with `~`, one `~`
    /// more. No connection has two of them. Read back by ``init(text:)``.
    package var text: String { stored.text }

    /// The name as the backend knows it, for people and for clients.
    package var name: String { kind == .services && text.utf8.first == Self.mark ? String(text.dropFirst()) : text }

    private static let mark = UInt8(ascii: "~")

    private init(_ kind: Kind, _ stored: String) { (self.kind, self.stored) = (kind, ExactText(stored)) }

    /// A services account, from its folded name. The space that keeps rooms, nicks and the own device apart is no part of
    /// it, whatever a backend says.
    package static func services(_ foldedName: String) -> AccountID {
        let text = foldedName.utf8.first == mark ? "~" + foldedName : foldedName
        guard text.utf8.contains(0x20) else { return AccountID(.services, text) }
        return AccountID(.services, String(decoding: text.utf8.map { $0 == 0x20 ? 0x5F : $0 }, as: UTF8.self))
    }

    /// A connection without a login, from a number that is never used twice.
    ///
    /// - Parameter logouts: how often the connection has logged out before.
    package static func connection(_ nonce: UInt64, logouts: Int = 0) -> AccountID {
        AccountID(.connection, "~" + String(nonce, radix: 16) + (logouts > 0 ? ".\(logouts)" : ""))
    }

    /// The hosted members of a room, or those of them with a status: one recipient with one device. The space keeps it
    /// apart from every services account.
    ///
    /// - Parameter status: the prefixes of a message for some members only, as `@` in `@#room`; mostly none.
    package static func room(_ foldedName: String, status: String = "") -> AccountID {
        AccountID(.room, roomMark + foldedName + (status.isEmpty ? "" : " " + status))
    }

    private static let roomMark = "room "

    /// An account from the text that a row holds.
    package init(text: String) {
        let kind: Kind =
            if text.utf8.starts(with: Self.roomMark.utf8) {
                .room
            } else if text.utf8.first == Self.mark, text.utf8.dropFirst().first != Self.mark {
                .connection
            } else {
                .services
            }
        self.init(kind, text)
    }

    /// Whether the backend's services vouch for it.
    package var isVerified: Bool { kind != .connection }

    /// The folded name of a room; nothing where this is a person.
    package var roomName: String? {
        guard kind == .room else { return nil }
        return String(Substring(text.utf8.dropFirst(5).prefix { $0 != 0x20 }))
    }

    /// Whether it stands for members with a status only.
    package var isPartOfRoom: Bool { roomName.map { text.utf8.count > 5 + $0.utf8.count } ?? false }

    package static func < (left: AccountID, right: AccountID) -> Bool { left.stored < right.stored }
}
