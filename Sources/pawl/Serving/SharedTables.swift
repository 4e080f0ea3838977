// The tables that a gateway has in front of every backend. What only one chat protocol has belongs to its front.

import Outbox
import Protection
import Reports

/// The tables that connections, commands and reports share. Thread-safe.
struct SharedTables: Sendable {
    let policies: PolicyTable
    let latches = LatchTable()
    let tally = Tally()
    let outbox = OutboxTables()
}
