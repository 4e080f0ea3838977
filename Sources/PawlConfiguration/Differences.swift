extension PawlConfiguration {
    /// A key whose value has changed.
    package struct Difference: Sendable, Equatable {
        /// The name of the key.
        package let name: String
        /// Whether the new value takes effect only at the next start.
        package let needsRestart: Bool
        /// The old value as YAML; a secret is masked.
        package let before: String
        /// The new value as YAML; a secret is masked.
        package let after: String
    }

    /// Returns the keys whose values differ from those of an `older` configuration, in the order of the table.
    package func differences(from older: PawlConfiguration) -> [Difference] {
        ConfigurationKey.table.compactMap { key in
            guard let before = key.current(older), let after = key.current(self), before != after else { return nil }
            return Difference(
                name: key.name, needsRestart: key.effect == .restart, before: before.yaml, after: after.yaml)
        }
    }
}

extension PawlConfiguration.Difference: CustomStringConvertible {
    package var description: String {
        "\(self.name): \(self.before) → \(self.after) (\(self.needsRestart ? "at the next start" : "applied"))"
    }
}

extension PawlConfiguration: CustomStringConvertible, CustomDebugStringConvertible {
    /// One line per key, with secrets masked.
    package var description: String {
        ConfigurationKey.table.compactMap { key in
            key.current(self).map { "\(key.name): \($0.yaml)" }
        }.joined(separator: "\n")
    }

    package var debugDescription: String { self.description }
}
