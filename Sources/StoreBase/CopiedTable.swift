// The tables of a store as a copy of it knows them: names, columns and values without a meaning, the same in every driver.

/// A value of a row. A text is its UTF-8 bytes.
package enum CopiedValue: Hashable, Sendable {
    case null
    case number(Int64)
    case bytes([UInt8])

    /// Zero if it is no number.
    package var number: Int64 { if case .number(let number) = self { number } else { 0 } }
    /// Empty if it is no text.
    package var bytes: [UInt8] { if case .bytes(let bytes) = self { bytes } else { [] } }
    package var text: String { String(decoding: bytes, as: UTF8.self) }
}

/// The values of a row, in the order of ``CopiedTable/columns``.
package typealias CopiedRow = [CopiedValue]

/// A column of a table.
package struct CopiedColumn: Sendable {
    package enum Kind: Sendable { case number, text, bytes }

    package let name: String
    package let kind: Kind

    fileprivate init(_ name: String, _ kind: Kind) { (self.name, self.kind) = (name, kind) }
}

/// A table that is copied. Devices come before sessions, whose shards follow from the devices' accounts.
package enum CopiedTable: String, CaseIterable, Sendable {
    case policy, device, session, delivery, conversation, record, evidence, observation, tally, audit
    case contentKey = "content_key"
    case queueRequest = "queue_request"
    case queueProgress = "queue_progress"
    case queueResponse = "queue_response"
    case queueMapping = "queue_mapping"
    case queueSession = "queue_session"

    package var columns: [CopiedColumn] {
        switch self {
        case .policy: Self.columns("account text, policy, mac bytes")
        case .device: Self.columns("id, account text, sealed_identity bytes, created_at, mac bytes")
        case .session: Self.columns("owner, peer, fence, sealed_state bytes")
        case .delivery: Self.columns("sequence, account text, sealed_line bytes")
        case .conversation:
            Self.columns(
                """
                first text, second text, latch, since, peer_name_for_first text, peer_name_for_second text, mac bytes
                """)
        case .record: Self.columns("kind, name text, value bytes, mac bytes")
        case .evidence:
            Self.columns("verified, name text, software text, asked, first_seen, last_seen, registrations")
        case .observation: Self.columns("sender text, target text, recipient text, messages, last_seen")
        case .tally: Self.columns("hour, kind text, count")
        // The place in the order, from 1: the numbers of rows differ between drivers.
        case .audit: Self.columns("place, at, actor text, action text, detail text")
        case .contentKey: Self.columns("message, digest bytes, expires_at, sealed_key bytes")
        case .queueRequest:
            Self.columns(
                "id, token_high, token_low, tenant text, lane text, idempotency_key text, size, form bytes")
        case .queueProgress:
            Self.columns(
                """
                id, state, accepted_at, attempts, crashes, doubts, not_before, is_held, lease, finished_at, result, \
                status, undelivered, cause text
                """)
        case .queueResponse: Self.columns("id, headers bytes, body bytes")
        case .queueMapping: Self.columns("place, tenant text, type text, local text, remote text, learnt_at")
        case .queueSession: Self.columns("tenant text, sealed bytes")
        }
    }

    private static func columns(_ text: String) -> [CopiedColumn] {
        text.split(separator: ",").map { word in
            let parts = word.split(separator: " ")
            let kind: CopiedColumn.Kind =
                switch parts.dropFirst().first {
                case "text": .text
                case "bytes": .bytes
                default: .number
                }
            return CopiedColumn(String(parts[0]), kind)
        }
    }
}

/// The highest ids that were ever used; those of removed rows too.
package struct CopiedNumbers: Equatable, Sendable {
    package var request: Int64
    package var message: Int64
    package var delivery: Int64

    package init(request: Int64, message: Int64, delivery: Int64) {
        (self.request, self.message, self.delivery) = (request, message, delivery)
    }
}

/// How many rows a table has, and a digest of them that does not depend on their order.
package struct CopiedDigest: Equatable, Sendable {
    package private(set) var rows = 0
    /// The sum of the rows' SHA-256, in four parts.
    private var parts = SIMD4<UInt64>()

    package init() {}

    package mutating func add(_ row: CopiedRow) {
        rows += 1
        parts &+= Self.digest(row)
    }

    /// Hexadecimal.
    package var text: String {
        (0..<4).map { part in
            let digits = String(parts[part], radix: 16)
            return String(repeating: "0", count: 16 - digits.count) + digits
        }.joined()
    }
}
