// What a scope demands, and the table of design section 2 as one pure function.

package import Envelope

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

/// Who a message is for, as far as the gateway can tell.
package enum Recipient: Equatable, Sendable {
    /// An account behind this gateway whose clients cannot encrypt by themselves.
    case legacy(AccountID)
    /// Somebody whose own devices are known.
    case capable(AccountID)
    /// Somebody whose keys have changed, and nobody has said yet that this is right.
    case changed(AccountID)
    /// Nobody that the gateway could give a key.
    case outsider
    /// A service or bot that the operator has named, recognised by its server or host.
    case exempt
    /// The hosted members of a room, in whose place the vault reads.
    case room(AccountID)
}

/// What is to be done with one message.
package enum Verdict: Equatable, Sendable {
    /// Send it as it is and count it.
    case plaintext
    /// Seal it for this account; protection `gateway`.
    case seal(AccountID)
    /// Do not send it; tell the sender why.
    case refuse(Refusal)
}

/// Why a message is not sent. The words for it are in ``Remarks``.
package enum Refusal: UInt8, Equatable, Sendable, CaseIterable {
    /// The recipient is not behind this gateway.
    case outsider
    /// The policy demands people's own devices, and one end has none.
    case required
    /// The policy demands people's own devices, and rooms have none.
    case room
    /// The sender is not in the room, so that nobody could tell who reads there.
    case notInRoom
    /// A direct connection would bypass the gateway.
    case directConnection
    /// The route table does not know the verb, or forbids it.
    case verb
    /// The conversation has been protected before and cannot be now.
    case latched
    /// Both clients can encrypt by themselves, and the sender's has not.
    case unsealed
    /// The recipient shows keys that are not the ones that were pinned.
    case changedKeys
    /// A file would reach the backend as it is.
    case media
    /// The recipient's name is not UTF-8.
    case name
    /// Words that somebody looks for would reach the backend as they are.
    case search
    /// The backend has not said who is in the conversation, so that nobody can tell whose policy counts.
    case members

    /// A stable word for counters and scripts.
    package var name: String {
        switch self {
        case .outsider: "outsider"
        case .required: "required"
        case .room: "room"
        case .notInRoom: "not_in_room"
        case .directConnection: "direct_connection"
        case .verb: "verb"
        case .latched: "latched"
        case .unsealed: "unsealed"
        case .changedKeys: "changed_keys"
        case .media: "media"
        case .name: "name"
        case .search: "search"
        case .members: "members"
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

    /// The outbound half of the table in design section 2.
    ///
    /// - Parameters:
    ///   - recipient: who it is for.
    ///   - latch: what the conversation has reached before; it wins over the policy.
    package func outbound(to recipient: Recipient, latch: Protection) -> Verdict {
        switch recipient {
        case .exempt:
            return .plaintext
        case .capable(let account): return .seal(account)
        case .changed: return .refuse(.changedKeys)
        case .room(let room):
            switch self {
            case .off, .observe, .opportunistic: return latch > .plaintext ? .seal(room) : .plaintext
            case .hosted: return .seal(room)
            case .required: return .refuse(.room)
            }
        case .outsider:
            switch self {
            case .off, .observe, .opportunistic: return latch > .plaintext ? .refuse(.latched) : .plaintext
            case .hosted, .required: return .refuse(.outsider)
            }
        case .legacy(let account):
            switch self {
            case .off, .observe, .opportunistic:
                guard latch > .plaintext else { return .plaintext }
                return latch == .device ? .refuse(.latched) : .seal(account)
            case .hosted:
                return latch == .device ? .refuse(.latched) : .seal(account)
            case .required:
                return .refuse(.required)
            }
        }
    }

    /// What happens to plaintext that comes from the backend for somebody behind the gateway.
    package enum Inbound: Equatable, Sendable {
        case deliver
        /// Delivered with `[not encrypted]` before the text.
        case mark
        /// Not delivered; the recipient is told.
        case withhold
    }

    /// The inbound half of the table in design section 2, for one-to-one text that is not an envelope.
    package func inbound(fromExempt exempt: Bool, latch: Protection) -> Inbound {
        if exempt { return .deliver }
        switch self {
        case .off: return .deliver
        case .observe, .opportunistic: return latch > .plaintext ? .withhold : .deliver
        case .hosted: return latch > .plaintext ? .withhold : .mark
        case .required: return .withhold
        }
    }
}
