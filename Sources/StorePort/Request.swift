// One message on its way to a chat backend, and its conversion to and from a queued request.

package import RequestQueue

/// A request in the store. It holds ciphertext only.
package struct Request: Equatable, Sendable {
    /// The local id; also the order in which requests were accepted.
    package var id: UInt64
    /// The sender's account.
    package var account: String
    /// The recipient's account.
    package var peer: String
    /// The peer's name at the backend when the request was accepted.
    package var target: String
    /// The verb that carries it.
    package var verb: String
    /// The exact bodies to send, one per line, in order. A retry sends the same bytes.
    package var bodies: [[UInt8]]
    /// Pending until it is done or dead, also while it is in flight.
    package var state: RequestState
    /// The id that the backend assigned to the message; nil if it assigned none.
    package var remoteID: String?
    /// Why it is dead, as a text for people.
    package var reason: String?
    /// When it was accepted, in milliseconds since 1970.
    package var acceptedAt: Int64
    /// How many attempts to send it have begun.
    package var attempts: Int
    /// When it became done or dead, in milliseconds since 1970.
    package var finishedAt: Int64?

    package init(
        id: UInt64, account: String, peer: String, target: String, verb: String, bodies: [[UInt8]],
        state: RequestState = .pending, remoteID: String? = nil, reason: String? = nil, acceptedAt: Int64,
        attempts: Int = 0, finishedAt: Int64? = nil
    ) {
        self.id = id
        self.account = account
        self.peer = peer
        self.target = target
        self.verb = verb
        self.bodies = bodies
        self.state = state
        self.remoteID = remoteID
        self.reason = reason
        self.acceptedAt = acceptedAt
        self.attempts = attempts
        self.finishedAt = finishedAt
    }

    /// The type of the entity that a request creates, for the backend's ids.
    package static let message = "message"

    /// The request's token in the queue, made from its number.
    package static func token(_ id: UInt64) -> RequestToken { RequestToken(number: id) }

    /// The request for the queue. Messages to one peer are in one lane.
    package var queued: NewRequest {
        NewRequest(CarriedMessage(kind: verb, target: target, parts: bodies), tenant: account, lane: peer)
    }

    /// The configuration of a queued request until stored form 4, an invented HTTP request.
    package static func config(target: String, verb: String, encodedBodies: [UInt8]) -> APIRequestConfig {
        APIRequestConfig(
            method: .post, path: APIRequestPath([.text(target)]), body: .rawData(encodedBodies),
            includeSessionKey: false, tag: verb,
            queueingStrategy: QueueingStrategy(synchronization: .concurrent, retryPolicy: []), background: false)
    }

    /// Converts a queued request; nil if it is no request of a chat protocol.
    package init?(_ queued: QueuedRequest, finishedAt: Int64? = nil, remoteID: String? = nil) {
        guard let message = Self.message(queued.payload) else { return nil }
        self.init(
            id: queued.id, account: queued.tenant, peer: queued.lane ?? "", target: message.target,
            verb: message.kind, bodies: message.parts,
            state: queued.state == .inFlight ? .pending : queued.state, remoteID: remoteID, reason: queued.cause,
            acceptedAt: queued.timestamp, attempts: queued.attempts, finishedAt: finishedAt)
    }

    private static func message(_ payload: RequestPayload) -> CarriedMessage? {
        switch payload {
        case .message(let message): return message
        case .http(let config):
            // A request over HTTP has no tag, and needs a credential.
            guard let verb = config.tag, !config.includeSessionKey else { return nil }
            var (target, blob) = ("", [UInt8]())
            if case .text(let text)? = config.path.segments.first { target = text }
            if case .rawData(let data)? = config.body { blob = data }
            return decodeBodies(blob).map { CarriedMessage(kind: verb, target: target, parts: $0) }
        }
    }

    /// Reads bodies from one blob, as they were stored until form 4: each is preceded by its length as two bytes,
    /// big-endian. Nil if the blob is damaged.
    package static func decodeBodies(_ bytes: [UInt8]) -> [[UInt8]]? {
        var bodies: [[UInt8]] = []
        var position = 0
        while position < bytes.count {
            guard position + 2 <= bytes.count else { return nil }
            let count = Int(bytes[position]) << 8 | Int(bytes[position + 1])
            position += 2
            guard position + count <= bytes.count else { return nil }
            bodies.append(Array(bytes[position..<(position + count)]))
            position += count
        }
        return bodies
    }
}
