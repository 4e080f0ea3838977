// The machine of what goes to the client: lines in order, and those that wait for the vault or for a copy of what
// another connection opens.
//
// A message to a room waits behind the copies that were requested before it, so that the vault opens and stores the
// messages of a room in one order. Lines of a room from before a restart wait until the client is in that room again.
//
// An opening that the store does not take, because its database is away or its disk is full, is tried again: the backend
// sends a message once, so it would be lost to its reader. The lines behind it wait, and later openings are sent to the
// vault behind it: a message that is opened before an earlier one looks like a gap.

import DequeModule
import IRCCodec
import RequestQueue

/// The inbound side of one connection.
struct InboundLane {
    typealias Ticket = OrderedQueue<InboundEntry>.Ticket

    /// Ours: before the first try again of an opening, in nanoseconds. It doubles with each, up to ``longestRetryPause``:
    /// each member of a room tries for itself.
    static let retryPause: Int64 = 500_000_000
    /// Ours: in nanoseconds.
    static let longestRetryPause: Int64 = 4_000_000_000
    /// Ours: how long an opening is tried again, in nanoseconds: shorter than clients wait for an answer to their PING.
    static let retryLimit: Int64 = 45_000_000_000

    /// Envelopes that are not complete yet.
    var fragments = FragmentCollector()
    private var queue = OrderedQueue<InboundEntry>()
    private var opens: [Ticket: PendingOpen] = [:]
    /// Openings that the store has not taken, or that wait behind such, and that the vault has not answered since.
    private var retried: Set<Ticket> = []
    /// Those of them that are to be sent to the vault.
    private var refused: [Ticket] = []
    /// When they are tried again; nil if there are none.
    private(set) var retryAt: Int64?
    private var pause = Self.retryPause
    private var copies: [Ticket: PendingCopy] = [:]
    /// Messages to rooms that arrived after the copies, in order.
    private var postponed: Deque<PostponedOpening> = []
    /// Lines from before a restart, for rooms that the client has not joined again.
    private var roomLines: [RecoveredLine] = []

    // MARK: The lane

    var isEmpty: Bool { queue.isEmpty }
    var count: Int { queue.count }

    mutating func append(_ entry: InboundEntry) { queue.append(entry) }

    /// Removes and returns the front entry if it is ready, else returns nil.
    mutating func popFirst() -> InboundEntry? { queue.popFirst() }

    /// Reserves the next position.
    mutating func reserve() -> Ticket { queue.reserve() }

    /// Fills a reserved position; an empty array removes it.
    mutating func resolve(_ ticket: Ticket, with entries: [InboundEntry]) { queue.resolve(ticket, with: entries) }

    // MARK: Opening

    /// Whether openings wait for the store.
    var isRetrying: Bool { !retried.isEmpty }

    /// An envelope is to be opened for a reserved position.
    ///
    /// One whose line other connections wait for is never kept back, because they would wait too.
    ///
    /// - Returns: whether the vault opens it now; else its job is among ``dueRetries(now:)``.
    mutating func beginOpening(_ open: PendingOpen, at ticket: Ticket, now: Int64) -> Bool {
        opens[ticket] = open
        guard !retried.isEmpty, open.job.line == nil else { return true }
        keepForRetry(ticket, now: now)
        return false
    }

    /// Removes and returns an envelope that the vault has answered. Its position stays reserved until it is resolved.
    mutating func endOpening(_ ticket: Ticket) -> PendingOpen? {
        retried.remove(ticket)
        if retried.isEmpty { pause = Self.retryPause }
        return opens.removeValue(forKey: ticket)
    }

    /// The store has not taken an opening: it is tried again at ``retryAt``.
    ///
    /// - Returns: false if that was tried for long enough.
    mutating func isTriedAgain(_ ticket: Ticket, now: Int64) -> Bool {
        guard var open = opens[ticket] else { return false }
        let since = open.refusedAt ?? now
        guard now - since < Self.retryLimit else { return false }
        open.refusedAt = since
        opens[ticket] = open
        keepForRetry(ticket, now: now)
        return true
    }

    private mutating func keepForRetry(_ ticket: Ticket, now: Int64) {
        retried.insert(ticket)
        refused.append(ticket)
        retryAt = retryAt ?? now + pause
    }

    /// Removes and returns the jobs of the openings that are tried again now.
    mutating func dueRetries(now: Int64) -> [OpenJob] {
        guard let retryAt, retryAt <= now else { return [] }
        // Without the line: connections that waited for a copy of it have been told to open it themselves.
        let jobs = refused.sorted().compactMap { ticket in
            opens[ticket].map { open in
                var job = open.job
                job.line = nil
                return job
            }
        }
        (refused, self.retryAt) = ([], nil)
        pause = min(pause * 2, Self.longestRetryPause)
        return jobs
    }

    // MARK: Copies

    /// Whether messages to rooms have to be postponed.
    var awaitsCopies: Bool { !copies.isEmpty }

    /// Another connection opens this line: its position waits for the copy.
    mutating func awaitCopy(_ copy: PendingCopy, at ticket: Ticket) { copies[ticket] = copy }

    /// Removes and returns a line whose copy has arrived. Its position stays reserved until it is resolved.
    mutating func endAwaiting(_ ticket: Ticket) -> PendingCopy? { copies.removeValue(forKey: ticket) }

    /// Postpones a message until no copy is awaited.
    mutating func postpone(_ message: PostponedOpening) { postponed.append(message) }

    /// Removes and returns the next postponed message; nil if there is none, or copies are awaited.
    mutating func nextPostponed() -> PostponedOpening? { copies.isEmpty ? postponed.popFirst() : nil }

    // MARK: Lines from before a restart

    /// The vault has returned lines that may not have been shown.
    ///
    /// - Parameter isIn: whether the client is in a room.
    mutating func recovered(_ lines: [RecoveredLine], at ticket: Ticket, isIn: (String) -> Bool) {
        let now = lines.filter { $0.room.map(isIn) ?? true }
        queue.resolve(ticket, with: now.map { InboundEntry($0) })
        roomLines += lines.filter { !($0.room.map(isIn) ?? true) }
    }

    /// The client has joined a room: the waiting lines of the room follow.
    mutating func joined(_ room: String) {
        guard !roomLines.isEmpty else { return }
        let isHere: (RecoveredLine) -> Bool = { $0.room.map { ExactText($0) } == ExactText(room) }
        for line in roomLines where isHere(line) { queue.append(InboundEntry(line)) }
        roomLines.removeAll(where: isHere)
    }
}
