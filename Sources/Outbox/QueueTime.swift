package import Protection
package import RequestQueue

extension Timestamp {
    /// The moment as the queue's time.
    package var queueTime: QueueTime { QueueTime(wall: wall, uptime: monotonic / 1_000_000) }
}
