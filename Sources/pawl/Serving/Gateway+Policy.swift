// Forecasts the effect of a policy on the known conversations.

import IRCGateway
import JSONGateway
import Protection
import RequestQueue
import StorePort
import Vault

extension Gateway {
    /// Ours: rows of observations that a forecast reads.
    static var observationLimit: Int { 100_000 }

    /// Returns the observed conversations, and the rooms that have members now.
    func knownConversations(_ observations: [ObservationRow]) -> [KnownConversation] {
        Array(front.knownConversations(observations, self).all.values)
    }

    /// Returns what other policies would protect for good. Empty in a sidecar, which asks its user about each room.
    func latchForecast(to new: PolicySnapshot) throws -> LatchForecast {
        try writeDown()
        return latchForecast(to: new, try store.observations(limit: Self.observationLimit))
    }

    func latchForecast(to new: PolicySnapshot, _ observations: [ObservationRow]) -> LatchForecast {
        guard role == .front else { return LatchForecast() }
        return LatchForecast(
            knownConversations(observations), from: environment.policies.snapshot, to: new, environment.latches)
    }

    /// Returns the question whether to protect conversations for good.
    func question(_ forecast: LatchForecast, _ words: String, asJSON: Bool) throws -> AdminAnswer {
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
