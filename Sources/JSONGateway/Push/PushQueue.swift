// Which devices are to be notified by the push hook, and when: a device whose mailbox has got a message that it does not
// fetch within some seconds. A notice has the device's token and nothing of the message. The queue is in memory; it holds
// one notice of a device at most, so many messages make one.
//
// It has no socket and no clock: times are arguments, in nanoseconds of uptime.

package import Envelope

/// The notices that wait for the push hook.
package struct PushQueue: Sendable {
    /// Ours: how long a message waits before its device counts as not connected. A device that is connected fetches at
    /// once; one that changes its network needs some seconds.
    package static let grace: Int64 = 5_000_000_000
    /// Ours: the pause between two notices of a device. A device that was woken fetches all that waits, and push services
    /// throttle apps that they wake more often.
    package static let interval: Int64 = 30_000_000_000
    /// Ours: devices with a notice that waits. More are not notified before their next message.
    package static let limit = 10_000
    /// Ours: notices that are sent at the same time. A hook that is slow delays other notices, and no delivery.
    package static let inFlightLimit = 8
    /// Ours: attempts of one notice, and the pause after the first, doubled each time: the last one is made 21 minutes
    /// after the first.
    package static let attemptLimit = 9
    package static let backoff: Int64 = 5_000_000_000
    /// Ours: how old a message may be for which a device is notified after a restart, in milliseconds: as long as the
    /// attempts go on.
    package static let life: Int64 = 21 * 60_000

    /// A notice to be sent now.
    package struct Notice: Equatable, Sendable {
        package var device: DeviceID
        package var token: String

        package init(device: DeviceID, token: String) { (self.device, self.token) = (device, token) }
    }

    /// How an attempt ended.
    package enum End: Equatable, Sendable {
        case delivered
        /// It may succeed later.
        case failed
        /// The hook will not take this notice.
        case refused
        /// The token is not valid any more.
        case gone
    }

    /// What became of notices, since the start.
    package struct Counts: Equatable, Sendable {
        package var delivered = 0
        /// Attempts that were followed by another.
        package var retried = 0
        /// Notices that were given up: refused, or after the last attempt.
        package var givenUp = 0
        package var gone = 0
        /// Notices for which there was no room.
        package var dropped = 0
    }

    private struct Entry {
        /// Nil if nothing waits: the entry keeps the time of the last notice.
        var due: Int64?
        var attempts = 0
        var isInFlight = false
        /// Whether a message has come since the attempt began.
        var hasMore = false
        /// No notice is sent before.
        var quietUntil = Int64.min

        func isOfUse(at now: Int64) -> Bool { due != nil || isInFlight || quietUntil > now }
    }

    /// Ours: the pause between two looks through a full queue for entries that are of no use any more.
    private static let cleaningPause: Int64 = 1_000_000_000

    private var entries: [DeviceID: Entry] = [:]
    private var cleansAt = Int64.min
    package private(set) var tokens: [DeviceID: String] = [:]
    package private(set) var counts = Counts()

    package init() {}

    /// Devices with a notice that waits or is being sent.
    package var depth: Int { entries.values.count { $0.due != nil } }

    package mutating func setToken(_ token: String?, of device: DeviceID) {
        tokens[device] = token
        if token == nil { entries[device] = nil }
    }

    /// Notes that a message waits for a device.
    package mutating func wait(_ device: DeviceID, now: Int64) {
        guard tokens[device] != nil else { return }
        if entries[device]?.isInFlight == true { entries[device]?.hasMore = true }
        guard entries[device]?.due == nil else { return }
        if entries[device] == nil, entries.count >= Self.limit, now >= cleansAt {
            entries = entries.filter { $0.value.isOfUse(at: now) }
            cleansAt = now + Self.cleaningPause
        }
        guard entries[device] != nil || entries.count < Self.limit else { return counts.dropped += 1 }
        let quietUntil = entries[device]?.quietUntil ?? .min
        entries[device, default: Entry()].due = max(now + Self.grace, quietUntil)
        entries[device]?.attempts = 0
    }

    /// Notes that a device has fetched what waits.
    package mutating func fetched(_ device: DeviceID) {
        entries[device]?.due = nil
        entries[device]?.hasMore = false
    }

    /// The notices that are due, and when the next ones are; nil if none wait.
    package mutating func take(now: Int64) -> (notices: [Notice], next: Int64?) {
        var (due, next, inFlight): ([(at: Int64, device: DeviceID)], Int64?, Int) = ([], nil, 0)
        for (device, entry) in entries {
            if entry.isInFlight {
                inFlight += 1
            } else if let at = entry.due {
                if at <= now { due.append((at, device)) } else { next = min(next ?? .max, at) }
            }
        }
        // If there is no room, the end of one that is being sent asks again.
        let notices = due.sorted { ($0.at, $0.device) < ($1.at, $1.device) }.prefix(
            max(Self.inFlightLimit - inFlight, 0)
        )
        .compactMap { entry in tokens[entry.device].map { Notice(device: entry.device, token: $0) } }
        for notice in notices {
            entries[notice.device]?.isInFlight = true
            entries[notice.device]?.hasMore = false
            entries[notice.device]?.attempts += 1
        }
        return (notices, next)
    }

    /// Notes the end of an attempt.
    ///
    /// - Parameter retryAfter: the pause that the hook asks for, in nanoseconds.
    /// - Returns: whether the token is to be removed.
    package mutating func ended(_ notice: Notice, _ end: End, retryAfter: Int64 = 0, now: Int64) -> Bool {
        let isCurrent = tokens[notice.device] == notice.token
        entries[notice.device]?.isInFlight = false
        switch end {
        case .delivered:
            counts.delivered += 1
            finish(notice.device, now: now)
        case .gone:
            counts.gone += 1
            if isCurrent { entries[notice.device] = nil }
            return isCurrent
        case .failed, .refused:
            let attempts = entries[notice.device]?.attempts ?? Self.attemptLimit
            // A device that has fetched meanwhile needs no notice.
            guard entries[notice.device]?.due != nil else { return false }
            guard end == .failed, attempts < Self.attemptLimit else {
                counts.givenUp += 1
                finish(notice.device, now: now)
                return false
            }
            counts.retried += 1
            let pause = max(Self.backoff << Int64(attempts - 1), min(retryAfter, Self.life * 1_000_000))
            entries[notice.device]?.due = now + pause
        }
        return false
    }

    /// Ends a notice. A message that has come since its attempt began has another one, after the pause.
    private mutating func finish(_ device: DeviceID, now: Int64) {
        guard var entry = entries[device] else { return }
        entry.quietUntil = now + Self.interval
        entry.due = entry.hasMore ? entry.quietUntil : nil
        (entry.attempts, entry.hasMore) = (0, false)
        entries[device] = entry
    }
}
