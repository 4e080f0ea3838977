// Why the library refuses.

/// What went wrong. A failure never changes a session.
public enum RatchetError: Error, Equatable, Sendable {
    /// The message was opened before, or its key has been given up.
    case duplicate
    /// More messages were skipped than ``RatchetLimits/maximumSkip`` allows.
    case tooFarAhead
    /// The message, its header or its associated data were altered, or it belongs to another session.
    case authenticationFailed
    /// Not a message, a bundle or a state of this library.
    case malformed
    /// A version that this library does not know.
    case unsupportedVersion(UInt8)
    /// A signature in a bundle does not fit the identity.
    case invalidSignature
    /// A public key that is not canonical, of low order, or outside its range.
    case invalidKey
    /// The message needs a prekey that was not handed over.
    case unknownPreKey
    /// 2^32 messages of one chain have been sent; the other side has to answer first.
    case exhausted
}
