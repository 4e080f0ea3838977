// The key of a latch.

/// The identity of a conversation: two accounts, in a fixed order.
///
/// They are ordered by the bytes of their names, as accounts are told apart: names that Unicode calls equal are two
/// accounts, and either order of them is one conversation. Earlier versions ordered by Unicode comparison, under which
/// such a pair had two ids. The ids of all other pairs are the same, unless a name is not in normalization form C.
package struct ConversationID: Hashable, Sendable {
    package let first: AccountID
    package let second: AccountID

    package init(_ one: AccountID, _ other: AccountID) {
        (first, second) = other < one ? (other, one) : (one, other)
    }

    /// A conversation that is not between two accounts, from the backend's name for it.
    package static func ofRoom(_ name: String) -> Self {
        let room = AccountID.room(name)
        return Self(room, room)
    }

    /// A room, or its members with a status.
    package init(room: AccountID) { (first, second) = (room, room) }
}
