// Reads of the queue's tables: at the start, and for reports. Reports use connections of their own and one snapshot, so
// that they never delay the writer.

import Envelope
import GRDB
import Protection
package import RequestQueue
import SQLiteKit
import SQLiteQueue
import StoreBase
package import StorePort

extension SQLiteStore {
    package var queueTables: any QueueReading { StoredQueue(store: self) }

    package func requests(states: [RequestState], limit: Int) throws(StoreError) -> [Request] {
        let states = states + (states.contains(.pending) ? [.inFlight] : [])
        return try translating(files.store) {
            try pool.read { database in
                let queue = QueueReader(database)
                let rows = try queue.stored(states: states, after: 0, limit: limit)
                let names = try rows.isEmpty ? [:] : queue.remotes(of: Request.message)
                return rows.compactMap { Request($0, finishedAt: $1, remoteID: names["\($0.id)"]) }
            }
        }
    }

    package func request(_ id: UInt64) throws(StoreError) -> Request? {
        try translating(files.store) {
            try pool.read { database in
                let queue = QueueReader(database)
                guard let (request, finishedAt) = try queue.stored(id) else { return nil }
                let names = try queue.remotes(of: Request.message, local: "\(id)")
                return Request(request, finishedAt: finishedAt, remoteID: names["\(id)"])
            }
        }
    }

    package func requestCounts() throws(StoreError) -> [RequestState: Int] {
        let counts = try report("SELECT state, count(*) FROM queue_progress GROUP BY state") { row in
            (RequestState(rawValue: UInt8(clamping: row.number(0))) ?? .dead, Int(row.number(1)))
        }
        return Dictionary(counts) { $0 + $1 }
    }
}
