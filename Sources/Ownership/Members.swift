// Who lives. A beat is a number in the row of its gateway, and only whether it changed from one successful read to the next
// counts. Reads that fail count for nothing: if the database is away, everybody stays alive.

/// The gateways of the last view, and how long their beats have not changed.
struct Members: Sendable {
    struct Entry: Sendable {
        var member: Member
        /// Successful reads since the beat has changed.
        var unchanged = 0
        /// When the beat was read for the first time.
        var since: Int64

        var isSuspect: Bool { unchanged >= OwnershipLimits.suspectReads }
        /// Whether it cannot be fresh any more, unless its next beat is executed after the last read.
        func isSilent(_ now: Int64) -> Bool { unchanged > 0 && now - since > OwnershipLimits.barrierTime }
    }

    /// By id.
    private(set) var entries: [Entry] = []

    /// Takes the rows of a successful read.
    mutating func read(_ rows: [Member], now: Int64) {
        var before = entries[...]
        entries = rows.sorted { $0.id < $1.id }.map { row in
            while let first = before.first, first.member.id < row.id { before.removeFirst() }
            guard let old = before.first, old.member.id == row.id, old.member.beat == row.beat else {
                return Entry(member: row, since: now)
            }
            return Entry(member: row, unchanged: old.unchanged + 1, since: old.since)
        }
    }

    func entry(_ id: GatewayID) -> Entry? { entries.first { $0.member.id == id } }

    /// Whether a gateway has a row whose beat changes.
    func isLive(_ id: GatewayID) -> Bool { entry(id).map { !$0.isSuspect } ?? false }

    /// The gateways that shards may be placed on.
    ///
    /// - Parameter own: this gateway; its own beats are not judged.
    func candidates(own: GatewayID) -> [GatewayID] {
        entries.filter { !$0.member.isDraining && ($0.member.id == own || !$0.isSuspect) }.map(\.member.id)
    }
}
