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

    package var isRequest: Bool {
        if case .request = self { return true }
        return false
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
}

/// A message that the vault is sealing.
package struct PendingSeal: Sendable {
    package var target: String
    package var clientLabel: String?
    package var body: Body
    package var peer: AccountID
    package var verb: String
}

/// Requests that were sent to the backend and are not yet acknowledged.
struct OutstandingRequests: Sendable {
    package struct Entry: Sendable {
        package var outbound: OutboundRequest
        /// The folded target, as it appears in error numerics.
        package var target: String
        /// The number of fragments whose echo has not arrived.
        var echoesMissing: Int
        var isLabelled: Bool
        package var failed = false
        /// Numerics that were forwarded once, so that further fragments do not repeat them.
        var repliesShown: Set<Int> = []
    }

    package private(set) var entries: [UInt64: Entry] = [:]
    private var unlabelledTargets: [ExactText: UInt64] = [:]
    /// Batches of the backend that answer a label of the gateway, with the request.
    package var batches: [String: UInt64] = [:]

    package func isBusy(_ target: String) -> Bool { unlabelledTargets[target] != nil }

    package mutating func begin(_ entry: Entry) {
        entries[entry.outbound.request.id] = entry
        if !entry.isLabelled { unlabelledTargets[entry.target] = entry.outbound.request.id }
    }

    package func unlabelled(_ target: String) -> UInt64? { unlabelledTargets[target] }

    subscript(id: UInt64) -> Entry? {
        get { entries[id] }
        set { if entries[id] != nil, let newValue { entries[id] = newValue } }
    }

    @discardableResult
    package mutating func end(_ id: UInt64) -> Entry? {
        guard let entry = entries.removeValue(forKey: id) else { return nil }
        if unlabelledTargets[entry.target] == id { unlabelledTargets[entry.target] = nil }
        return entry
    }

    /// The request with a body from an unlabelled echo; nil if there is none.
    func matching(body: [UInt8]) -> UInt64? {
        entries.first { $0.value.outbound.request.bodies.contains(body) }?.key
    }
}
