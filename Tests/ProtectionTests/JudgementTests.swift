import Envelope
import Protection
import Testing

/// What is due to one message, for every kind of audience: without a connection, a room table or a store around it.
@Suite struct JudgementTests {
    static let (ann, bob) = (AccountID.services("ann"), AccountID.services("bob"))
    static let room = AccountID.room("#room")

    static func judgement(
        _ everyone: Policy, _ accounts: [AccountID: Policy] = [:], latched: [ConversationID: Protection] = [:]
    ) -> Judgement {
        let latches = LatchTable()
        for (conversation, protection) in latched { latches.raise(conversation, to: protection) }
        return Judgement(PolicySnapshot(everyone: everyone, accounts: accounts), latches)
    }

    static func members(_ others: [AccountID]?, behind: Bool = true, capable: Bool = false, asked: Bool = true)
        -> Audience
    {
        .conversation(
            room,
            Members(
                others.map { $0 + [ann] }, besides: ann, canBeAsked: asked, isBehind: { _ in behind },
                isCapable: { _ in capable }))
    }

    // MARK: One to one

    @Test(arguments: Policy.allCases) func theStricterOfBothEndsCounts(_ policy: Policy) {
        let judgement = Self.judgement(.observe, [Self.bob: policy])
        let verdict = judgement.outbound(.text, from: Sender(Self.ann, .hosted), to: .one(.legacy(Self.bob)))
        #expect(verdict == max(policy, .observe).outbound(to: .legacy(Self.bob), latch: .plaintext))
    }

    @Test func theLatchIsThatOfTheTwoAccounts() {
        let judgement = Self.judgement(.observe, latched: [ConversationID(Self.ann, Self.bob): .gateway])
        let sender = Sender(Self.ann, .hosted)
        #expect(judgement.outbound(.text, from: sender, to: .one(.legacy(Self.bob))) == .seal(Self.bob))
        #expect(judgement.outbound(.text, from: sender, to: .one(.legacy(.services("eve")))) == .plaintext)
    }

