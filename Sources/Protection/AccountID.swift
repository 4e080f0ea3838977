// The identity of an account, as far as the backend vouches for it.
//
// The device, the latches and the requests of an account that is a connection are deleted when the connection ends.

import RequestQueue

/// The identity of an account on one network.
///
/// A services account is identified by its folded name, and outlives connections. A connection without one is its own
/// account: `~` and a random name, so that taking a nick gives no access to earlier data of that nick.
public struct AccountID: Hashable, Sendable, Comparable {
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

    /// The form stored in rows and table keys. Parsed by ``init(text:)``.
    ///
    /// It is the name. If the name of a services account begins with `~`, the form has one more `~`: the name of a
    /// connection never begins with two.
    public var text: String { stored.text }

    /// The name as the backend knows it, for people and for clients.
    public var name: String { kind == .services && text.utf8.first == Self.mark ? String(text.dropFirst()) : text }

    private static let mark = UInt8(ascii: "~")

    private init(_ kind: Kind, _ stored: String) { (self.kind, self.stored) = (kind, ExactText(stored)) }

    /// A services account, from its folded name.
    ///
    /// Spaces become `_`, whatever the backend sends: a space separates rooms, nicks and the own device from accounts.
    public static func services(_ foldedName: String) -> AccountID {
        let text = foldedName.utf8.first == mark ? "~" + foldedName : foldedName
        guard text.utf8.contains(0x20) else { return AccountID(.services, text) }
        return AccountID(.services, String(decoding: text.utf8.map { $0 == 0x20 ? 0x5F : $0 }, as: UTF8.self))
    }

    /// A connection without a login, from a number that is never used twice.
    ///
    /// - Parameter logouts: the number of earlier logouts of the connection.
    package static func connection(_ nonce: UInt64, logouts: Int = 0) -> AccountID {
        AccountID(.connection, "~" + String(nonce, radix: 16) + (logouts > 0 ? ".\(logouts)" : ""))
    }

    /// The hosted members of a room, or its members with a status: one recipient with one device.
    ///
    /// The space in its text distinguishes it from every services account.
    ///
    /// - Parameter status: the prefixes of a message for some members only, such as `@` in `@#room`; usually empty.
    package static func room(_ foldedName: String, status: String = "") -> AccountID {
        AccountID(.room, roomMark + foldedName + (status.isEmpty ? "" : " " + status))
    }

    private static let roomMark = "room "

    /// An account from the text that a row holds.
    public init(text: String) {
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

    /// Whether the backend vouches for it: false for a connection without a login.
    package var isVerified: Bool { kind != .connection }

    /// The folded name of a room; nil if this is not a room.
    package var roomName: String? {
        guard kind == .room else { return nil }
        return String(Substring(text.utf8.dropFirst(5).prefix { $0 != 0x20 }))
    }

    /// Whether it is the members of a room with a status only.
    package var isPartOfRoom: Bool { roomName.map { text.utf8.count > 5 + $0.utf8.count } ?? false }

    /// Orders accounts by their stored forms.
    public static func < (left: AccountID, right: AccountID) -> Bool { left.stored < right.stored }
}
