// Traces of the last writes, in memory.

package import Envelope
package import Outbox
import Protection
package import RequestQueue
import Synchronization

/// Traces of writes, beside what the store has of them.
///
/// Attempts are found by the token of the write, and openings, which the vault records, by the id of the message.
package final class WriteTraces: Sendable {
    fileprivate struct State {
        var messages: [RequestToken: MessageID] = [:]
        /// The tokens in `messages` as a ring. Once it is full, the one at `next` is the oldest.
        var ring: [RequestToken] = []
        var next = 0
        /// Failed attempts of the writes that failed last. Once `failed` is full, the one at `nextFailed` is the oldest.
        var failures: [RequestToken: [Failure]] = [:]
        var failed: [RequestToken] = []
        var nextFailed = 0
    }

    /// An attempt that failed.
    package struct Failure: Sendable {
        /// In milliseconds since 1970.
        package var at: Int64
        package var reason: String
    }

    /// Number of failures that are kept of one write: the last ones.
    fileprivate static let failureLimit = 8

    private let attempts = RequestTraces()
    private let opened: RequestTraces
    private let state = Mutex(State())

    /// - Parameter opened: the traces in which the vault records openings.
    package init(_ opened: RequestTraces) { self.opened = opened }

    /// Records that a write is stored.
    ///
    /// - Parameters:
    ///   - message: the message that is sealed in it; nil if there is none.
    ///   - time: here and below in milliseconds since 1970.
    package func stored(_ token: RequestToken, _ message: MessageID?, at time: Int64) {
        attempts.note(.committed, of: token.low, at: time)
        guard let message else { return }
        state.withLock { state in
            guard state.messages.updateValue(message, forKey: token) == nil else { return }
            if state.ring.count < RequestTraces.limit { return state.ring.append(token) }
            state.messages[state.ring[state.next]] = nil
            state.ring[state.next] = token
            state.next = (state.next + 1) % state.ring.count
        }
        opened.note(.committed, of: message.value, at: time)
    }

    package func sent(_ token: RequestToken, at time: Int64) { attempts.note(.sent, of: token.low, at: time) }

    package func answered(_ token: RequestToken, _ reply: AttemptReply, at time: Int64) {
        switch reply {
        case .success: attempts.note(.acknowledged, of: token.low, at: time)
        case .failure(let failure, _, _, _):
            state.withLock { $0.note(Failure(at: time, reason: failure.text), of: token) }
        }
    }

    /// Why the last attempts of a write failed, the oldest first.
    package func failures(of token: RequestToken) -> [Failure] { state.withLock { $0.failures[token] ?? [] } }

    /// Returns the trace of a write, and when its text was sealed and first handed to another reader.
    ///
    /// Times are in milliseconds since 1970.
    package func life(of token: RequestToken) -> (trace: RequestTrace?, sealedAt: Int64?, openedAt: Int64?) {
        let message = state.withLock { $0.messages[token] }
        // The vault numbers messages by its clock, in 1024ths of a millisecond.
        return (
            attempts[token.low], message.map { Int64($0.value >> 10) }, message.flatMap { opened[$0.value]?.openedAt }
        )
    }
}

extension WriteTraces.State {
    fileprivate mutating func note(_ failure: WriteTraces.Failure, of token: RequestToken) {
        if failures[token] == nil {
            if failed.count < RequestTraces.limit {
                failed.append(token)
            } else {
                failures[failed[nextFailed]] = nil
                failed[nextFailed] = token
                nextFailed = (nextFailed + 1) % failed.count
            }
        }
        failures[token, default: []].append(failure)
        if failures[token]?.count ?? 0 > WriteTraces.failureLimit { failures[token]?.removeFirst() }
    }
}
