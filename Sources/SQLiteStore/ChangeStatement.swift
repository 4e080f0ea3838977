// The statements of the changes. Their raw values are indexes into a batch's table of prepared statements.

/// A statement that changes rows.
enum ChangeStatement: Int, CaseIterable {
    case putDevice, putSession, readFence, removeSessionsOfOwner, removeSessionsOfPeer
    case insertDelivery, removeDelivery
    case putConversation, removeConversation
    case forgetSessionsOfOwner, forgetSessionsOfPeer, forgetDevices, forgetConversationsAsFirst
    case forgetConversationsAsSecond, forgetDeliveries
    case addEvidence, countEvidence, evictEvidence, addObservation, countObservations, evictObservations
    case addTally, setPolicy, removePolicy, audit, raiseHighest, putRecord, removeRecord
    case putContentKey, pruneExpiredKeys, pruneEarlyKeys

    var sql: String {
        switch self {
        case .putDevice:
            "INSERT OR REPLACE INTO device (id, account, sealed_identity, created_at) VALUES (?1, ?2, ?3, ?4)"
        case .putSession:
            """
            INSERT INTO session (owner, peer, fence, sealed_state) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (owner, peer) DO UPDATE SET fence = excluded.fence, sealed_state = excluded.sealed_state
            WHERE excluded.fence > fence
            """
        case .readFence: "SELECT fence FROM session WHERE owner = ?1 AND peer = ?2"
        case .removeSessionsOfOwner: "DELETE FROM session WHERE owner = ?1"
        case .removeSessionsOfPeer: "DELETE FROM session WHERE peer = ?1"
        case .insertDelivery: "INSERT OR REPLACE INTO delivery (sequence, account, sealed_line) VALUES (?1, ?2, ?3)"
        case .removeDelivery: "DELETE FROM delivery WHERE sequence = ?1"
        case .putConversation:
            """
            INSERT OR REPLACE INTO conversation
                (first, second, latch, since, peer_name_for_first, peer_name_for_second)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            """
        case .removeConversation: "DELETE FROM conversation WHERE first = ?1 AND second = ?2"
        case .forgetSessionsOfOwner:
            "DELETE FROM session WHERE owner IN (SELECT id FROM device WHERE account = ?1)"
        case .forgetSessionsOfPeer: "DELETE FROM session WHERE peer IN (SELECT id FROM device WHERE account = ?1)"
        case .forgetDevices: "DELETE FROM device WHERE account = ?1"
        case .forgetConversationsAsFirst: "DELETE FROM conversation WHERE first = ?1"
        case .forgetConversationsAsSecond: "DELETE FROM conversation WHERE second = ?1"
        case .forgetDeliveries: "DELETE FROM delivery WHERE account = ?1"
        case .addEvidence:
            """
            INSERT INTO evidence (verified, name, software, asked, first_seen, last_seen, registrations)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            ON CONFLICT (verified, name, software) DO UPDATE SET asked = asked OR excluded.asked,
                last_seen = max(last_seen, excluded.last_seen), registrations = registrations + excluded.registrations
            """
        case .countEvidence: "SELECT count(*) FROM evidence"
        case .evictEvidence:
            """
            DELETE FROM evidence
            WHERE id IN (SELECT id FROM evidence ORDER BY verified, last_seen LIMIT ?1)
            """
        case .addObservation:
            """
            INSERT INTO observation (sender, target, recipient, messages, last_seen) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT (sender, target, recipient) DO UPDATE SET messages = messages + excluded.messages,
                last_seen = excluded.last_seen
            """
        case .countObservations: "SELECT count(*) FROM observation"
        case .evictObservations:
            "DELETE FROM observation WHERE id IN (SELECT id FROM observation ORDER BY last_seen LIMIT ?1)"
        case .addTally:
            """
            INSERT INTO tally (hour, kind, count) VALUES (?1, ?2, ?3)
            ON CONFLICT (hour, kind) DO UPDATE SET count = count + excluded.count
            """
        case .setPolicy: "INSERT OR REPLACE INTO policy (account, policy) VALUES (?1, ?2)"
        case .removePolicy: "DELETE FROM policy WHERE account = ?1"
        case .audit: "INSERT INTO audit (at, actor, action, detail) VALUES (?1, ?2, ?3, ?4)"
        case .putRecord: "INSERT OR REPLACE INTO record (kind, name, value) VALUES (?1, ?2, ?3)"
        case .removeRecord: "DELETE FROM record WHERE kind = ?1 AND name = ?2"
        case .putContentKey:
            "INSERT OR REPLACE INTO content_key (message, digest, expires_at, sealed_key) VALUES (?1, ?2, ?3, ?4)"
        case .pruneExpiredKeys:
            """
            DELETE FROM content_key WHERE (message, digest) IN
                (SELECT message, digest FROM content_key WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)
            """
        case .pruneEarlyKeys:
            """
            DELETE FROM content_key WHERE (message, digest) IN
                (SELECT message, digest FROM content_key WHERE message < ?1 ORDER BY message LIMIT ?2)
            """
        case .raiseHighest:
            """
            UPDATE meta SET highest_request = max(highest_request, ?1), highest_delivery = max(highest_delivery, ?2)
            WHERE id = 1
            """
        }
    }
}
