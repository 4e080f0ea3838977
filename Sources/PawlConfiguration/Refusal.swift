extension PawlConfiguration {
    /// The notices to senders of refused messages.
    package struct Refusal: Sendable, Equatable {
        /// The recipient is not connected through this gateway.
        package var outsider: Text
        /// The policy is `required`, and sender or recipient cannot encrypt.
        package var required: Text
        /// The policy is `required`, and not all members of the room can encrypt.
        package var room: Text
    }
}

extension PawlConfiguration.Refusal {
    /// Whether ``required`` is the default, which mentions the sidecar and so fits IRC only.
    package var isRequiredStandard: Bool { ConfigurationKey.refusalRequired.standard == .one(required.template) }
    /// Whether ``room`` is the default, which mentions the sidecar and so fits IRC only.
    package var isRoomStandard: Bool { ConfigurationKey.refusalRoom.standard == .one(room.template) }

    /// One line of text in which `{target}` stands for the recipient or the room.
    package struct Text: Sendable, Hashable {
        /// The longest text, in bytes: with the server's prefix, the numeric and two names it still fits 512 bytes.
        package static let limit = 300

        /// The text with its placeholder.
        package let template: String

        /// The text for one target.
        package func filled(target: String) -> String {
            self.template.replacing("{target}", with: target)
        }

        /// Parses a text as an operator writes it.
        init(configuration text: String) throws(Mismatch) {
            guard text.contains(where: { !$0.isWhitespace }) else { throw Mismatch("which is blank") }
            guard text.utf8.allSatisfy({ $0 != 0 && $0 != 10 && $0 != 13 }) else {
                throw Mismatch("which is more than one line")
            }
            guard text.utf8.count <= Self.limit else {
                throw Mismatch("which is longer than \(Self.limit) bytes")
            }
            for match in text.matches(of: /\{([A-Za-z_]+)\}/) where match.1 != "target" {
                throw Mismatch("with the unknown placeholder `\(match.0)`")
            }
            self.template = text
        }
    }
}

extension PawlConfiguration.Refusal.Text: CustomStringConvertible {
    package var description: String { self.template }
}
