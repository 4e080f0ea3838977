// Forecasts the effect of a policy on the known conversations.

import Protection
import RequestQueue
import StorePort
import Vault

extension Gateway {
    /// Ours: rows of observations that a forecast reads.
    static var observationLimit: Int { 100_000 }

    /// Returns the observed conversations, and the rooms that have members now.
    func knownConversations(_ observations: [ObservationRow]) -> [KnownConversation] {
        Array(front.knownConversations(observations).all.values)
    }

    /// Forecasts what a change of the policies would protect for good.
    ///
    /// Empty in a sidecar, which asks its user about each room.
    func latchForecast(_ change: (inout PolicySnapshot) -> Void) throws -> LatchForecast {
        try writeDown()
        var changed = tables.policies.snapshot
        change(&changed)
        return latchForecast(to: changed, try store.observations(limit: Self.observationLimit))
    }

    func latchForecast(to new: PolicySnapshot, _ observations: [ObservationRow]) -> LatchForecast {
        switch parts {
        case .front:
            LatchForecast(knownConversations(observations), from: tables.policies.snapshot, to: new, tables.latches)
        case .sidecar: LatchForecast()
        }
    }

    /// Asks before conversations are protected for good.
    ///
    /// - Returns: the question; nil if there is nothing to ask, or if the operator has agreed.
    func question(
        _ forecast: LatchForecast, _ words: String, asJSON: Bool, unless isAgreed: @autoclosure () -> Bool
    ) throws -> AdminAnswer? {
        guard !forecast.rises.isEmpty, !isAgreed() else { return nil }
        var answer = question(forecast.question, words)
        if asJSON { answer.out = try AdminAnswer.json(forecast).out }
        return answer
    }
}

extension LatchForecast {
    /// Ours: conversations that a question names.
    private static let named = 100

    /// The question to the operator before the change.
    var question: String {
        let lines = rises.prefix(Self.named).map { rise in
            Printable.line(
                rise.outsiders.isEmpty
                    ? "  \(rise.conversation)"
                    : "  \(rise.conversation), and then these cannot read it: \(rise.outsiders.joined(separator: ", "))"
            )
        }
        let rest = rises.count > Self.named ? ["  and \(rises.count - Self.named) more"] : []
        return """
            Protected for good from the next message on (\(rises.count)):
            \((lines + rest).joined(separator: "\n"))
            They stay protected if the policy is taken back, until each is reset (pawl conversations reset). To change \
            the policy without this question, use --yes.
            """
    }
}

/// The known conversations by the id of their latch.
struct KnownConversations {
    /// Whether every conversation counts as private, because the backend cannot list members.
    let everyIsPrivate: Bool
    private(set) var all: [ConversationID: KnownConversation] = [:]

    init(everyIsPrivate: Bool) { self.everyIsPrivate = everyIsPrivate }

    /// Adds people to a conversation, which may be new.
    mutating func add(_ id: ConversationID, _ name: String, isPrivate: Bool, _ people: some Sequence<AccountID>) {
        var known = all[id] ?? KnownConversation(id: id, name: name, isPrivate: isPrivate, people: [])
        known.isPrivate = isPrivate || everyIsPrivate
        known.people.formUnion(people)
        all[id] = known
    }

    mutating func addOutsider(_ name: String, to id: ConversationID) { all[id]?.outsiders.insert(name) }
}
