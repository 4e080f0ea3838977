// The categories of counted messages, for the report of what a stricter policy would refuse.

import Envelope

/// The recipient of a counted message, or the kind of a request that no policy could protect, for ``ObservationRow``.
package enum ObservedRecipient: String, Sendable, CaseIterable {
    case legacy, outsider, exempt, room
    /// A file that cannot be sealed. The target is the route.
    case media
    /// A file that is sealed end-to-gateway. The target is the route.
    case file
    /// A command or request whose text has no known position. The target is the route or the verb.
    case verb
    /// Search terms. The target is the route.
    case search
    /// A request for a direct connection.
    case directConnection = "direct_connection"
    /// A room that the sender is not in.
    case notInRoom = "not_in_room"
    /// A name that is not UTF-8.
    case name
    /// A keyword of which the backend should notify the sender. The target is the route.
    case keywords
    /// A text of a command that is no message. The target is the verb.
    case commandText = "command_text"

    package init(_ refusal: UnprotectableRequest) {
        self =
            switch refusal {
            case .media: .media
            case .verb: .verb
            case .search: .search
            }
    }

    /// Whether the target is a route or a command, not a name.
    package var isRoute: Bool {
        switch self {
        case .media, .file, .verb, .search, .keywords, .commandText: true
        case .legacy, .outsider, .exempt, .room, .directConnection, .notInRoom, .name: false
        }
    }

    /// Its name in the list of what `hosted` would refuse or stop; nil if it would not.
    ///
    /// - Parameter texts: the operator's choices for texts of commands.
    package func blocker(_ target: String, _ texts: CommandTexts) -> String? {
        switch self {
        case .commandText:
            treatment(of: target, under: .hosted, texts) == .refuse ? "request" : nil
        case .legacy, .exempt, .room, .file: nil
        case .outsider: "outsider"
        case .media: "file"
        case .verb: "request"
        case .search: "search"
        case .directConnection: "direct connection"
        case .notInRoom: "room, from outside"
        case .name: "name that is not UTF-8"
        case .keywords: "keywords that are not found in sealed texts"
        }
    }

    /// What a policy for everyone does with the text of a command; nil if this is none.
    package func treatment(
        of target: String, under policy: Policy, _ texts: CommandTexts
    ) -> CommandTextTreatment? {
        guard self == .commandText else { return nil }
        // Of the other commands the text is always removed.
        guard let text = CommandText(verb: target) else { return policy.demandsProtection ? .strip : .pass }
        return texts[text, under: policy]
    }

    /// The refusal under a policy for everyone; nil if the message would be sent.
    ///
    /// - Parameter texts: the operator's choices for texts of commands.
    package func refusal(
        under policy: Policy, target: String, _ texts: CommandTexts = CommandTexts()
    ) -> Refusal? {
        let refusal: Refusal
        switch self {
        case .legacy: return policy.refusal(of: .legacy(AccountID(text: target)))
        case .exempt: return policy.refusal(of: .exempt)
        case .room: return policy.refusal(of: .room(.room(target)))
        case .keywords: return nil
        case .commandText: return treatment(of: target, under: policy, texts) == .refuse ? .verb : nil
        case .outsider: return policy.refusal(of: .outsider)
        case .file: return policy.demandsDevices ? .media : nil
        case .media: refusal = .media
        case .verb: refusal = .verb
        case .search: refusal = .search
        case .directConnection: refusal = .directConnection
        case .notInRoom: refusal = .notInRoom
        case .name: refusal = .name
        }
        return policy.demandsProtection ? refusal : nil
    }
}

/// A request that cannot be sealed: refused under `hosted` and above.
package enum UnprotectableRequest: Sendable {
    case media, verb, search

    package init(isFile: Bool) { self = isFile ? .media : .verb }

    package var refusal: Refusal {
        switch self {
        case .media: .media
        case .verb: .verb
        case .search: .search
        }
    }
}

extension Policy {
    /// Why a message in a conversation without a latch is not sent; nil if it is sent.
    fileprivate func refusal(of recipient: Recipient) -> Refusal? {
        guard case .refuse(let refusal) = outbound(to: recipient, latch: .plaintext) else { return nil }
        return refusal
    }
}
