/// Our own limits, each with its reason. Sizes that a specification fixes are in `KeySize`.
public enum RatchetLimits {
    /// Messages that one header may skip in one chain: the specification's `MAX_SKIP`.
    ///
    /// A forged header costs the receiver one HMAC for each skipped message before authentication can fail. 2000 keeps
    /// that at about a millisecond and still lets a device miss 2000 messages of one chain. The limit also holds for
    /// sender keys, where only the sender itself can cause that work.
    public static let maximumSkip: UInt32 = 2000

    /// Keys of skipped messages kept in one session, over all its chains, or for one sender key. The oldest are dropped
    /// first.
    ///
    /// The keys of one full step always fit. At 40 bytes each in a session, and 68 each for a sender key, they take at
    /// most 80,000 or 136,000 bytes of the state.
    public static let maximumSkippedKeys = 2000

    /// Finished receiving chains of a session whose header keys are kept. 36 bytes each.
    ///
    /// A late copy of an old message is then reported as ``RatchetError/duplicate`` and not as a forgery.
    public static let maximumRememberedChains = 14

    /// Finished receiving chains whose header keys are kept while keys of their skipped messages are stored. Beyond the
    /// limit the oldest chain is dropped with its keys.
    ///
    /// The hint of a forged message is compared under every stored header key: one AES block each.
    public static let maximumWaitingChains = 32
}

/// Sizes in bytes that the specifications fix.
package enum KeySize {
    /// X25519 public and private keys (RFC 7748), Ed25519 public keys and seeds (RFC 8032).
    package static let curve25519 = 32
    /// Ed25519 signatures (RFC 8032).
    package static let signature = 64
    /// ML-KEM-1024 seed `d || z` (FIPS 203).
    static let kemSeed = 64
    /// ML-KEM-1024 encapsulation key (FIPS 203).
    static let kemPublic = 1568
    /// ML-KEM-1024 ciphertext (FIPS 203).
    static let kemCiphertext = 1568
    /// AES-GCM-SIV tag (RFC 8452).
    package static let tag = 16
    /// AES-GCM-SIV nonce (RFC 8452).
    package static let nonce = 12
}
