// The texts for people in IRC commands that are no messages, and what an operator lets a backend read of them.

/// A text that a command beside messages carries for other people.
package enum CommandText: String, Sendable, CaseIterable {
    case topic
    /// Reasons of KICK.
    case kick
    /// Reasons of PART.
    case part
    /// Reasons of QUIT.
    case quit
    case away
    /// Texts for the IRC operators, or for all users.
    case wallops

    /// The commands that carry it.
    package var verbs: [String] {
        switch self {
        case .topic: ["TOPIC", "SATOPIC"]
        case .kick: ["KICK", "REMOVE", "SAKICK", "SAPART"]
        case .part: ["PART", "CYCLE"]
        case .quit: ["QUIT", "SAQUIT"]
        case .away: ["AWAY"]
        case .wallops: ["WALLOPS", "GLOBOPS"]
        }
    }

    /// Returns the text that a command carries; nil if it carries none of these.
    package init?(verb: String) {
        guard let text = Self.byVerb[verb] else { return nil }
        self = text
    }

    private static let byVerb = Dictionary(
        uniqueKeysWithValues: allCases.flatMap { text in text.verbs.map { ($0, text) } })
}

/// What happens to such a text where protection is demanded.
package enum CommandTextTreatment: String, Sendable, CaseIterable {
    /// The command is not sent, and the person is notified.
    case refuse
    /// The command is sent without the text.
    case strip
    /// Sent as it is: the backend reads it.
    case pass
}

/// The treatment of each text, under each policy that demands protection.
package struct CommandTexts: Sendable, Equatable {
    private struct Place: Hashable {
        var text: CommandText
        var demandsDevices: Bool
    }

    private var treatments: [Place: CommandTextTreatment] = [:]

    /// The defaults: no text that the backend could read is sent.
    package init() {}

    /// - Parameter policy: policies below `hosted` let every text pass.
    package subscript(_ text: CommandText, under policy: Policy) -> CommandTextTreatment {
        get {
            guard policy.demandsProtection else { return .pass }
            return treatments[Place(text: text, demandsDevices: policy.demandsDevices)] ?? text.standard
        }
        set {
            guard policy.demandsProtection else { return }
            treatments[Place(text: text, demandsDevices: policy.demandsDevices)] =
                newValue == text.standard ? nil : newValue
        }
    }

    /// The texts that the backend reads under a policy that demands protection.
    package func passed(under policy: Policy) -> [CommandText] {
        guard policy.demandsProtection else { return [] }
        return CommandText.allCases.filter { self[$0, under: policy] == .pass }
    }
}

extension CommandText {
    /// The default treatment: refused if the command is nothing without its text.
    package var standard: CommandTextTreatment {
        switch self {
        case .topic, .wallops: .refuse
        case .kick, .part, .quit, .away: .strip
        }
    }
}
