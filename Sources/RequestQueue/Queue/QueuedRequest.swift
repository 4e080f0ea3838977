/// Sixteen random bytes that name a request to whoever appended it.
public struct RequestToken: Hashable, Sendable, CustomStringConvertible {
    /// The first eight bytes.
    public let high: UInt64
    /// The last eight bytes.
    public let low: UInt64

    /// From two numbers, which whoever makes a new one draws at random.
    public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// The name of a request that its number is enough to find; for queues whose numbers are nobody's secret.
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

    /// The reverse of ``description``, and nothing else: no token has two texts.
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

    /// Half of it is enough: it is random.
    public func hash(into hasher: inout Hasher) { hasher.combine(low) }
}

/// Two clocks: one that people set, and one that only goes on.
public struct QueueTime: Hashable, Sendable {
    /// Milliseconds since 1970. What is stored is in this.
    public var wall: Int64
    /// Milliseconds since some moment; never goes back. What is waited for is in this.
    public var uptime: Int64

    /// One moment, on both clocks.
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
    /// A second request of the tenant with the same key is the same request. Default, and for an empty one: one of its own.
    public var idempotencyKey: String?
    /// A request that waits under the same key is replaced by this one.
    public var coalescingKey: String?

    /// What is not said is as the fields have it by default.
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
    /// What was accepted and never changes. It is shared by all copies: a request is handed on many times until it is done.
    final class Content: Sendable, Equatable {
        struct Fields: Sendable, Equatable {
            var token: RequestToken
            var tenant: String
            var lane: String?
            var config: APIRequestConfig
            var creates: [EntityReference]
            var dependsOn: [UInt64]
            var identifiers: [UInt8]?
            /// The idempotency key where it is not the token.
            var ownKey: String?
            var coalescingKey: String?
        }

        let fields: Fields

        init(_ fields: Fields) { self.fields = fields }

        static func == (one: Content, other: Content) -> Bool { one === other || one.fields == other.fields }
    }

    private(set) var content: Content

    /// The order in which requests were accepted.
    public internal(set) var id: UInt64
    /// Its name for whoever appended it.
    public var token: RequestToken { content.fields.token }
    /// Whose request it is.
    public var tenant: String { content.fields.tenant }
    /// The entity that it is about.
    public var lane: String? { content.fields.lane }
    /// What is to be sent.
    public internal(set) var config: APIRequestConfig {
        get { content.fields.config }
        set { change { $0.config = newValue } }
    }
    /// The entities that it brings into being.
    public internal(set) var creates: [EntityReference] {
        get { content.fields.creates }
        set { change { $0.creates = newValue } }
    }
    /// The requests that have to be done before.
    public internal(set) var dependsOn: [UInt64] {
        get { content.fields.dependsOn }
        set { change { $0.dependsOn = newValue } }
    }
    /// For the response handlers.
    public internal(set) var identifiers: [UInt8]? {
        get { content.fields.identifiers }
        set { change { $0.identifiers = newValue } }
    }
    /// Said to the backend with each attempt, so that it can tell a repetition. Where nobody has chosen one it is the token.
    public var idempotencyKey: String { content.fields.ownKey ?? token.description }
    /// The idempotency key as a store keeps it: nothing where it is the token.
    package var ownKey: String? { content.fields.ownKey }
    /// Under which key it is replaced while it waits.
    public internal(set) var coalescingKey: String? {
        get { content.fields.coalescingKey }
        set { change { $0.coalescingKey = newValue } }
    }
    /// When it was accepted, in milliseconds since 1970.
    public internal(set) var timestamp: Int64
    /// What has become of it.
    public internal(set) var state: RequestState = .pending
    /// How often its sending was begun, crashes included.
    public internal(set) var attempts = 0
    /// How often in a row a process ended while it alone was under way.
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
        self.timestamp = timestamp
        content = Content(
            .init(
                token: token, tenant: tenant, lane: lane, config: config, creates: creates, dependsOn: dependsOn,
                identifiers: identifiers, ownKey: RequestToken(idempotencyKey) == token ? nil : idempotencyKey.nonEmpty,
                coalescingKey: coalescingKey))
    }

    /// One that is new.
    init(id: UInt64, token: RequestToken, _ new: NewRequest, dependsOn: [UInt64], timestamp: Int64) {
        self.id = id
        self.timestamp = timestamp
        content = Content(
            .init(
                token: token, tenant: new.tenant, lane: new.lane, config: new.config, creates: new.creates,
                dependsOn: dependsOn, identifiers: new.identifiers, ownKey: new.idempotencyKey?.nonEmpty,
                coalescingKey: new.coalescingKey))
    }

    private mutating func change(_ body: (inout Content.Fields) -> Void) {
        var fields = content.fields
        body(&fields)
        content = Content(fields)
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

extension String {
    fileprivate var nonEmpty: String? { isEmpty ? nil : self }
}
