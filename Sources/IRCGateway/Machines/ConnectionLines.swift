// The lines of a connection in both directions, while its bytes can be read.

import IRCCodec
import NIOCore

/// Splits the bytes of one connection.
struct ConnectionLines {
    var downstream = LineSplitter(limit: IRCLimits.clientTagsLength + IRCLimits.lineLength)
    var upstream = Self.ofBackend
    /// Whether the client has begun TLS with the backend (STARTTLS under `off`), so that the bytes are unreadable.
    private(set) var isOpaque = false

    private static var ofBackend: LineSplitter { LineSplitter(limit: IRCLimits.tagsLength + IRCLimits.lineLength) }

    /// The backend has accepted the client's STARTTLS.
    mutating func becomeOpaque() { isOpaque = true }

    /// The backend was lost: the rest of its last line is of no use.
    mutating func backendLost() { upstream = Self.ofBackend }
}
