// The lines of a connection in both directions, while its bytes can be read.

import IRCCodec
import NIOCore

/// Splits the bytes of one connection.
struct ConnectionLines {
    var downstream = LineSplitter(limit: IRCLimits.clientTagsLength + IRCLimits.lineLength)
    var upstream = Self.ofBackend
    /// Bytes of the client that wait until fewer of its messages do; nil if none wait. At most what one read brings,
    /// because the client is not read meanwhile.
    var backlog: ByteBuffer?
    /// Lines of the backend between its acceptance of a registration after an outage and the end of its welcome.
    private var early: [(raw: ByteBuffer, content: Int)] = []
    private var earlyBytes = 0
    /// Whether the client has begun TLS with the backend (STARTTLS under `off`), so that the bytes are unreadable.
    private(set) var isOpaque = false

    private static var ofBackend: LineSplitter { LineSplitter(limit: IRCLimits.tagsLength + IRCLimits.lineLength) }

    /// The backend has accepted the client's STARTTLS.
    mutating func becomeOpaque() { isOpaque = true }

    /// Ours: bytes of early lines that are kept. Servers send few lines before the end of the welcome, if any.
    private static let earlyLimit = 65_536

    /// Keeps a line of the backend until the end of the welcome; returns whether no more may be kept.
    mutating func keepEarly(_ raw: ByteBuffer, _ content: Int) -> Bool {
        // A copy: a slice would keep all that was read with it.
        early.append((ByteBuffer(bytes: raw.readableBytesView), content))
        earlyBytes += raw.readableBytes
        return earlyBytes >= Self.earlyLimit
    }

    /// Removes and returns the early lines.
    mutating func takeEarly() -> [(raw: ByteBuffer, content: Int)] {
        defer { (early, earlyBytes) = ([], 0) }
        return early
    }

    /// Removes and returns the bytes of the client that wait, with later ones behind them.
    mutating func takeBacklog(_ later: ByteBuffer = ByteBuffer()) -> ByteBuffer {
        guard var waiting = backlog else { return later }
        backlog = nil
        waiting.writeImmutableBuffer(later)
        return waiting
    }

    /// The backend was lost: the rest of its last line is of no use.
    mutating func backendLost() { upstream = Self.ofBackend }
}
