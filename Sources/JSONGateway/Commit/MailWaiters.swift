// The calls that wait until entries come: into the mailbox of a device, or for the calls of an account.

import Envelope
import Protection

/// Waiting calls, by device or account. In memory only: a call also ends by itself, so none has to be found again.
struct MailWaiters<Owner: Hashable & Sendable> {
    struct Waiter: Equatable {
        var connection: ConnectionID
        /// The number of the call on its connection.
        var call: UInt32
    }

    /// Waiting calls of one owner. A new call takes the place of the oldest one, whose client may have ended.
    private let limit: Int
    private var waiters: [Owner: [Waiter]] = [:]

    init(limit: Int) { self.limit = limit }

    mutating func add(_ connection: ConnectionID, _ call: UInt32, for owner: Owner) {
        let others = (waiters[owner] ?? []).suffix(limit - 1)
        waiters[owner] = others + [Waiter(connection: connection, call: call)]
    }

    /// Whether calls wait for one of some owners.
    func holds(_ owners: some Sequence<Owner>) -> Bool { owners.contains { waiters[$0] != nil } }

    /// Removes and returns the calls that wait for some owners.
    mutating func take(_ owners: some Sequence<Owner>) -> [Waiter] {
        owners.flatMap { waiters.removeValue(forKey: $0) ?? [] }
    }
}
