// How the person's own messages go: a client shows them as it sends them, before their protection is known. A notice in
// the conversation says how its messages go when that has changed, and not for each message.

import RequestQueue

/// The protection of the last own message of each conversation, as the person was last notified.
struct OwnLines {
    enum Outcome: Equatable {
        case sealed
        case plain
        /// It waits for keys.
        case waiting
    }

    /// By folded nick or room.
    private var shown: [ExactText: Outcome] = [:]
    /// Nicks with failures that the person was notified of, with the time.
    private var failures: [ExactText: Int64] = [:]
    /// Nicks whose changed keys the person was notified of.
    private var changed: Set<ExactText> = []
    /// Nicks with keys under which plaintext was withheld.
    private var withheld: Set<ExactText> = []

    /// Ours: how long the same failure of messages from the same person causes no further notice, in nanoseconds. The
    /// notice says what to do, and the person needs time to do it.
    static let failurePause: Int64 = 600_000_000_000

    /// How the last message to a name went; nil for none.
    func last(_ name: String) -> Outcome? { shown[name] }

    /// Whether the person has to be notified that messages to a name go in this way now; if so, counts it.
    mutating func isNoticeDue(_ outcome: Outcome, _ name: String) -> Bool {
        guard shown[name] != outcome else { return false }
        note(outcome, name)
        return true
    }

    /// The person was notified of it in other words.
    mutating func note(_ outcome: Outcome, _ name: String) {
        if shown.count >= SidecarPeople.nickLimit { shown = [:] }
        shown[name] = outcome
    }

    /// Whether the notice about a failure of messages from a nick is due; if so, counts it.
    mutating func isNoticeDue(failure: String, from nick: String, now: Int64) -> Bool {
        let name = "\(nick) \(failure)"
        guard failures[name].map({ $0 + Self.failurePause <= now }) ?? true else { return false }
        if failures.count >= SidecarPeople.nickLimit { failures = [:] }
        failures[name] = now
        return true
    }

    /// Whether the notice that a nick shows other keys is due; true once, until keys are exchanged.
    mutating func isNoticeDue(changedKeysOf nick: String) -> Bool {
        if changed.count >= SidecarPeople.nickLimit { changed = [] }
        return changed.insert(ExactText(nick)).inserted
    }

    /// Whether the long notice about plaintext under the name of a peer is due; true once.
    mutating func isNoticeDue(withheldFrom nick: String) -> Bool {
        if withheld.count >= SidecarPeople.nickLimit { withheld = [] }
        return withheld.insert(ExactText(nick)).inserted
    }

    /// A message of a nick was opened, or keys were exchanged: later failures are new ones.
    mutating func opened(from nick: String, exchangedKeys: Bool) {
        if exchangedKeys { changed.remove(ExactText(nick)) }
        withheld.remove(ExactText(nick))
        guard !failures.isEmpty else { return }
        failures = failures.filter { !$0.key.text.hasPrefix(nick + " ") }
    }
}
