// Ends a thread that waits most of the time.

import Foundation

/// A request to stop, and its confirmation.
final class Stop: @unchecked Sendable {
    // `@unchecked`: the condition guards both values.

    /// Ours: how long a stop waits for its confirmation, in seconds. The database may be away.
    static let limit = 5.0

    private let condition = NSCondition()
    private var isRequested = false
    /// Until when a stop waits, however often it is requested.
    private var end: Date?
    private var isConfirmed = false

    /// Waits for a request.
    ///
    /// - Returns: whether there was one.
    func wait(milliseconds: Int) -> Bool {
        condition.withLock {
            let end = Date(timeIntervalSinceNow: Double(milliseconds) / 1000)
            while !isRequested { guard condition.wait(until: end) else { break } }
            return isRequested
        }
    }

    func request() {
        condition.withLock {
            isRequested = true
            condition.broadcast()
            let end = end ?? Date(timeIntervalSinceNow: Self.limit)
            self.end = end
            while !isConfirmed { guard condition.wait(until: end) else { return } }
        }
    }

    func confirm() {
        condition.withLock {
            isConfirmed = true
            condition.broadcast()
        }
    }
}
