/// Sixteen random bytes that name a request to whoever appended it.
public struct RequestToken: Hashable, Sendable, CustomStringConvertible {
    /// The first eight bytes.
    public let high: UInt64
    /// The last eight bytes.
    public let low: UInt64

    /// Makes one.
    public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// Thirty-two hexadecimal digits.
    public var description: String {
        [high, low].map { half in
            let digits = String(half, radix: 16)
            return String(repeating: "0", count: 16 - digits.count) + digits
        }.joined()
    }

    /// The reverse of ``description``.
    public init?(_ text: String) {
        guard text.utf8.count == 32, let high = UInt64(text.prefix(16), radix: 16),
            let low = UInt64(text.suffix(16), radix: 16)
        else { return nil }
        self.init(high: high, low: low)
    }
}

/// Two clocks: one that people set, and one that only goes on.
public struct QueueTime: Hashable, Sendable {
    /// Milliseconds since 1970. What is stored is in this.
    public var wall: Int64
    /// Milliseconds since some moment; never goes back. What is waited for is in this.
    public var uptime: Int64

    /// Makes one.
    public init(wall: Int64, uptime: Int64) { (self.wall, self.uptime) = (wall, uptime) }
}

/// What somebody wants to have sent.
public struct NewRequest: Sendable {
    /// What is to be sent.
    public var config: APIRequestConfig
    /// Whose request it is: bounds and shares are per tenant, and so are identifiers, sessions and idempotency keys.
    public var tenant: String
    /// The entity that it is about: requests of one lane stand in order. Nothing means the tenant's common lane.
    public var lane: String?
    /// The entities that it brings into being. Requests that name them wait for it.
    public var creates: [EntityReference]
    /// Requests that have to be done before, besides those that its references name.
    public var dependsOn: [RequestToken]
    /// For the response handlers; not looked at. The document's `identifiers`.
    public var identifiers: [UInt8]?
    /// A second request of the tenant with the same key is the same request. Default: one of its own.
    public var idempotencyKey: String?
    /// A request that waits under the same key is replaced by this one.
    public var coalescingKey: String?

    /// Makes one.
    public init(
        _ config: APIRequestConfig, tenant: String = "", lane: String? = nil, creates: [EntityReference] = [],
        dependsOn: [RequestToken] = [], identifiers: [UInt8]? = nil, idempotencyKey: String? = nil,
        coalescingKey: String? = nil
    ) {
        self.config = config
        self.tenant = tenant
        self.lane = lane
        self.creates = creates
        self.dependsOn = dependsOn
        self.identifiers = identifiers
        self.idempotencyKey = idempotencyKey
        self.coalescingKey = coalescingKey
    }
}

/// A request as it stands in the queue and in its store.
public struct QueuedRequest: Sendable, Equatable {
    /// The order in which requests were accepted.
    public internal(set) var id: UInt64
    /// Its name for whoever appended it.
    public internal(set) var token: RequestToken
    /// Whose request it is.
    public internal(set) var tenant: String
    /// The entity that it is about.
    public internal(set) var lane: String?
    /// What is to be sent.
    public internal(set) var config: APIRequestConfig
    /// The entities that it brings into being.
    public internal(set) var creates: [EntityReference]
    /// The requests that have to be done before.
    public internal(set) var dependsOn: [UInt64]
    /// For the response handlers.
    public internal(set) var identifiers: [UInt8]?
    /// Said to the backend with each attempt, so that it can tell a repetition.
    public internal(set) var idempotencyKey: String
    /// Under which key it is replaced while it waits.
    public internal(set) var coalescingKey: String?
    /// When it was accepted, in milliseconds since 1970.
    public internal(set) var timestamp: Int64
    /// What has become of it.
    public internal(set) var state: RequestState = .pending
    /// How often its sending was begun, crashes included.
    public internal(set) var attempts = 0
    /// How often a process ended while it was under way.
    public internal(set) var crashes = 0
    /// How many attempts ended without an answer: the backend may have done each of them.
    public internal(set) var doubts = 0
    /// Who may say how the attempt that is under way has ended.
    public internal(set) var lease: UInt64?
    /// Not sent before this time, in milliseconds since 1970.
    public internal(set) var notBefore: Int64 = 0
    /// An operator keeps it back.
    public internal(set) var isHeld = false
    /// Why the last attempt failed, or why it is dead.
    public internal(set) var cause: String?

    /// What it is counted with against the bounds: bytes of what is stored.
    public internal(set) var size = 0

    /// As it is made by somebody who reads it from a store.
    public init(
        id: UInt64, token: RequestToken, tenant: String, lane: String?, config: APIRequestConfig,
        creates: [EntityReference], dependsOn: [UInt64], identifiers: [UInt8]?, idempotencyKey: String,
        coalescingKey: String?, timestamp: Int64
    ) {
        self.id = id
        self.token = token
        self.tenant = tenant
        self.lane = lane
        self.config = config
        self.creates = creates
        self.dependsOn = dependsOn
        self.identifiers = identifiers
        self.idempotencyKey = idempotencyKey
        self.coalescingKey = coalescingKey
        self.timestamp = timestamp
    }

    /// What is known of it besides, as a store has it.
    public mutating func setProgress(
        state: RequestState, attempts: Int, crashes: Int, doubts: Int, lease: UInt64?, notBefore: Int64, isHeld: Bool,
        cause: String?, size: Int
    ) {
        self.state = state
        self.attempts = attempts
        self.crashes = crashes
        self.doubts = doubts
        self.lease = lease
        self.notBefore = notBefore
        self.isHeld = isHeld
        self.cause = cause
        self.size = size
    }
}

extension RequestState {
    /// Whether nothing more will become of it.
    public var isFinal: Bool { self == .done || self == .dead || self == .cancelled }
}
