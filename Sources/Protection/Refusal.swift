// Why a message is not sent.

/// Why a message is not sent. The words for it are in ``Remarks``.
package enum Refusal: UInt8, Equatable, Sendable, CaseIterable {
    /// The recipient is not behind this gateway.
    case outsider
    /// The policy demands people's own devices, and one end has none.
    case required
    /// The policy demands people's own devices, and rooms have none.
    case room
    /// The sender is not in the room, so that nobody could tell who reads there.
    case notInRoom
    /// A direct connection would bypass the gateway.
    case directConnection
    /// The route table does not know the verb, or forbids it.
    case verb
    /// The conversation has been protected before and cannot be now.
    case latched
    /// Both clients can encrypt by themselves, and the sender's has not.
    case unsealed
    /// The recipient shows keys that are not the ones that were pinned.
    case changedKeys
    /// A file would reach the backend as it is.
    case media
    /// The recipient's name is not UTF-8.
    case name
    /// Words that somebody looks for would reach the backend as they are.
    case search
    /// The backend has not said who is in the conversation, so that nobody can tell whose policy counts.
    case members

    /// A stable word for counters and scripts.
    package var name: String {
        switch self {
        case .outsider: "outsider"
        case .required: "required"
        case .room: "room"
        case .notInRoom: "not_in_room"
        case .directConnection: "direct_connection"
        case .verb: "verb"
        case .latched: "latched"
        case .unsealed: "unsealed"
        case .changedKeys: "changed_keys"
        case .media: "media"
        case .name: "name"
        case .search: "search"
        case .members: "members"
        }
    }
}
