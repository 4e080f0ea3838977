/// How long prekeys live and how many there are. All times are milliseconds of the caller's clock.
public struct PreKeyLimits: Hashable, Sendable {
    /// How long a signed prekey and a last-resort KEM prekey are handed out. A week, as Signal's clients do: whoever steals
    /// one reads the first messages of no more than that.
    public var rotation: Int64 = 7 * 86_400_000
    /// How long they can still be used, for bundles that were read and first messages that are on their way.
    public var lifetime: Int64 = 30 * 86_400_000
    /// One-time prekeys that wait, handed out or not. Beyond it the oldest go: whoever asks for bundles without end
    /// makes old ones useless, and does not fill the store.
    public var oneTime = 500
    /// One-time KEM prekeys that wait. Fewer, for each takes 1710 bytes.
    public var oneTimeKEM = 100
    /// How many a directory is given at a time.
    public var published = 50
    /// Below how many left in a directory it is given more: half of what it had, so that a busy hour uses none up.
    public var lowWatermark = 25
    /// Sessions that began without any one-time key and are remembered, so that a copy of a first message begins none. They
    /// go with the signed prekey; where they are full, only one-time keys begin sessions until then.
    public var begun = 1000
    /// Whether a first message has to use a one-time prekey. Then none needs to be remembered.
    public var needsOneTimePreKey = false

    /// The limits above.
    public init() {}
}
