extension PawlConfiguration {
    /// What a person reads when a message is refused.
    package struct Refusal: Sendable, Equatable {
        /// The other person is not behind this gateway.
        package var outsider: Text
        /// The policy is `required` and one of the two cannot encrypt.
        package var required: Text
        /// Rooms are not protected under this policy.
        package var room: Text
    }
}

extension PawlConfiguration.Refusal {
    /// Whether nobody has configured ``required``: then it names a program that exists for IRC only.
    package var isRequiredStandard: Bool { ConfigurationKey.refusalRequired.standard == .one(required.template) }
    /// The same of ``room``.
    package var isRoomStandard: Bool { ConfigurationKey.refusalRoom.standard == .one(room.template) }

    /// A text of one line in which `{target}` stands for the nick or the room.
    package struct Text: Sendable, Hashable {
        /// The longest text, in UTF-8: with the server's prefix, the numeric and two names it still fits 512 bytes.
        package static let limit = 300

        /// The text with its placeholder.
        package let template: String

        /// The text for one target.
        package func filled(target: String) -> String {
            self.template.replacing("{target}", with: target)
        }

        /// Reads a text as an operator writes it.
        init(configuration text: String) throws(Mismatch) {
            guard text.contains(where: { !$0.isWhitespace }) else { throw Mismatch("which says nothing") }
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
