// When a device that introduces itself again gets a new session.
//
// A device introduces itself again if it cannot open a message. Anybody at the server can cause that with forged messages, and
// anybody can pass an introduction on. Each new session takes the place of one in which messages may be under way, and few
// earlier ones are kept. So a second new session begins only after a pause, which grows.

import Envelope

/// The sessions that were begun after introductions. Times are in nanoseconds of the monotonic clock.
struct SessionRenewals {
    /// Ours: the pause after a session was replaced by a new one; four times as long after each further one. A message that is
    /// under way arrives sooner.
    static let pause: Int64 = 60_000_000_000
    /// Ours: how often the pause grows. The longest one is four hours.
    static let growth = 4
    /// Ours: after so long without a new session the next one is as the first.
    static let memory: Int64 = 86_400_000_000_000
    /// Ours: devices for which entries are kept; as many as there may be peers.
    static let limit = 10_000

    struct Entry {
        /// How often a session was replaced.
        var times: Int
        /// When the last session was begun.
        var at: Int64
    }

    private var begun: [DeviceID: Entry] = [:]

    /// The entry of a device; nil if there is none.
    subscript(device: DeviceID) -> Entry? {
        get { begun[device] }
        set { begun[device] = newValue }
    }

    /// Whether a new session may take the place of the one with a device.
    ///
    /// - Parameter isAnswered: whether the device is known to have the present one.
    func isDue(_ device: DeviceID, isAnswered: Bool, now: Int64) -> Bool {
        guard let last = begun[device] else { return true }
        // The first session may be replaced at once, because the device may have lost it.
        if isAnswered, last.times == 0 { return true }
        return last.at + Self.pause << (2 * Int64(min(max(last.times - 1, 0), Self.growth))) <= now
    }

    /// Notes that a session with a device was begun.
    ///
    /// - Parameter isRenewal: whether it has taken the place of another one.
    mutating func note(_ device: DeviceID, isRenewal: Bool, now: Int64) {
        if begun.count >= Self.limit, begun[device] == nil {
            begun = begun.filter { $0.value.at + Self.memory > now }
            if begun.count >= Self.limit, let first = begun.min(by: { $0.value.at < $1.value.at })?.key {
                begun[first] = nil
            }
        }
        let last = begun[device].flatMap { $0.at + Self.memory > now ? $0.times : nil }
        begun[device] = Entry(times: (last ?? 0) + (isRenewal ? 1 : 0), at: now)
    }
}
