/// A configured password. Descriptions and mirrors of it show a mask.
package struct Secret: Sendable, Equatable {
    /// The password itself. The caller must not log or print it.
    package let value: String

    /// Wraps a password.
    package init(_ value: String) {
        self.value = value
    }

    /// The text shown in place of a secret.
    package static let mask = "(secret)"
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    package var description: String { Self.mask }
    package var debugDescription: String { Self.mask }
    package var customMirror: Mirror { Mirror(self, children: [:]) }
}
