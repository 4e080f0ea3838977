// The push queue as the commit thread and the sender of notices share it. Safe from any thread; nothing waits for the
// sender.

package import Envelope
import Synchronization

/// The notices for devices that are not connected.
package final class PushNotices: Sendable {
    private let queue = Mutex(PushQueue())
    private let wake = Mutex<@Sendable () -> Void>({})

    package init() {}

    /// Sets what is called when a notice may be due earlier than before.
    package func onChange(_ wake: @escaping @Sendable () -> Void) { self.wake.withLock { $0 = wake } }

    package func setToken(_ token: String?, of device: DeviceID) { queue.withLock { $0.setToken(token, of: device) } }

    package func wait(_ devices: some Sequence<DeviceID>, now: Int64) {
        queue.withLock { queue in
            for device in devices { queue.wait(device, now: now) }
        }
        wake.withLock { $0 }()
    }

    package func fetched(_ device: DeviceID) { queue.withLock { $0.fetched(device) } }

    package func take(now: Int64) -> (notices: [PushQueue.Notice], next: Int64?) {
        queue.withLock { $0.take(now: now) }
    }

    /// - Returns: whether the token is to be removed.
    package func ended(
        _ notice: PushQueue.Notice, _ end: PushQueue.End, retryAfter: Int64 = 0, now: Int64
    ) -> Bool {
        let isRemoved = queue.withLock { $0.ended(notice, end, retryAfter: retryAfter, now: now) }
        wake.withLock { $0 }()
        return isRemoved
    }

    /// Devices with a notice that waits, tokens, and what became of notices.
    package var state: (depth: Int, tokens: Int, counts: PushQueue.Counts) {
        queue.withLock { ($0.depth, $0.tokens.count, $0.counts) }
    }
}
