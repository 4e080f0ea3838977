/// A password that was configured: readable only by asking for it, and masked wherever a value is shown.
package struct Secret: Sendable, Equatable {
    /// The password itself. Whoever takes it out answers for where it goes.
    package let value: String

    /// Wraps a password.
    package init(_ value: String) {
        self.value = value
    }

    /// What stands in the place of every secret.
    package static let mask = "(secret)"
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    package var description: String { Self.mask }
    package var debugDescription: String { Self.mask }
    package var customMirror: Mirror { Mirror(self, children: [:]) }
}
