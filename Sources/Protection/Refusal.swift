/// Why a message is not sent. The texts are in ``Notices``.
package enum Refusal: UInt8, Equatable, Sendable, CaseIterable {
    /// The recipient is not behind this gateway.
    case outsider
    /// The policy demands people's own devices, and one end has none.
    case required
    /// The policy demands people's own devices, and rooms have none.
    case room
    /// The sender is not in the room, so the gateway does not know its readers.
    case notInRoom
    /// A direct connection would bypass the gateway.
    case directConnection
    /// The route table does not know the verb, or forbids it.
    case verb
    /// The conversation was protected before, and this message cannot be.
    case latched
    /// Both clients can encrypt by themselves, and the sender's client has not.
    case unsealed
    /// The recipient presents other keys than the pinned ones.
    case changedKeys
    /// A file would reach the backend unencrypted.
    case media
    /// The recipient's name is not UTF-8.
    case name
    /// Search terms would reach the backend unencrypted.
    case search
    /// The backend has not listed the members of the conversation, so the gateway cannot tell which policy applies.
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
