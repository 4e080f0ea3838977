// Decides what is done with a message: design section 2 as pure functions. All chat protocols use these and no others.

package import Envelope

/// The decision about one message of an account behind the gateway.
package enum Verdict: Equatable, Sendable {
    /// Send it as it is and count it.
    case plaintext
    /// Seal it for this account.
    case seal(AccountID)
    /// Do not send it; notify the sender of the reason.
    case refuse(Refusal)
}

/// The decision about an envelope that the sender's own device has sealed.
package enum EnvelopeVerdict: Equatable, Sendable {
    /// Send it as it is.
    ///
    /// - Parameter latches: the conversation whose latch rises to end-to-end; nil if it is up already, or cannot rise.
    case pass(latches: ConversationID?)
    /// Do not send it; notify the sender of the reason.
    case refuse(Refusal)
}

/// The decision about plaintext from the backend.
package enum InboundVerdict: Equatable, Sendable {
    /// Deliver it as it is.
    case deliver
    /// Deliver it with `[not encrypted]` before the text.
    case mark
    /// Do not deliver it; notify the recipient.
    case withhold
}

/// Decides by the policies and the latch of the conversation. The latch takes precedence over the policy.
package struct Judgement: Sendable {
    /// The kind of a message, as far as its protection is concerned.
    package enum Content: Equatable, Sendable {
        case text
        /// A request for a connection that would bypass the gateway.
        case directConnection
    }

    private let policies: PolicySnapshot
    private let latches: LatchTable

    package init(_ policies: PolicySnapshot, _ latches: LatchTable) {
        (self.policies, self.latches) = (policies, latches)
    }

    // MARK: Outbound

    /// Decides about a message that is not encrypted yet.
    package func outbound(_ content: Content, from sender: Sender, to audience: Audience) -> Verdict {
        let policy = policies.policy(of: sender.account)
        let verdict: Verdict
        switch audience {
        case .unnameable: return policy.demandsProtection ? .refuse(.name) : .plaintext
        case .one(.capable, _) where sender.capability != .sidecar:
            // Such a client encrypts by itself. If it has not, that is not intended.
            return policy.seeksProtection ? .refuse(.unsealed) : .plaintext
        case .one(let recipient, let isProtectedName):
            verdict = outbound(from: sender.account, to: recipient, isProtectedName, policy)
        case .room(let room, let isMember): verdict = outbound(from: sender.account, inRoom: room, isMember)
        case .sidecarRoom(let room, let state): verdict = outbound(inRoom: room, state, policy)
        case .conversation(let room, let members): verdict = outbound(from: sender, in: room, members, policy)
        }
        guard content == .directConnection else { return verdict }
        if case .seal = verdict { return .refuse(.directConnection) }
        return policy.demandsProtection ? .refuse(.directConnection) : verdict
    }

    private func outbound(
        from sender: AccountID, to recipient: Recipient, _ isProtectedName: Bool, _ policy: Policy
    ) -> Verdict {
        guard case .legacy(let peer) = recipient else {
            return policy.outbound(
                to: recipient, latch: recipient == .outsider && isProtectedName ? .gateway : .plaintext)
        }
        return Policy.ofConversation(policy, policies.policy(of: peer))
            .outbound(to: recipient, latch: latches.latch(of: ConversationID(sender, peer)))
    }

    /// A room has a policy and a latch of its own. See ``PolicySnapshot/policy(inRoom:by:)``.
    private func outbound(from sender: AccountID, inRoom readers: AccountID, _ isMember: Bool) -> Verdict {
        // Messages for the members with a status have the latch and the policy of the whole room.
        let room = AccountID.room(readers.roomName ?? "")
        let verdict = policies.policy(inRoom: room, by: sender)
            .outbound(to: .room(readers), latch: latches.latch(of: ConversationID(room: room)))
        if case .seal = verdict, !isMember { return .refuse(.notInRoom) }
        return verdict
    }

    /// A sidecar encrypts in a room while all its members can read it, and always in a room that the user protects.
    private func outbound(inRoom readers: AccountID, _ state: SidecarRoom, _ policy: Policy) -> Verdict {
        let isProtected = isLatched(readers)
        guard state.isMember else {
            // A user who was removed from an encrypted room sends no plaintext there.
            return isProtected || state.wasSealed ? .refuse(.notInRoom) : .plaintext
        }
        return isProtected || policy.demandsDevices || state.isWhole ? .seal(readers) : .plaintext
    }

    private func outbound(
        from sender: Sender, in room: AccountID, _ members: Members, _ own: Policy
    ) -> Verdict {
        let latch = latches.latch(of: ConversationID(room: room))
        if own.takesPart {
            if sender.capability == .client, own.seeksProtection, members.areCapable { return .refuse(.unsealed) }
            if latch == .device { return .refuse(.latched) }
        }
        let recipient = members.recipient(in: room)
        let verdict = members.policy(of: sender.account, in: room, policies).outbound(to: recipient, latch: latch)
        // The members are not known at the moment. Sealing could protect a large room for good; plaintext could
        // disclose a private message.
        if members.others == nil, members.canBeAsked, verdict == .seal(room),
            policies.policy(inRoom: room, by: sender.account).outbound(to: recipient, latch: latch) == .plaintext
        {
            return .refuse(.members)
        }
        return verdict
    }

    /// Decides about an envelope that a published device of the sender has sealed.
    package func envelope(from sender: AccountID, to audience: Audience) -> EnvelopeVerdict {
        switch audience {
        case .one(.capable(let peer), _) where peer != sender:
            return .pass(latches: raised(ConversationID(sender, peer)))
        case .conversation(let room, let members):
            if members.areCapable { return .pass(latches: raised(ConversationID(room: room))) }
            // The sender is the only member: notes to oneself.
            if members.others?.isEmpty == true { return .pass(latches: nil) }
            guard members.policy(of: sender, in: room, policies).demandsDevices else { return .pass(latches: nil) }
            return .refuse(members.others?.count == 1 ? .required : .room)
        case .one, .room, .sidecarRoom, .unnameable: return .pass(latches: nil)
        }
    }

    private func raised(_ conversation: ConversationID) -> ConversationID? {
        latches.latch(of: conversation) < .device ? conversation : nil
    }

    // MARK: Commands

    /// The policy for the text of a command that is no message: the strictest of the sender's and of the rooms that are
    /// shown the text, and the latches of those rooms.
    package func command(by sender: AccountID, shownIn rooms: some Sequence<AccountID>) -> Policy {
        rooms.reduce(policies.policy(of: sender)) { strictest, room in
            let latched: Policy =
                switch latches.latch(of: ConversationID(room: room)) {
                case .plaintext: .off
                case .gateway: .hosted
                case .device: .required
                }
            return max(strictest, policies.policy(inRoom: room, by: sender), latched)
        }
    }

    // MARK: Inbound

    /// Decides about plaintext from the backend.
    ///
    /// - Parameter isExempt: whether the sender is a service that the operator has exempted.
    package func inbound(to reader: AccountID, _ audience: InboundAudience, isExempt: Bool = false) -> InboundVerdict {
        let own = policies.policy(of: reader)
        switch audience {
        case .one(let sender, let latch):
            let policy = sender.map { Policy.ofConversation(own, policies.policy(of: $0)) } ?? own
            return policy.inbound(fromExempt: isExempt, latch: latch)
        case .many:
            let verdict = own.inbound(fromExempt: isExempt, latch: .plaintext)
            return verdict == .withhold ? .mark : verdict
        case .sidecarRoom(let room, let isKnownPeer, _) where isLatched(room):
            return isKnownPeer ? .withhold : .mark
        case .sidecarRoom(_, _, isSealed: true): return .mark
        case .sidecarRoom(let room, _, _): return inbound(inRoom: room, nil, own, isExempt)
        case .room(let room, let sender): return inbound(inRoom: room, sender, own, isExempt)
        case .conversation(let room): return inbound(inConversation: room, own)
        }
    }

    /// A room may have outsiders. Their messages are marked, never withheld.
    private func inbound(inRoom room: AccountID, _ sender: AccountID?, _ own: Policy, _ isExempt: Bool)
        -> InboundVerdict
    {
        let policy = Policy.ofConversation(own, policies.policy(inRoom: room, by: sender))
        let verdict = policy.inbound(fromExempt: isExempt, latch: latches.latch(of: ConversationID(room: room)))
        return verdict == .withhold ? .mark : verdict
    }

    private func inbound(inConversation room: AccountID?, _ own: Policy) -> InboundVerdict {
        let latch: Protection =
            if let room { latches.latch(of: ConversationID(room: room)) } else {
                latches.isEmpty ? .plaintext : .gateway
            }
        // Everyone's policy does not apply to an account under `off`; that of a room does.
        let everyone = own.takesPart ? policies.everyone : .off
        let demanded = room.map { policies.accounts[$0] ?? .off } ?? policies.strictestRoom
        return max(own, demanded, everyone).inbound(fromExempt: false, latch: latch)
    }

    private func isLatched(_ room: AccountID) -> Bool {
        latches.latch(of: .ofRoom(room.roomName ?? "")) > .plaintext
    }
}

// MARK: - The table

extension Policy {
    /// The outbound half of the table in design section 2.
    ///
    /// - Parameters:
    ///   - recipient: the reader.
    ///   - latch: the lowest protection that the conversation may use. It takes precedence over the policy.
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

    /// The inbound half of the table in design section 2, for one-to-one text that is not an envelope.
    package func inbound(fromExempt exempt: Bool, latch: Protection) -> InboundVerdict {
        if exempt { return .deliver }
        switch self {
        case .off: return .deliver
        case .observe, .opportunistic: return latch > .plaintext ? .withhold : .deliver
        case .hosted: return latch > .plaintext ? .withhold : .mark
        case .required: return .withhold
        }
    }
}
