// The lives of the last writes, in memory.

import Envelope
import GatewayCore
import RequestQueue

/// What is known of writes beside what their store has: attempts by their tokens, and by the message who has opened it, which the
/// vault notes.
final class WriteTraces: Sendable {
    private struct State {
        var messages: [RequestToken: MessageID] = [:]
        /// The tokens of the same, the one at `next` being the oldest once all places are taken.
        var ring: [RequestToken] = []
        var next = 0
    }

    private let attempts = RequestTraces()
    private let opened: RequestTraces
    private let state = Shared(State())

    /// - Parameter opened: where the vault notes what it opens.
    init(_ opened: RequestTraces) { self.opened = opened }

    /// A write is stored.
    func stored(_ token: RequestToken, _ message: MessageID?) {
        let now = SystemClock.now().wall
        attempts.note(.committed, of: token.low, at: now)
        guard let message else { return }
        state.withLock { state in
            guard state.messages.updateValue(message, forKey: token) == nil else { return }
            if state.ring.count < RequestTraces.limit { return state.ring.append(token) }
            state.messages[state.ring[state.next]] = nil
            state.ring[state.next] = token
            state.next = (state.next + 1) % state.ring.count
        }
        opened.note(.committed, of: message.value, at: now)
    }

    func sent(_ token: RequestToken) { attempts.note(.sent, of: token.low, at: SystemClock.now().wall) }

    func answered(_ token: RequestToken, _ reply: AttemptReply) {
        guard case .success = reply else { return }
        attempts.note(.acknowledged, of: token.low, at: SystemClock.now().wall)
    }

    /// What is known of a write; and when its text was sealed and when it was first handed to another reader, in milliseconds
    /// since 1970.
    func life(of token: RequestToken) -> (trace: RequestTrace?, sealedAt: Int64?, openedAt: Int64?) {
        let message = state.withLock { $0.messages[token] }
        // The vault numbers messages by its clock, in 1024ths of a millisecond.
        return (
            attempts[token.low], message.map { Int64($0.value >> 10) }, message.flatMap { opened[$0.value]?.openedAt }
        )
    }
}
