/// Names a request to the caller that appended it: sixteen random bytes.
public struct RequestToken: Hashable, Sendable, CustomStringConvertible {
    /// The first eight bytes.
    public let high: UInt64
    /// The last eight bytes.
    public let low: UInt64

    /// A token from two numbers, which are random for a new token.
    public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// A token that holds only the id of a request, for queues whose ids are not secret.
    public init(number: UInt64) { self.init(high: 0, low: number) }

    /// Thirty-two hexadecimal digits.
    public var description: String {
        String(unsafeUninitializedCapacity: 32) { bytes in
            for (place, half) in [high, low].enumerated() {
                for digit in 0..<16 {
                    let value = UInt8(truncatingIfNeeded: half >> UInt64(60 - 4 * digit)) & 15
                    bytes[place * 16 + digit] = value + UInt8(ascii: value < 10 ? "0" : "W")
                }
            }
            return 32
        }
    }

    /// Parses ``description`` and no other form, so that no token has two texts.
    public init?(_ text: String) {
        guard text.utf8.count == 32 else { return nil }
        var halves: (UInt64, UInt64) = (0, 0)
        for (place, byte) in text.utf8.enumerated() {
            let value: UInt8
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = byte - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = byte - UInt8(ascii: "W")
            default: return nil
            }
            if place < 16 { halves.0 = halves.0 << 4 | UInt64(value) } else { halves.1 = halves.1 << 4 | UInt64(value) }
        }
        self.init(high: halves.0, low: halves.1)
    }

    /// Hashes only the low half: it is random, or the id.
    public func hash(into hasher: inout Hasher) { hasher.combine(low) }
}

/// The time on two clocks: the wall clock, which people set, and a monotonic one.
public struct QueueTime: Hashable, Sendable {
    /// Milliseconds since 1970. Stored times use this clock.
    public var wall: Int64
    /// Milliseconds since an arbitrary moment; never goes back. Timers use this clock.
    public var uptime: Int64

    /// One moment, on both clocks.
    public init(wall: Int64, uptime: Int64) { (self.wall, self.uptime) = (wall, uptime) }
}

/// A request to append.
public struct NewRequest: Sendable {
    /// What is to be sent.
    public var payload: RequestPayload
    /// The HTTP request that is to be sent; for a message, the settings under which it is scheduled.
    public var config: APIRequestConfig {
        get { payload.config }
        set { payload = .http(newValue) }
    }
    /// The owner of the request. Bounds and shares are per tenant, and so are identifiers, sessions and idempotency
    /// keys.
    public var tenant: String
    /// The entity that the request is about. Requests of one lane keep their order. Nil for the tenant's common lane.
    public var lane: String?
    /// The entities that the request creates. Requests that name them wait for it.
    public var creates: [EntityReference]
    /// Requests that must be done first, besides the creators of the entities that it names.
    public var dependsOn: [RequestToken]
    /// Data for the response handlers, which the queue does not read. The document's `identifiers`.
    public var identifiers: [UInt8]?
    /// A second request of the tenant with the same key is the same request. Default, also if empty: the token.
    public var idempotencyKey: String?
    /// This request replaces one that waits under the same key.
    public var coalescingKey: String?
    /// Data of the application. It is stored with the request; the queue neither reads nor sends it.
    public var metadata: [UInt8]?

    /// A request; arguments that are left out have the defaults of the fields.
    public init(
        _ config: APIRequestConfig, tenant: String = "", lane: String? = nil, creates: [EntityReference] = [],
        dependsOn: [RequestToken] = [], identifiers: [UInt8]? = nil, idempotencyKey: String? = nil,
        coalescingKey: String? = nil, metadata: [UInt8]? = nil
    ) {
        payload = .http(config)
        self.tenant = tenant
        self.lane = lane
        self.creates = creates
        self.dependsOn = dependsOn
        self.identifiers = identifiers
        self.idempotencyKey = idempotencyKey
        self.coalescingKey = coalescingKey
        self.metadata = metadata
    }

    /// A message for a carried queue.
    public init(_ message: CarriedMessage, tenant: String, lane: String?) {
        self.init(CarriedMessage.schedule, tenant: tenant, lane: lane)
        payload = .message(message)
    }
}

/// A request in the queue and in its store.
public struct QueuedRequest: Sendable, Equatable {
    /// The part that never changes. All copies share it, because a request is passed on many times until it is done.
    final class Content: Sendable, Equatable {
        struct Fields: Sendable, Equatable {
            var token: RequestToken
            var tenant: String
            var lane: String?
            var payload: RequestPayload
            var creates: [EntityReference]
            var dependsOn: [UInt64]
            var identifiers: [UInt8]?
            /// The idempotency key; nil if it is the token.
            var ownKey: String?
            var coalescingKey: String?
            var metadata: [UInt8]?
        }

        let fields: Fields

        init(_ fields: Fields) { self.fields = fields }

        static func == (one: Content, other: Content) -> Bool { one === other || one.fields == other.fields }
    }

