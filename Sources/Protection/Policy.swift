// The policies and what each of them means.

/// The protection that a scope (everyone, an account, a room) demands. Each is stricter than the one before.
package enum Policy: UInt8, Sendable, CaseIterable, Comparable {
    /// Bytes are forwarded unchanged. The account takes no part in encryption.
    case off = 0
    /// Bytes are forwarded. The gateway counts what stricter policies would do.
    case observe = 1
    /// Clients that can encrypt do so; other messages are sent as plaintext and counted.
    case opportunistic = 2
    /// Messages of people behind the gateway are protected end-to-gateway, and never sent as plaintext.
    case hosted = 3
    /// Messages must be sealed by people's own devices.
    case required = 4

    package static func < (left: Policy, right: Policy) -> Bool { left.rawValue < right.rawValue }

    package init?(name: String) {
        guard let match = Self.allCases.first(where: { $0.name == name }) else { return nil }
        self = match
    }

    package var name: String {
        switch self {
        case .off: "off"
        case .observe: "observe"
        case .opportunistic: "opportunistic"
        case .hosted: "hosted"
        case .required: "required"
        }
    }

    /// The names of all policies, for help texts: "off, observe ... or required".
    package static var choices: String {
        allCases.dropLast().map(\.name).joined(separator: ", ") + (allCases.last.map { " or \($0.name)" } ?? "")
    }
}

/// What a policy means: one exhaustive switch for each question. Other code compares no policy with a case (TidyTests).
extension Policy {
    /// Whether accounts under it take part in encryption. An account that does not is an outsider to others.
    package var takesPart: Bool {
        switch self {
        case .off: false
        case .observe, .opportunistic, .hosted, .required: true
        }
    }

    /// Whether clients that can encrypt must do so.
    package var seeksProtection: Bool {
        switch self {
        case .off, .observe: false
        case .opportunistic, .hosted, .required: true
        }
    }

    /// Whether messages that cannot be protected are refused.
    package var demandsProtection: Bool {
        switch self {
        case .off, .observe, .opportunistic: false
        case .hosted, .required: true
        }
    }

    /// Whether messages between people behind the gateway are sealed end-to-gateway, which protects a conversation for good.
    package var sealsEndToGateway: Bool {
        switch self {
        case .off, .observe, .opportunistic, .required: false
        case .hosted: true
        }
    }

    /// Whether messages must be sealed by people's own devices.
    package var demandsDevices: Bool {
        switch self {
        case .off, .observe, .opportunistic, .hosted: false
        case .required: true
        }
    }
}

extension Policy {
    /// The policy of a conversation: the stricter one of its two ends.
    ///
    /// Not called for a recipient under `off`: that is an outsider.
    package static func ofConversation(_ sender: Policy, _ recipient: Policy) -> Policy { max(sender, recipient) }
}
