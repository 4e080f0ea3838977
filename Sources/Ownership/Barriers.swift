// Barriers: the answer to what makes something stricter leaves only when no gateway acts on the state before.
//
// Each rise (a stricter policy, the first latch of a conversation) has a number, in the order of their commits. A gateway
// has a rise in effect once it has read it with a beat, or got it over a link. It cannot act on the state before either if
// it is stale: whatever beat makes it fresh again is executed after the rise, and so reads it. So a barrier ends without
// an acknowledgement after the time in which every clock, however slow, has passed the fresh time.

/// The barriers of one gateway.
struct Barriers<Waiter: Sendable>: Sendable {
    private struct Barrier: Sendable {
        let version: UInt64
        let opened: Int64
        /// The first operation that is sent after the rise was committed: a view from then on has all gateways that matter.
        let operation: UInt64
        var acknowledged: [GatewayID] = []
        var waiters: [Waiter] = []
    }

    private var open: [Barrier] = []
    /// All rises up to here are in effect everywhere.
    private(set) var complete: UInt64 = 0

    /// Adds what waits for a rise.
    ///
    /// - Returns: whether the barrier is a new one, so that others have to be told.
    mutating func wait(_ waiter: Waiter, for version: UInt64, next operation: UInt64, now: Int64) -> Bool {
        if let place = open.firstIndex(where: { $0.version == version }) {
            open[place].waiters.append(waiter)
            return false
        }
        open.append(Barrier(version: version, opened: now, operation: operation, waiters: [waiter]))
        return true
    }

    mutating func acknowledge(_ gateway: GatewayID, _ version: UInt64) {
        guard let place = open.firstIndex(where: { $0.version == version }) else { return }
        open[place].acknowledged.append(gateway)
    }

    /// Notes what a view tells of all gateways.
    mutating func read(_ members: Members, own: GatewayID, now: Int64) {
        let others = members.entries.filter { $0.member.id != own && !$0.isSilent(now) }
        // Without others every rise of this gateway is in effect, but their numbers are not known here.
        if let least = others.map(\.member.seen).min() { complete = max(complete, least) }
    }

    /// Removes the barriers that have ended.
    ///
    /// - Parameters:
    ///   - version: the only one that may have ended; nil for all.
    ///   - view: the operation of the last view.
    /// - Returns: what waited for them.
    mutating func end(
        only version: UInt64?, _ members: Members, view: UInt64, own: GatewayID, now: Int64
    ) -> [Waiter] {
        guard !open.isEmpty else { return [] }
        var ended: [Waiter] = []
        open.removeAll { barrier in
            if let version, barrier.version != version { return false }
            let isOld = now - barrier.opened > OwnershipLimits.barrierTime
            if isOld { complete = max(complete, barrier.version) }
            let isDone =
                isOld || barrier.version <= complete
                || view >= barrier.operation
                    && members.entries.allSatisfy { entry in
                        entry.member.id == own || entry.member.seen >= barrier.version || entry.isSilent(now)
                            || barrier.acknowledged.contains(entry.member.id)
                    }
            if isDone { ended += barrier.waiters }
            return isDone
        }
        return ended
    }

    mutating func removeAll() { (open, complete) = ([], 0) }
}
