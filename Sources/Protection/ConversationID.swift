// The key of a latch.

/// The identity of a conversation: two accounts, in a fixed order.
package struct ConversationID: Hashable, Sendable {
    package let first: AccountID
    package let second: AccountID

    package init(_ one: AccountID, _ other: AccountID) {
        (first, second) = one.text <= other.text ? (one, other) : (other, one)
    }

    /// A conversation that is not between two accounts, from the backend's name for it.
    package static func ofRoom(_ name: String) -> Self {
        let room = AccountID.room(name)
        return Self(room, room)
    }

    /// A room, or its members with a status.
    package init(room: AccountID) { (first, second) = (room, room) }
}
