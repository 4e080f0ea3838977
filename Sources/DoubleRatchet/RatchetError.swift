/// Why the library rejected a call. No case carries data, so an error is always safe to log.
///
/// After an error the session, its serialized state and the output array are exactly as before the call.
public enum RatchetError: Error, Hashable, Sendable, CaseIterable {
    /// The bytes do not have the documented form: too short, a number not in its shortest form, unknown flags, or
    /// remaining bytes. The sender's fault or damage in transit; do not retry.
    case malformed
    /// The first byte names a version that this library does not know. Always rejected; a newer release may know it.
    case unsupportedVersion
    /// The version of a message, or of the post-quantum part of its header, is older than agreed, or the part is
    /// missing. Always rejected; a genuine peer of this version never sends one.
    case downgrade
    /// This message was opened before, or its key was dropped as the oldest of too many. A copy needs no action.
    case duplicate
    /// The header skips more than ``RatchetLimits/maximumSkip`` messages in one chain. It is forged, or the messages in
    /// between are lost and a new session is needed.
    case tooFarAhead
    /// The message is not from the peer, was changed in transit, or its associated data is not what the peer bound.
    case authenticationFailed
    /// A prekey's signature does not verify under the identity that the bundle names.
    case invalidSignature
    /// The identity is not the expected one, or it is our own (a reflected bundle or message).
    case untrustedIdentity
    /// A key is of low order, not canonical, off the curve, over its modulus, or yields an all-zero secret.
    case invalidKey
    /// A first message names other prekeys than those passed in. Look them up by ``PreKeyMessage/Header``.
    case unknownPreKey
    /// A first message belongs to another session with this peer: find that session by its id, or respond to the
    /// message.
    case differentSession
    /// A counter has reached `UInt32.max`: this chain can carry no further message. Start a new session.
    case exhausted
    /// The message is from the peer, but does not continue from the common state: the peer's state or ours was rolled
    /// back or cloned and has diverged since. This message can never be opened, nor most later ones. Start a new
    /// session.
    case diverged
    /// A sealed state is authentic but older than the one stored last. Using it would use keys again.
    case rolledBack
    /// A message was to be sent before the state that encrypted it was stored. Store it, and encrypt the plaintext
    /// again.
    case notCommitted
    /// A group message names another sender key than this receiver's: try another receiver, or ask for a distribution.
    case unknownSenderKey
    /// A group message is older than the distribution that its receiver was made from. It can never be opened here.
    case beforeDistribution
}
