// Entries of the outbound and inbound lanes, and requests that wait for the backend.

package import Envelope
package import IRCCodec
package import NIOCore
package import Protection
import RequestQueue
package import StorePort
import Vault

/// One entry of the outbound lane.
package enum OutboundEntry: Sendable {
    /// A line as the client wrote it, with CR LF.
    case line(ByteBuffer)
    /// A committed request; its lines go out one by one as the pacer allows.
    case request(OutboundRequest)

    /// The request; nil if this is a line.
    var asRequest: OutboundRequest? {
        if case .request(let request) = self { request } else { nil }
    }
}

/// A request that is being sent.
package struct OutboundRequest: Sendable {
    package var request: Request
    /// The sender's text, for the echo; nil for requests from before a restart.
    package var body: Body?
    /// The client's own label, for the answer.
    package var clientLabel: String?
    /// The index of the next body to write.
    package var next = 0
    /// Whether the announcement for readers without a gateway is sent first.
    package var announces = false

    package init(request: Request, body: Body?, clientLabel: String?, announces: Bool = false) {
        self.request = request
        self.body = body
        self.clientLabel = clientLabel
        self.announces = announces
    }
}

/// A line that waits for the client.
package struct InboundEntry: Sendable {
    package var line: ByteBuffer
    /// The delivery number that is complete with this line.
    package var sequence: UInt64?
    /// The message that is shown with this line, for its trace; 0 if the line completes none.
    package var message: UInt64 = 0

    package init(line: ByteBuffer, sequence: UInt64? = nil, message: UInt64 = 0) {
        (self.line, self.sequence, self.message) = (line, sequence, message)
    }

    /// A line from before a restart.
    init(_ recovered: RecoveredLine) {
        self.init(line: ByteBuffer(bytes: recovered.line + [0x0D, 0x0A]), sequence: recovered.sequence)
    }
}

/// An envelope that the vault is opening.
package struct PendingOpen: Sendable {
    /// The folded room of the line; nil if it is not for a room.
    package var room: String?
    /// Whether the backend marks the line as a replay.
    package var isReplay = false
    package var tags: [IRCTag]
    package var source: String
    package var sourceNick: String
    package var verb: String
    package var target: String
    /// The original lines, if the client's own device may have to open them; else empty.
    var raws: [ByteBuffer] = []
    /// What the vault was sent; it is sent again if the store does not take it.
    var job: OpenJob
    /// When the store did not take it for the first time; nil if that has not happened.
    var refusedAt: Int64?
}

/// A message that the vault is sealing.
package struct PendingSeal: Sendable {
    package var target: String
    package var clientLabel: String?
    package var body: Body
    package var peer: AccountID
    package var verb: String
}
