// One write to the backend, persisted until the backend has it. This target knows rows, states, order and pacing; it
// knows neither IRC nor sockets nor the database.

/// The states of a request. There is nothing in between: each change is one transaction.
public enum RequestState: UInt8, Sendable, CaseIterable {
    /// Committed, not yet known to be with the backend.
    case pending = 0
    /// With the backend, and opened where that can be known.
    case done = 1
    /// Given up; the reason says why.
    case dead = 2
    /// Its sending has begun, and how it ended is not known yet.
    case inFlight = 3
    /// Nobody wants it any more.
    case cancelled = 4

    /// For people.
    public var name: String {
        switch self {
        case .pending: "pending"
        case .done: "done"
        case .dead: "dead"
        case .inFlight: "in flight"
        case .cancelled: "cancelled"
        }
    }
}

/// A request as it stands in the store. It holds ciphertext only.
package struct Request: Equatable, Sendable {
    /// The local id; also the order in which requests were accepted.
    package var id: UInt64
    /// Whose write it is.
    package var account: String
    /// The account that it is for.
    package var peer: String
    /// The name that the backend knows the peer by, as it was when the request was accepted.
    package var target: String
    /// The verb that carries it.
    package var verb: String
    /// The exact bodies to send, one per line, in their order. A repeated sending repeats these bytes.
    package var bodies: [[UInt8]]
    package var state: RequestState
    /// The id that the backend gave the message, where it gives one.
    package var remoteID: String?
    /// Why it is dead, in words.
    package var reason: String?
    /// When it was accepted, in milliseconds since 1970.
    package var acceptedAt: Int64
    /// How often its sending was begun.
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

    /// The bodies as one blob: each behind its length as two bytes, big-endian.
    package var encodedBodies: [UInt8] {
        var output: [UInt8] = []
        output.reserveCapacity(bodies.reduce(0) { $0 + $1.count + 2 })
        for body in bodies {
            output.append(UInt8(truncatingIfNeeded: body.count >> 8))
            output.append(UInt8(truncatingIfNeeded: body.count))
            output.append(contentsOf: body)
        }
        return output
    }

    /// The reverse of ``encodedBodies``; nothing where the blob is damaged.
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