    private(set) var content: Content

    /// Rises in the order in which requests were accepted.
    public internal(set) var id: UInt64
    /// Names the request to the caller that appended it.
    public var token: RequestToken { content.fields.token }
    /// The owner of the request.
    public var tenant: String { content.fields.tenant }
    /// The entity that the request is about.
    public var lane: String? { content.fields.lane }
    /// What is to be sent.
    public internal(set) var payload: RequestPayload {
        get { content.fields.payload }
        set { change { $0.payload = newValue } }
    }
    /// The HTTP request that is to be sent; for a message, the settings under which it is scheduled.
    public var config: APIRequestConfig { content.fields.payload.config }
    /// The entities that the request creates.
    public internal(set) var creates: [EntityReference] {
        get { content.fields.creates }
        set { change { $0.creates = newValue } }
    }
    /// Ids of the requests that must be done first.
    public internal(set) var dependsOn: [UInt64] {
        get { content.fields.dependsOn }
        set { change { $0.dependsOn = newValue } }
    }
    /// Data for the response handlers.
    public internal(set) var identifiers: [UInt8]? {
        get { content.fields.identifiers }
        set { change { $0.identifiers = newValue } }
    }
    /// Sent to the backend with each attempt, so that it can detect a repetition. Default: the token.
    public var idempotencyKey: String { content.fields.ownKey ?? token.description }
    /// The idempotency key as it is stored: nil if it is the token.
    package var ownKey: String? { content.fields.ownKey }
    /// A later request with the same key replaces this one while it waits.
    public internal(set) var coalescingKey: String? {
        get { content.fields.coalescingKey }
        set { change { $0.coalescingKey = newValue } }
    }
    /// Data of the application, which the queue neither reads nor sends.
    public package(set) var metadata: [UInt8]? {
        get { content.fields.metadata }
        set { change { $0.metadata = newValue } }
    }
    /// When it was accepted, or last queued again by an operator, in milliseconds since 1970.
    public internal(set) var timestamp: Int64
    /// The current state.
    public internal(set) var state: RequestState = .pending
    /// Number of attempts that have begun, including those that a crash ended.
    public internal(set) var attempts = 0
    /// Crashes in a row with only this request in flight.
    public internal(set) var crashes = 0
    /// Number of attempts that ended without an answer: the backend may have done each of them.
    public internal(set) var doubts = 0
    /// The lease of the attempt in flight; only its holder may report how it ended.
    public internal(set) var lease: UInt64?
    /// Not sent before this time, in milliseconds since 1970.
    public internal(set) var notBefore: Int64 = 0
    /// Whether the request is held.
    public internal(set) var isHeld = false
    /// When it was last released from a hold, in milliseconds since 1970; nil if it was not. Its age counts from then.
    public internal(set) var releasedAt: Int64?
    /// ``isHeld`` and ``releasedAt`` as stores keep them: 1 if it is held, else 0 or the negative time of the release.
    package var hold: Int64 {
        get { isHeld ? 1 : -(releasedAt ?? 0) }
        set {
            isHeld = newValue > 0
            releasedAt = newValue < 0 && newValue > .min ? -newValue : nil
        }
    }
    /// Why the last attempt failed, or why it is dead.
    public internal(set) var cause: String?

    /// Stored size in bytes, which counts against the bounds.
    public internal(set) var size = 0

    /// A request that is read from a store.
    public init(
        id: UInt64, token: RequestToken, tenant: String, lane: String?, payload: RequestPayload,
        creates: [EntityReference], dependsOn: [UInt64], identifiers: [UInt8]?, idempotencyKey: String,
        coalescingKey: String?, metadata: [UInt8]? = nil, timestamp: Int64
    ) {
        self.id = id
        self.timestamp = timestamp
        content = Content(
            .init(
                token: token, tenant: tenant, lane: lane, payload: payload, creates: creates, dependsOn: dependsOn,
                identifiers: identifiers, ownKey: RequestToken(idempotencyKey) == token ? nil : idempotencyKey.nonEmpty,
                coalescingKey: coalescingKey, metadata: metadata))
    }

    /// A new request.
    init(id: UInt64, token: RequestToken, _ new: NewRequest, dependsOn: [UInt64], timestamp: Int64) {
        self.id = id
        self.timestamp = timestamp
        content = Content(
            .init(
                token: token, tenant: new.tenant, lane: new.lane, payload: new.payload, creates: new.creates,
                dependsOn: dependsOn, identifiers: new.identifiers, ownKey: new.idempotencyKey?.nonEmpty,
                coalescingKey: new.coalescingKey, metadata: new.metadata))
    }

    private mutating func change(_ body: (inout Content.Fields) -> Void) {
        var fields = content.fields
        body(&fields)
        content = Content(fields)
    }

    /// Sets the part that changes, as it is stored.
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

extension String {
    fileprivate var nonEmpty: String? { isEmpty ? nil : self }
}
