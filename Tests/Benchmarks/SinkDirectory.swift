import Glibc
import NIOCore

/// The capabilities that the sink knows.
struct SinkCapabilities: OptionSet {
    let rawValue: UInt8

    static let messageTags = Self(rawValue: 1 << 0)
    static let echoMessage = Self(rawValue: 1 << 1)
    static let labeledResponse = Self(rawValue: 1 << 2)
    static let batch = Self(rawValue: 1 << 3)
    static let serverTime = Self(rawValue: 1 << 4)
    static let accountTag = Self(rawValue: 1 << 5)
    static let extendedJoin = Self(rawValue: 1 << 6)
    static let all = Self(rawValue: (1 << 7) - 1)

    static let names: [(name: String, capability: Self)] = [
        ("message-tags", .messageTags), ("echo-message", .echoMessage), ("labeled-response", .labeledResponse),
        ("batch", .batch), ("server-time", .serverTime), ("account-tag", .accountTag),
        ("extended-join", .extendedJoin),
    ]

    /// The names, one after another.
    var list: String { Self.names.filter { self.contains($0.capability) }.map(\.name).joined(separator: " ") }
}

/// Who is connected to the sink, and who has bytes to be flushed. Belongs to one event loop.
final class SinkDirectory {
    let offered: SinkCapabilities
    /// Whether a text that the load said is refused when it arrives as it was said.
    let isSealed: Bool
    /// Whether everybody who registers is logged in to an account named as the nick.
    let logsIn: Bool
    /// Who is in which room, by folded name.
    var rooms: [String: [SinkConnection]] = [:]
    private var connections: [String: SinkConnection] = [:]
    private var unflushed: [SinkConnection] = []
    private var second: time_t = 0
    private var date = ""

    init(offered: SinkCapabilities, isSealed: Bool, logsIn: Bool) {
        self.offered = offered
        self.isSealed = isSealed
        self.logsIn = logsIn
    }

    /// The connection with this nick.
    subscript(nick: String) -> SinkConnection? {
        get { self.connections[nick] }
        set { self.connections[nick] = newValue }
    }

    /// Remembers that a connection has bytes to be flushed.
    func owesFlush(_ connection: SinkConnection) {
        self.unflushed.append(connection)
    }

    /// One flush for each connection that something was written to.
    func flush() {
        for connection in self.unflushed {
            connection.flush()
        }
        self.unflushed.removeAll(keepingCapacity: true)
    }

    /// Writes the time as the `time` tag's value.
    func writeTime(to buffer: inout ByteBuffer) {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        if now.tv_sec != self.second || self.date.isEmpty {
            self.second = now.tv_sec
            var parts = tm()
            gmtime_r(&now.tv_sec, &parts)
            self.date =
                "\(parts.tm_year + 1900)-\(Self.two(parts.tm_mon + 1))-\(Self.two(parts.tm_mday))"
                + "T\(Self.two(parts.tm_hour)):\(Self.two(parts.tm_min)):\(Self.two(parts.tm_sec))."
        }
        let milliseconds = now.tv_nsec / 1_000_000
        buffer.writeString(self.date)
        for divisor in [100, 10, 1] {
            buffer.writeInteger(UInt8(48 + milliseconds / divisor % 10))
        }
        buffer.writeInteger(UInt8(ascii: "Z"))
    }

    private static func two(_ number: Int32) -> String {
        number < 10 ? "0\(number)" : "\(number)"
    }
}
