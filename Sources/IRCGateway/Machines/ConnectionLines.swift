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
    /// Whether the client has begun TLS with the backend (STARTTLS under `off`), so that the bytes are unreadable.
    private(set) var isOpaque = false

    private static var ofBackend: LineSplitter { LineSplitter(limit: IRCLimits.tagsLength + IRCLimits.lineLength) }

    /// The backend has accepted the client's STARTTLS.
    mutating func becomeOpaque() { isOpaque = true }

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
