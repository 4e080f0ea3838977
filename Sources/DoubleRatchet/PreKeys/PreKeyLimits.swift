/// Lifetimes and numbers of prekeys. All times are milliseconds of the caller's clock.
public struct PreKeyLimits: Hashable, Sendable {
    /// How long a signed prekey and a last-resort KEM prekey are published. A week, as in Signal's clients: a stolen
    /// key opens the first messages of one week only.
    public var rotation: Int64 = 7 * 86_400_000
    /// How long after creation signed and KEM prekeys start sessions, for bundles read earlier and delayed first
    /// messages. Later ones are refused; the next rotation removes them. PQXDH, section 3.2.
    public var lifetime: Int64 = 30 * 86_400_000
    /// Unused one-time prekeys, published or not. Beyond the limit the oldest are dropped: a reader that requests
    /// bundles without end invalidates old keys, but does not fill the store.
    public var oneTime = 500
    /// Unused one-time KEM prekeys. Fewer, because each takes 1710 bytes.
    public var oneTimeKEM = 100
    /// The number that a directory holds after replenishment.
    public var published = 50
    /// A directory that has fewer left is replenished: half of ``published``, so that a busy hour does not use up all.
    public var lowWatermark = 25
    /// Stored marks of sessions that started without any one-time key, so that a copy of a first message starts none.
    /// They are kept for ``lifetime``. While the limit is reached, only one-time keys start sessions.
    public var begun = 1000
    /// Whether a first message must use a one-time prekey. If so, no marks are needed.
    public var needsOneTimePreKey = false

    /// The default limits.
    public init() {}
}
