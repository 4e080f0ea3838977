// What all exchanges and WebSocket connections of a gateway share.

import Synchronization

/// The surroundings of a JSON backend's sessions.
package final class JSONEnvironment: Sendable {
    package let policies: PolicyTable
    package let latches: LatchTable
    package let tally: Tally
    private let current: Mutex<Mapping>

    package init(mapping: Mapping, policies: PolicyTable, latches: LatchTable = LatchTable(), tally: Tally = Tally()) {
        current = Mutex(mapping)
        self.policies = policies
        self.latches = latches
        self.tally = tally
    }

    /// The mapping now; a reload may replace it.
    package var mapping: Mapping { current.withLock { $0 } }

    package func replace(_ mapping: Mapping) { current.withLock { $0 = mapping } }
}
