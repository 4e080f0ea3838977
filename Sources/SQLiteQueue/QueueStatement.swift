// The statements of the changes. Their raw values are indexes into a batch's table of prepared statements.

enum QueueStatement: Int, CaseIterable {
    case insertRequest, insertProgress, lease, requeue, finish, insertResponse
    case redeliver, handled, markCut, quarantine, map, hold, rewrite, revive, putSession, removeSession
    case raiseHighest, removeRequest, removeProgress, removeResponse
    case pruneResponses, pruneRequests, pruneProgress, pruneMappings, supersede

    var sql: String {
        switch self {
        case .insertRequest:
            """
            INSERT INTO queue_request (id, token_high, token_low, tenant, lane, idempotency_key, size, form)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
            """
        case .insertProgress:
            """
            INSERT INTO queue_progress
                (id, state, accepted_at, attempts, crashes, doubts, not_before, is_held, lease, cause)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
            """
        case .lease:
            "UPDATE queue_progress SET lease = ?2, attempts = attempts + 1 WHERE id = ?1 AND finished_at IS NULL"
        case .requeue:
            """
            UPDATE queue_progress
            SET lease = NULL, not_before = ?3, attempts = ?4, crashes = ?5, doubts = ?6, cause = ?7
            WHERE id = ?1 AND lease = ?2
            """
        case .finish:
            """
            UPDATE queue_progress
            SET lease = NULL, state = ?3, finished_at = ?4, result = ?5, status = ?6, undelivered = ?7, cause = ?8
            WHERE id = ?1 AND lease IS ?2 AND finished_at IS NULL
            """
        case .insertResponse: "INSERT OR REPLACE INTO queue_response (id, headers, body) VALUES (?1, ?2, ?3)"
        case .redeliver:
            "UPDATE queue_progress SET undelivered = ?2 WHERE id = ?1 AND undelivered IS NOT NULL"
        case .handled: "UPDATE queue_progress SET undelivered = NULL WHERE id = ?1"
        case .markCut: "UPDATE queue_progress SET result = result | \(OutcomeColumns.cut) WHERE id = ?1"
        case .quarantine:
            """
            UPDATE queue_progress SET state = 2, lease = NULL, finished_at = ?2, cause = ?3
            WHERE id = ?1 AND finished_at IS NULL
            """
        case .map:
            "INSERT INTO queue_mapping (tenant, type, local, remote, learnt_at) VALUES (?1, ?2, ?3, ?4, ?5)"
        // 1, or the negative time of the release; see `QueuedRequest.hold`.
        case .hold: "UPDATE queue_progress SET is_held = ?2 WHERE id = ?1"
        case .rewrite: "UPDATE queue_request SET form = ?2 WHERE id = ?1"
        case .revive:
            """
            UPDATE queue_progress
            SET state = 0, accepted_at = ?2, attempts = 0, crashes = 0, not_before = 0, is_held = 0, lease = NULL,
                finished_at = NULL, result = NULL, status = NULL, undelivered = NULL, cause = NULL
            WHERE id = ?1 AND state = 2
            """
        case .putSession: "INSERT OR REPLACE INTO queue_session (tenant, sealed) VALUES (?1, ?2)"
        case .removeSession: "DELETE FROM queue_session WHERE tenant = ?1"
        case .raiseHighest:
            """
            UPDATE queue_meta SET highest = (SELECT max(id) FROM queue_request)
            WHERE highest < (SELECT max(id) FROM queue_request)
            """
        case .removeRequest: "DELETE FROM queue_request WHERE id = ?1"
        case .removeProgress: "DELETE FROM queue_progress WHERE id = ?1"
        case .removeResponse: "DELETE FROM queue_response WHERE id = ?1"
        case .pruneResponses: "DELETE FROM queue_response WHERE id IN (\(Self.pruned))"
        case .pruneRequests: "DELETE FROM queue_request WHERE id IN (\(Self.pruned))"
        case .pruneProgress: "DELETE FROM queue_progress WHERE \(Self.isPruned)"
        case .pruneMappings: "DELETE FROM queue_mapping WHERE learnt_at < ?1"
        case .supersede: "UPDATE queue_meta SET superseded = superseded + 1"
        }
    }

    private static let pruned = "SELECT id FROM queue_progress WHERE \(isPruned)"
    private static let isPruned = "id < ?2 AND finished_at < ?1 AND undelivered IS NULL AND state <> 2"
}
