// A batch may write one session many times; only the last state has to reach the disk.

import StorePort

/// Holds back the sessions that a batch writes more than once, so that each is written once.
///
/// Rows that a group has staged count only if the group succeeds. Fences are checked as if each row was written at
/// once.
struct SessionCoalescer {
    private var repeated: Set<SessionID> = []
    private var staged: [SessionID: SessionRow] = [:]
    private var pending: [SessionID: SessionRow] = [:]

    init(_ groups: [ChangeGroup]) {
        var seen: Set<SessionID> = []
        for group in groups {
            for change in group.changes {
                switch change {
                case .putSession(let row):
                    if !seen.insert(row.id).inserted { repeated.insert(row.id) }
                case .rare(let change) where change.removesSessions:
                    // It reads rows, which would not be written yet.
                    repeated = []
                    return
                case .rare, .queue, .insertDelivery, .removeDelivery, .putContentKey, .spendMessageID: break
                }
            }
        }
    }

    /// Whether the rows of a session are held back.
    func holds(_ id: SessionID) -> Bool { !repeated.isEmpty && repeated.contains(id) }

    /// The fence of the row that is held back; nil if there is none.
    func fence(_ id: SessionID) -> UInt64? { (staged[id] ?? pending[id])?.fence }

    mutating func stage(_ row: SessionRow) { staged[row.id] = row }

    mutating func endGroup(succeeded: Bool) {
        guard !staged.isEmpty else { return }
        if succeeded { pending.merge(staged) { $1 } }
        staged.removeAll(keepingCapacity: true)
    }

    mutating func takePending() -> [SessionRow] {
        defer { pending = [:] }
        return Array(pending.values)
    }
}
