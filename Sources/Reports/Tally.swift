// Counters. Every message is counted exactly once, by its outcome. Labels never name a person or a room.

package import Devices
package import Protection
package import StorePort
import Synchronization

/// The kinds of counted events.
package enum TallyKind: Int, Sendable, CaseIterable {
    // Messages written by people behind the gateway. The sum counts all of them.
    case sentPlaintext, sentGateway, sentDevice, sentExempt
    case refusedOutsider, refusedRequired, refusedRoom, refusedDirectConnection, refusedVerb, refusedLatched,
        refusedChangedKeys, refusedUnsealed, refusedMedia, refusedName, refusedMembers
    case failed
    // Messages for them.
    case openedGateway, openedDevice, deliveredPlaintext, deliveredMarked, withheld
    case openNotAuthentic, openCopy, openTooFarAhead, openMalformed, openUnknownSender, openWrongSource, openKeyMissing,
        openBeforeJoining, openNotInRoom, openStore, openOlderVersion, openNewerVersion, openTooManyPeers,
        openOwnListForked
    case openNotRecipient, openForgotten
    case fragmentsLost, gaps
    // Lines.
    case strippedText, passedText, flagWithoutEnvelope, envelopeWithoutFlag, badLines, unknownFromBackend, unlabelled
    // Stored keys.
    case unreadableSessions
    // Connections.
    case connectionsAccepted, connectionsRefused, upstreamFailures
    // Defects of the gateway.
    case unexpectedEvents

    /// A stable name for scripts and metrics.
    package var name: String {
        switch self {
        case .sentPlaintext: "sent_plaintext"
        case .sentGateway: "sent_gateway"
        case .sentDevice: "sent_device"
        case .sentExempt: "sent_exempt"
        case .refusedOutsider: "refused_outsider"
        case .refusedRequired: "refused_required"
        case .refusedRoom: "refused_room"
        case .refusedDirectConnection: "refused_direct_connection"
        case .refusedVerb: "refused_verb"
        case .refusedLatched: "refused_latched"
        case .refusedUnsealed: "refused_unsealed"
        case .refusedChangedKeys: "refused_changed_keys"
        case .refusedMedia: "refused_media"
        case .refusedName: "refused_name"
        case .refusedMembers: "refused_members"
        case .failed: "failed"
        case .openedGateway: "opened_gateway"
        case .openedDevice: "opened_device"
        case .deliveredPlaintext: "delivered_plaintext"
        case .deliveredMarked: "delivered_marked"
        case .withheld: "withheld"
        case .openNotAuthentic: "open_failed_not_authentic"
        case .openCopy: "open_failed_copy"
        case .openTooFarAhead: "open_failed_too_far_ahead"
        case .openMalformed: "open_failed_malformed"
        case .openUnknownSender: "open_failed_unknown_sender"
        case .openWrongSource: "open_failed_wrong_source"
        case .openKeyMissing: "open_failed_key_missing"
        case .openBeforeJoining: "open_failed_before_joining"
        case .openNotInRoom: "open_failed_not_in_room"
        case .openStore: "open_failed_store"
        case .openOlderVersion: "open_failed_older_version"
        case .openNewerVersion: "open_failed_newer_version"
        case .openNotRecipient: "open_failed_not_recipient"
        case .openForgotten: "open_failed_forgotten"
        case .openTooManyPeers: "open_failed_too_many_peers"
        case .openOwnListForked: "open_failed_own_list_forked"
        case .fragmentsLost: "fragments_lost"
        case .gaps: "gaps"
        case .strippedText: "stripped_text"
        case .passedText: "passed_text"
        case .flagWithoutEnvelope: "flag_without_envelope"
        case .envelopeWithoutFlag: "envelope_without_flag"
        case .badLines: "bad_lines"
        case .unknownFromBackend: "unknown_from_backend"
        case .unlabelled: "unlabelled"
        case .unreadableSessions: "unreadable_sessions"
        case .connectionsAccepted: "connections_accepted"
        case .connectionsRefused: "connections_refused"
        case .upstreamFailures: "upstream_failures"
        case .unexpectedEvents: "unexpected_events"
        }
    }

    package init(_ refusal: Refusal) {
        self =
            switch refusal {
            case .outsider: .refusedOutsider
            case .required: .refusedRequired
            case .room, .notInRoom: .refusedRoom
            case .directConnection: .refusedDirectConnection
            case .verb, .search: .refusedVerb
            case .latched: .refusedLatched
            case .changedKeys: .refusedChangedKeys
            case .unsealed: .refusedUnsealed
            case .media: .refusedMedia
            case .name: .refusedName
            case .members: .refusedMembers
            }
    }

    package init(_ failure: OpenFailure) {
        self =
            switch failure {
            case .notAuthentic: .openNotAuthentic
            case .copy: .openCopy
            case .tooFarAhead: .openTooFarAhead
            case .malformed: .openMalformed
            case .olderVersion: .openOlderVersion
            case .newerVersion: .openNewerVersion
            case .unknownSender: .openUnknownSender
            case .wrongSource: .openWrongSource
            case .keyMissing: .openKeyMissing
            case .beforeJoining: .openBeforeJoining
            case .notInRoom: .openNotInRoom
            case .store, .notCommitted: .openStore
            case .notRecipient: .openNotRecipient
            case .forgotten: .openForgotten
            case .tooManyPeers: .openTooManyPeers
            case .ownListForked: .openOwnListForked
            }
    }
}

/// Counters that all connections share.
package final class Tally: Sendable {
    private let counts = Mutex([Int](repeating: 0, count: TallyKind.allCases.count))
    /// The counts handed to the store, so that only differences are written.
    private let flushed = Mutex([Int](repeating: 0, count: TallyKind.allCases.count))

    package init() {}

    package func add(_ kind: TallyKind, _ amount: Int = 1) {
        counts.withLock { $0[kind.rawValue] += amount }
    }

    package subscript(kind: TallyKind) -> Int { counts.withLock { $0[kind.rawValue] } }

    /// All counters since the process started.
    package var all: [(kind: TallyKind, count: Int)] {
        let values = counts.withLock { $0 }
        return TallyKind.allCases.map { ($0, values[$0.rawValue]) }
    }

    /// The counts that have not been handed to the store yet.
    package var unwritten: [(kind: TallyKind, count: Int)] {
        let values = counts.withLock { $0 }
        let flushed = flushed.withLock { $0 }
        return TallyKind.allCases.map { ($0, values[$0.rawValue] - flushed[$0.rawValue]) }.filter { $0.count > 0 }
    }

    /// Takes back rows that the store could not commit, so that ``rows(at:)`` returns them again.
    package func giveBack(_ changes: [StoreChange]) {
        flushed.withLock { flushed in
            for case .rare(.addTally(let row)) in changes {
                guard let kind = TallyKind.allCases.first(where: { $0.name == row.kind }) else { continue }
                flushed[kind.rawValue] -= row.count
            }
        }
    }

    /// The counts since the last call, as rows of the current hour.
    ///
    /// - Parameter wall: in milliseconds since 1970.
    package func rows(at wall: Int64) -> [StoreChange] {
        let values = counts.withLock { $0 }
        return flushed.withLock { flushed in
            TallyKind.allCases.compactMap { kind in
                let difference = values[kind.rawValue] - flushed[kind.rawValue]
                flushed[kind.rawValue] = values[kind.rawValue]
                guard difference > 0 else { return nil }
                return .addTally(TallyRow(hour: wall / 3_600_000, kind: kind.name, count: difference))
            }
        }
    }
}
