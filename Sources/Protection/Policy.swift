// What a scope demands, and what each policy means.

/// What a scope (everyone, an account) demands. Each is stricter than the one before.
package enum Policy: UInt8, Sendable, CaseIterable, Comparable {
    /// Bytes are bytes; nothing is looked at, nobody takes part.
    case off = 0
    /// Bytes are forwarded, what stricter policies would do is counted.
    case observe = 1
    /// Who can, encrypts; the rest is plaintext and counted.
    case opportunistic = 2
    /// People behind the gateway are protected end-to-gateway; nothing of theirs goes out in the clear.
    case hosted = 3
    /// Only people's own devices will do.
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
}

/// What a policy means, so that a new one has to answer each question; nothing else compares policies with one of them.
extension Policy {
    /// Whether people under it take part. Somebody who does not is an outsider to others.
    package var takesPart: Bool {
        switch self {
        case .off: false
        case .observe, .opportunistic, .hosted, .required: true
        }
    }

    /// Whether clients that can encrypt have to.
    package var seeksProtection: Bool {
        switch self {
        case .off, .observe: false
        case .opportunistic, .hosted, .required: true
        }
    }

    /// Whether what cannot be protected is refused.
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

    /// Whether only people's own devices will do.
    package var demandsDevices: Bool {
        switch self {
        case .off, .observe, .opportunistic, .hosted: false
        case .required: true
        }
    }
}

extension Policy {
    /// The policy of a conversation is the stricter one of its two ends. An end under `off` takes no part at all: it
    /// is an outsider, and never gets here.
    package static func ofConversation(_ sender: Policy, _ recipient: Policy) -> Policy { max(sender, recipient) }
}
