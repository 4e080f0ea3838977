// How the rooms of a sidecar's client are protected, for the person who asks.

import Protection

/// One room that a connection is in.
package struct RoomReport: Sendable, Equatable, Codable {
    /// The folded name.
    package var name: String
    /// What the next message to it gets: `end-to-end`, `plaintext`, or `gateway in front` where that one decides.
    package var protection: String
    /// Whether the person protects it: nothing goes there in plain text, whoever comes.
    package var isProtected: Bool
    /// Others who are in it.
    package var others: Int
    /// Those of them who can be given the room's key.
    package var readers: Int
    /// Those who cannot, sorted; at most 20 of them.
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
