// Every bound with its reason.

/// Sizes and limits. Constants of the specifications stand apart from ours.
public enum RatchetLimits {
    // Specifications.

    /// An X25519 public key (RFC 7748). In bytes.
    public static let publicKeyLength = 32
    /// An Ed25519 signature (RFC 8032). In bytes.
    public static let signatureLength = 64
    /// An ML-KEM-1024 encapsulation key (FIPS 203). In bytes.
    public static let kemKeyLength = 1568
    /// An ML-KEM-1024 ciphertext (FIPS 203). In bytes.
    public static let kemCiphertextLength = 1568
    /// The tag of AES-256-GCM-SIV (RFC 8452). In bytes.
    public static let tagLength = 16

    // Ours.

    /// Messages that one message may be ahead of the last one of its chain. A forged counter costs the receiver at most
    /// this many hashes (two each) before it is refused.
    public static let maximumSkip: UInt32 = 2000
    /// Keys of skipped messages kept in all; the oldest is given up for a new one. About 70 bytes each.
    public static let maximumSkippedKeys = 2000
    /// Bytes that a message of an established session is longer than its plaintext, at most: version, ratchet key, two
    /// counters of at most five bytes, tag.
    public static let messageOverhead = 1 + 32 + 5 + 5 + 16
}
