// What a backend reads beside messages, and what an operator lets it read once messages are protected.

/// A kind of content beside the text of messages. A mapping says which requests carry it.
package enum ContentKind: String, Sendable, CaseIterable {
    case reactions
    /// Topics and descriptions of conversations.
    case topics
    /// Names of conversations.
    case names
    /// Polls, votes and their ends.
    case polls
    /// What an app has invented, and no mapping can know.
    case custom
    /// Words of which the backend is to notify a person.
    case keywords
}

/// What happens to content of a kind where protection is demanded.
package enum KindTreatment: String, Sendable, CaseIterable {
    /// Sealed like a text; only where the mapping names the content.
    case seal
    /// Sent as it is: the backend reads it.
    case pass
    case refuse
}

/// The treatment of each kind.
package struct KindTreatments: Sendable, Equatable {
    private var treatments: [ContentKind: KindTreatment] = [:]

    /// The defaults: what backends have to read in order to work passes, and what may hold texts of people does not.
    package static let standard = KindTreatments()

    package init() {}

    package subscript(_ kind: ContentKind) -> KindTreatment {
        get { treatments[kind] ?? kind.standard }
        set { treatments[kind] = newValue == kind.standard ? nil : newValue }
    }
}

extension ContentKind {
    /// The default treatment.
    package var standard: KindTreatment {
        switch self {
        case .reactions, .topics, .names, .keywords: .pass
        case .polls, .custom: .refuse
        }
    }

    /// The kind in a sentence: "polls are refused here".
    package var words: String {
        switch self {
        case .reactions: "reactions"
        case .topics: "topics"
        case .names: "names of rooms"
        case .polls: "polls"
        case .custom: "messages of this kind"
        case .keywords: "keywords to be notified of"
        }
    }
}
