// The properties of a chat protocol that sealing and opening depend on.

/// How one chat protocol carries envelopes.
package struct Carrier: Equatable, Sendable {
    /// Bound to every envelope, so that an envelope cannot be moved to another protocol; see ``AssociatedData``.
    package let protocolName: String
    /// The longest envelope, in bytes.
    package let maximumLength: Int

    package init(protocolName: String, maximumLength: Int) {
        (self.protocolName, self.maximumLength) = (protocolName, maximumLength)
    }

    /// Ours: sixteen lines of 512 bytes; see ``Armour/maximumFragments``.
    package static let irc = Carrier(protocolName: "irc", maximumLength: 8192)
    /// Ours: a text of ``Content/maximumLength`` bytes, and its key for about 30 devices that have not answered yet.
    package static let json = Carrier(protocolName: "json", maximumLength: 128 * 1024)
}
