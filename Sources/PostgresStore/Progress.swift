// What became of a request, as the row of `queue_progress`, and what changes do to it.

import RequestQueue
import SQLiteQueue
import StorePort

/// A row of `queue_progress`.
struct Progress: Equatable {
    var state: Int64 = 0
    var acceptedAt: Int64 = 0
    var attempts: Int64 = 0
    var crashes: Int64 = 0
    var doubts: Int64 = 0
    var notBefore: Int64 = 0
    /// See `QueuedRequest.hold`.
    var hold: Int64 = 0
    var lease: UInt64?
    var finishedAt: Int64?
    var result: Int64?
    var status: Int64?
    var undelivered: Int64?
    var cause: String?
    /// Whether there is a row of `queue_response`.
    var hasResponse = false

    /// Of a new request.
    init(_ request: QueuedRequest) {
        state = request.state == .inFlight ? 0 : Int64(request.state.rawValue)
        acceptedAt = request.timestamp
        attempts = Int64(request.attempts)
        crashes = Int64(request.crashes)
        doubts = Int64(request.doubts)
        notBefore = request.notBefore
        hold = request.hold
        lease = request.lease
        cause = request.cause
    }

    /// The columns of a row in their order, from a place on.
    static let columns = """
        p.state, p.accepted_at, p.attempts, p.crashes, p.doubts, p.not_before, p.is_held, p.lease, p.finished_at, \
        p.result, p.status, p.undelivered, p.cause
        """

    init(_ row: RowView, from first: Int32) {
        state = row.number(first)
        acceptedAt = row.number(first + 1)
        attempts = row.number(first + 2)
        crashes = row.number(first + 3)
        doubts = row.number(first + 4)
        notBefore = row.number(first + 5)
        hold = row.number(first + 6)
        lease = row.optionalNumber(first + 7).map { UInt64(bitPattern: $0) }
        finishedAt = row.optionalNumber(first + 8)
        result = row.optionalNumber(first + 9)
        status = row.optionalNumber(first + 10)
        undelivered = row.optionalNumber(first + 11)
        cause = row.optionalText(first + 12)
    }

    /// Whether a removal of old requests removes it.
    func isPruned(before: Int64) -> Bool {
        guard let finishedAt else { return false }
        return finishedAt < before && undelivered == nil && state != Int64(RequestState.dead.rawValue)
    }

    // MARK: Changes

    mutating func lease(_ lease: UInt64) {
        guard finishedAt == nil else { return }
        self.lease = lease
        attempts += 1
    }

    mutating func requeue(_ lease: UInt64, _ wait: QueueChange.Wait) {
        guard self.lease == lease else { return }
        self.lease = nil
        (notBefore, attempts, crashes) = (wait.notBefore, Int64(wait.attempts), Int64(wait.crashes))
        (doubts, cause) = (Int64(wait.doubts), wait.cause)
    }

    /// - Returns: whether it was finished by this.
    mutating func finish(
        _ lease: UInt64?, _ outcome: RequestOutcome, _ keeping: QueueChange.Keeping, at time: Int64
    ) -> Bool {
        guard self.lease == lease, finishedAt == nil else { return false }
        self.lease = nil
        state = Int64(outcome.state.rawValue)
        finishedAt = time
        (result, status) = OutcomeColumns.write(outcome.result, isCut: keeping != .result && outcome.isCut)
        undelivered = keeping == .delivery ? 0 : nil
        cause = outcome.cause
        return true
    }

    mutating func quarantine(_ cause: String, at time: Int64) {
        guard finishedAt == nil else { return }
        state = Int64(RequestState.dead.rawValue)
        lease = nil
        finishedAt = time
        self.cause = cause
    }

    /// - Returns: whether it waits again by this.
    mutating func revive(at time: Int64) -> Bool {
        guard state == Int64(RequestState.dead.rawValue) else { return false }
        (state, acceptedAt, attempts, crashes, notBefore, hold) = (0, time, 0, 0, 0, 0)
        (lease, finishedAt, result, status, undelivered, cause) = (nil, nil, nil, nil, nil, nil)
        return true
    }
}
