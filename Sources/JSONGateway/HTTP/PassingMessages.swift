// Messages of a WebSocket that pass as they were received. While nothing is protected, a message of a client is read for
// counts and for calls of the control plane only. One that differs from an earlier one in its text and its ids alone is
// neither read nor written again: the relay passes its frame with the client's mask.
//
// RFC 6455 section 5.3 asks for a mask that the client's page cannot know. It does not ask for one of the gateway's.

import JSONCodec
package import Protection
import Reports

/// The messages of one client that passed not long ago.
struct PassingMessages: Sendable {
    /// Ours: kinds of messages that are remembered, and how long, in nanoseconds. Members are remembered for longer.
    static let limit = 4
    static let lifetime: Int64 = 5_000_000_000
    /// Ours: kinds that are remembered without one of them being met again.
    private static let attempts = 8

    /// What was decided about a message, and what may change it.
    struct Versions: Equatable, Sendable {
        var settings: UInt64
        var policies: UInt64
    }

    struct Kind: Sendable {
        let template: JSONTemplate
        /// Under what its messages are counted for reports; nil if they are not. It is up to ``lifetime`` old: members
        /// that come or go, and the first login of a recipient, count that much later.
        let observed: (target: String, recipient: ObservedRecipient)?
        /// Messages that have passed and are not counted yet.
        var count = 0
    }

    var kinds: [Kind] = []
    private var versions: Versions?
    private var until: Int64 = 0
    private var attempts = Self.attempts
    private var next = 0

    /// Whether another kind may be remembered.
    var takesMore: Bool { attempts > 0 }

    /// Whether what is remembered still holds.
    func holds(_ versions: Versions, at now: Int64) -> Bool { versions == self.versions && now < until }

    mutating func forget() {
        kinds = []
        (attempts, next) = (Self.attempts, 0)
    }

    /// Remembers a kind, perhaps in place of an older one, whose messages are counted.
    mutating func add(_ kind: Kind, _ versions: Versions, at now: Int64) {
        attempts -= 1
        if kinds.isEmpty { (self.versions, until) = (versions, now + Self.lifetime) }
        guard kinds.count == Self.limit else { return kinds.append(kind) }
        kinds[next] = kind
        next = (next + 1) % Self.limit
    }

    /// Notes a message of a remembered kind.
    ///
    /// - Returns: false if it is of none.
    mutating func take(_ message: UnsafeRawBufferPointer) -> Bool {
        for index in kinds.indices where kinds[index].template.matches(message) {
            kinds[index].count += 1
            attempts = Self.attempts
            return true
        }
        return false
    }
}

extension WebSocketMachine {
    var versions: PassingMessages.Versions {
        PassingMessages.Versions(settings: environment.settingsVersion, policies: environment.policies.version)
    }

    /// Begins to pass messages of the client that were received together.
    ///
    /// - Returns: false if none can pass unread. Else ``endPassing()`` follows.
    package mutating func beginPassing(at now: Timestamp) -> Bool {
        guard !passing.kinds.isEmpty, toBackend.isEmpty, !protects else { return false }
        if passing.holds(versions, at: now.monotonic) { return true }
        passing.forget()
        return false
    }

    /// Whether a text of the client passes as it is: an equal one was read not long ago.
    package mutating func passes(_ text: UnsafeRawBufferPointer) -> Bool { !protects && passing.take(text) }

    /// Counts the messages that have passed.
    package mutating func endPassing() {
        for index in passing.kinds.indices where passing.kinds[index].count > 0 {
            let kind = passing.kinds[index]
            passing.kinds[index].count = 0
            guard let observed = kind.observed else { continue }
            environment.tally.add(.sentPlaintext, kind.count)
            environment.observations.note(observed.target, observed.recipient, by: account, messages: kind.count)
        }
    }

    /// Whether all messages of the backend pass as they are.
    package var passesBackend: Bool { toClient.isEmpty && carried.isEmpty && !readsBackend }

    /// Remembers a message of the client that passes, so that others like it need not be read.
    ///
    /// - Parameters:
    ///   - document: as it was received.
    ///   - frame: its kind.
    ///   - versions: read before anything was decided, so that a change meanwhile makes what is remembered stale.
    ///   - text: the text in it that was judged; nil if the kind has none.
    ///   - members: those of the text's conversation.
    mutating func remember(
        _ document: JSONDocument, _ frame: FrameRoute, _ versions: PassingMessages.Versions,
        _ text: FoundMessage? = nil, _ members: [AccountID]? = nil, at now: Timestamp
    ) {
        guard passing.takesMore, !protects, let template = environment.mapping.template(of: document, frame, text)
        else { return }
        let observed = text.map { text -> (target: String, recipient: ObservedRecipient) in
            let recipient = environment.observed(
                on: .room(text.conversation), by: account, members, environment.policies.snapshot)
            return (text.conversation, recipient)
        }
        if !passing.holds(versions, at: now.monotonic) { passing.forget() }
        passing.add(PassingMessages.Kind(template: template, observed: observed), versions, at: now.monotonic)
    }
}
