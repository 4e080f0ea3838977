// How the rooms of a sidecar's client are protected, for `pawl sidecar status`.

import Protection

/// The protection of one room that a connection is in.
package struct RoomReport: Sendable, Equatable, Codable {
    /// The folded name.
    package var name: String
    /// The protection of the next message: `end-to-end`, `plaintext`, or `gateway in front` if that gateway decides.
    package var protection: String
    /// Whether the person protects it: no plaintext is sent there, also after other people join.
    package var isProtected: Bool
    /// The number of other members.
    package var others: Int
    /// The number of other members that can receive the room's key.
    package var readers: Int
    /// The other members that cannot, sorted; at most 20.
    package var outsiders: [String]

    package init(name: String, protection: String, isProtected: Bool, others: Int, readers: Int, outsiders: [String]) {
        self.name = name
        self.protection = protection
        self.isProtected = isProtected
        self.others = others
        self.readers = readers
        self.outsiders = outsiders
    }
}