    @Test func anOutsiderUnderTheNameOfAProtectedPeerGetsNothing() {
        let judgement = Self.judgement(.observe)
        let sender = Sender(Self.ann, .hosted)
        #expect(
            judgement.outbound(.text, from: sender, to: .one(.outsider, isProtectedName: true)) == .refuse(.latched))
        #expect(judgement.outbound(.text, from: sender, to: .one(.outsider)) == .plaintext)
        // A service that is proven is nobody's peer.
        #expect(judgement.outbound(.text, from: sender, to: .one(.exempt, isProtectedName: true)) == .plaintext)
    }

    @Test(arguments: [
        (Policy.off, Verdict.plaintext), (.observe, .plaintext), (.opportunistic, .refuse(.unsealed)),
        (.hosted, .refuse(.unsealed)), (.required, .refuse(.unsealed)),
    ]) func whoCanEncryptHasTo(_ policy: Policy, _ expected: Verdict) {
        let judgement = Self.judgement(policy)
        #expect(
            judgement.outbound(.text, from: Sender(Self.ann, .client), to: .one(.capable(Self.bob))) == expected)
        #expect(
            judgement.outbound(.text, from: Sender(Self.ann, .sidecar), to: .one(.capable(Self.bob)))
                == .seal(Self.bob))
    }

    @Test(arguments: Policy.allCases) func aNameThatIsNotUTF8GetsNothingThatWouldHaveToBeSealed(_ policy: Policy) {
        let verdict = Self.judgement(policy).outbound(.text, from: Sender(Self.ann, .hosted), to: .unnameable)
        #expect(verdict == (policy.demandsProtection ? .refuse(.name) : .plaintext))
    }

    @Test(arguments: Policy.allCases) func aDirectConnectionPassesOnlyWhereNothingIsDue(_ policy: Policy) {
        let sender = Sender(Self.ann, .hosted)
        let judgement = Self.judgement(policy)
        let expected: Verdict = policy.demandsProtection ? .refuse(.directConnection) : .plaintext
        #expect(judgement.outbound(.directConnection, from: sender, to: .one(.legacy(Self.bob))) == expected)
        #expect(judgement.outbound(.directConnection, from: sender, to: .one(.exempt)) == expected)
        let latched = Self.judgement(policy, latched: [ConversationID(Self.ann, Self.bob): .gateway])
        #expect(
            latched.outbound(.directConnection, from: sender, to: .one(.legacy(Self.bob)))
                == .refuse(.directConnection))
    }

    // MARK: Rooms

    @Test func onlyMembersSealInARoom() {
        let sender = Sender(Self.ann, .hosted)
        let judgement = Self.judgement(.hosted)
        #expect(judgement.outbound(.text, from: sender, to: .room(Self.room, isMember: true)) == .seal(Self.room))
        #expect(judgement.outbound(.text, from: sender, to: .room(Self.room, isMember: false)) == .refuse(.notInRoom))
        #expect(
            Self.judgement(.observe).outbound(.text, from: sender, to: .room(Self.room, isMember: false)) == .plaintext)
    }

    @Test func operatorsOfARoomHaveItsPolicyAndItsLatch() {
        let operators = AccountID.room("#room", status: "@")
        let sender = Sender(Self.ann, .hosted)
        #expect(
            Self.judgement(.observe, [Self.room: .hosted])
                .outbound(.text, from: sender, to: .room(operators, isMember: true)) == .seal(operators))
        #expect(
            Self.judgement(.observe, latched: [.ofRoom("#room"): .gateway])
                .outbound(.text, from: sender, to: .room(operators, isMember: true)) == .seal(operators))
    }

    @Test(arguments: [
        // isMember, isWhole, wasSealed, isLatched, expected
        (true, true, false, false, Verdict.seal(room)), (true, false, false, false, .plaintext),
        (true, false, true, false, .plaintext), (true, false, false, true, .seal(room)),
        (false, true, false, false, .plaintext), (false, true, true, false, .refuse(.notInRoom)),
        (false, false, false, true, .refuse(.notInRoom)),
    ]) func aSidecarSealsWhileAllCanRead(
        _ isMember: Bool, _ isWhole: Bool, _ wasSealed: Bool, _ isLatched: Bool, _ expected: Verdict
    ) {
        let judgement = Self.judgement(.observe, latched: isLatched ? [.ofRoom("#room"): .device] : [:])
        let state = SidecarRoom(isMember: isMember, isWhole: isWhole, wasSealed: wasSealed)
        #expect(
            judgement.outbound(.text, from: Sender(Self.ann, .sidecar), to: .sidecarRoom(Self.room, state)) == expected)
    }

    // MARK: Conversations with named members

    @Test func betweenTwoTheirPoliciesCountAndInARoomThoseOfTheRoom() {
        let sender = Sender(Self.ann, .hosted)
        let judgement = Self.judgement(.observe, [Self.bob: .hosted])
        #expect(judgement.outbound(.text, from: sender, to: Self.members([Self.bob])) == .seal(Self.room))
        #expect(
            judgement.outbound(.text, from: sender, to: Self.members([Self.bob, .services("eve")])) == .plaintext)
        #expect(
            Self.judgement(.hosted).outbound(.text, from: sender, to: Self.members([Self.bob], behind: false))
                == .refuse(.outsider))
    }

    @Test func withoutMembersFromTheBackendNothingIsProtectedForGood() {
        let sender = Sender(Self.ann, .hosted)
        let judgement = Self.judgement(.observe, [Self.ann: .hosted])
        #expect(judgement.outbound(.text, from: sender, to: Self.members(nil)) == .refuse(.members))
        // A backend that never says it is taken at the sender's word.
        #expect(judgement.outbound(.text, from: sender, to: Self.members(nil, asked: false)) == .seal(Self.room))
        #expect(Self.judgement(.hosted).outbound(.text, from: sender, to: Self.members(nil)) == .seal(Self.room))
    }

    @Test func wordsDoNotGoWhereEverybodyUsesTheirOwnDevice() {
        let judgement = Self.judgement(.opportunistic)
        let capable = Self.members([Self.bob], capable: true)
        #expect(judgement.outbound(.text, from: Sender(Self.ann, .client), to: capable) == .refuse(.unsealed))
        #expect(judgement.outbound(.text, from: Sender(Self.ann, .hosted), to: capable) == .plaintext)
        let latched = Self.judgement(.opportunistic, latched: [.ofRoom("#room"): .device])
        #expect(latched.outbound(.text, from: Sender(Self.ann, .hosted), to: capable) == .refuse(.latched))
    }

    @Test func envelopesPassAndLatchWhereAllCanReadThem() {
        let conversation = ConversationID.ofRoom("#room")
        let capable = Self.members([Self.bob], capable: true)
        #expect(Self.judgement(.hosted).envelope(from: Self.ann, to: capable) == .pass(latches: conversation))
        let latched = Self.judgement(.hosted, latched: [conversation: .device])
        #expect(latched.envelope(from: Self.ann, to: capable) == .pass(latches: nil))
        #expect(Self.judgement(.hosted).envelope(from: Self.ann, to: Self.members([Self.bob])) == .pass(latches: nil))
        let required = Self.judgement(.required)
        #expect(required.envelope(from: Self.ann, to: Self.members([Self.bob])) == .refuse(.required))
        #expect(required.envelope(from: Self.ann, to: Self.members([Self.bob, .services("eve")])) == .refuse(.room))
        #expect(required.envelope(from: Self.ann, to: Self.members(nil)) == .refuse(.room))
        // Notes to oneself have no reader without a device.
        #expect(required.envelope(from: Self.ann, to: Self.members([])) == .pass(latches: nil))
        #expect(
            Self.judgement(.hosted).envelope(from: Self.ann, to: .one(.capable(Self.bob)))
                == .pass(latches: ConversationID(Self.ann, Self.bob)))
        #expect(Self.judgement(.hosted).envelope(from: Self.ann, to: .one(.capable(Self.ann))) == .pass(latches: nil))
    }

    // MARK: Inbound

    @Test(arguments: Policy.allCases) func plaintextInALatchedConversationIsWithheld(_ policy: Policy) {
        let judgement = Self.judgement(policy)
        let verdict = judgement.inbound(to: Self.ann, .one(sender: Self.bob, latch: .gateway))
        #expect(verdict == (policy == .off ? .deliver : .withhold))
        #expect(judgement.inbound(to: Self.ann, .one(sender: nil, latch: .gateway), isExempt: true) == .deliver)
    }

    @Test func whatOutsidersWriteInARoomIsMarkedAndNeverWithheld() {
        for policy in [Policy.hosted, .required] {
            let judgement = Self.judgement(policy, latched: [.ofRoom("#room"): .gateway])
            #expect(judgement.inbound(to: Self.ann, .room(Self.room, sender: nil)) == .mark)
            #expect(judgement.inbound(to: Self.ann, .many) == .mark)
        }
    }

    @Test func aSidecarWithholdsPlaintextOfPeersInRoomsThatTheUserProtects() {
        let latched = Self.judgement(.observe, latched: [.ofRoom("#room"): .device])
        #expect(
            latched.inbound(to: Self.ann, .sidecarRoom(Self.room, isKnownPeer: true, isSealed: true)) == .withhold)
        #expect(latched.inbound(to: Self.ann, .sidecarRoom(Self.room, isKnownPeer: false, isSealed: true)) == .mark)
        let open = Self.judgement(.observe)
        #expect(open.inbound(to: Self.ann, .sidecarRoom(Self.room, isKnownPeer: true, isSealed: true)) == .mark)
        #expect(open.inbound(to: Self.ann, .sidecarRoom(Self.room, isKnownPeer: true, isSealed: false)) == .deliver)
    }

    @Test func withoutAKnownConversationTheStrictestPolicyCounts() {
        let judgement = Self.judgement(.observe, [.room("a"): .hosted])
        #expect(judgement.inbound(to: Self.ann, .conversation(nil)) == .mark)
        #expect(judgement.inbound(to: Self.ann, .conversation(.room("b"))) == .deliver)
        let latched = Self.judgement(.observe, latched: [.ofRoom("a"): .gateway])
        #expect(latched.inbound(to: Self.ann, .conversation(nil)) == .withhold)
        #expect(latched.inbound(to: Self.ann, .conversation(.room("b"))) == .deliver)
    }

    @Test func anAccountUnderOffTakesPartOnlyInWhatARoomDemands() {
        let judgement = Self.judgement(.hosted, [Self.ann: .off, .room("a"): .hosted])
        #expect(judgement.inbound(to: Self.ann, .conversation(.room("a"))) == .mark)
        #expect(judgement.inbound(to: Self.ann, .conversation(.room("b"))) == .deliver)
    }
}
