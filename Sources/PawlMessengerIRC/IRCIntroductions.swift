// Who is sent an announcement or this device's keys, and how often. The limits are those of a sidecar.

import PawlMessenger

/// The key exchanges of one messenger. Times are in nanoseconds.
struct IRCIntroductions {
    /// Ours: nicks that are remembered; a server that invents people must not fill memory.
    static let nickLimit = 10_000
    /// Ours: the period of the limits below. An introduction has about eight lines.
    static let period: Int64 = 60_000_000_000
    static let perNick = 4
    static let limit = 30
    /// Ours: the pause before the first repeated announcement or unasked introduction; then four times as long each time.
    static let pause: Int64 = 60_000_000_000

    private var announced: [Username: (times: Int64, at: Int64)] = [:]
    private var offered: [Username: (times: Int64, at: Int64)] = [:]
    private var introduced: [(nick: Username, at: Int64)] = []

    /// Whether an announcement to a nick is due; if so, counts it.
    mutating func isAnnouncementDue(to nick: Username, now: Int64) -> Bool {
        // A message to a service is a command, perhaps with a password as its last word.
        guard !nick.raw.hasSuffix("serv") else { return false }
        return Self.isDue(nick, &announced, now)
    }

    /// Whether this device's keys may be sent to a nick now; if so, counts it.
    ///
    /// - Parameter isAsked: whether the nick has shown that it needs them.
    mutating func isIntroductionDue(to nick: Username, isAsked: Bool, now: Int64) -> Bool {
        introduced.removeAll { $0.at + Self.period <= now }
        guard introduced.count < Self.limit, introduced.count(where: { $0.nick == nick }) < Self.perNick,
            isAsked || Self.isDue(nick, &offered, now)
        else { return false }
        introduced.append((nick, now))
        return true
    }

    private static func isDue(
        _ nick: Username, _ table: inout [Username: (times: Int64, at: Int64)], _ now: Int64
    ) -> Bool {
        let last = table[nick]
        if let last, last.at + pause << (2 * min(last.times - 1, 8)) > now { return false }
        if table.count >= nickLimit { table.removeAll() }
        table[nick] = ((last?.times ?? 0) + 1, now)
        return true
    }
}
