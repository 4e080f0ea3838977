public import DoubleRatchet

/// The public keys of a device that others need to start a session with it (XEP-0384, Bundles). Its XML is the
/// gateway's matter.
public struct OMEMOBundle: Hashable, Sendable {
    /// Whose bundle this is.
    public let identity: OMEMOIdentityKey
    /// The signed prekey.
    public let signedPreKey: OMEMOSignedPreKey.Public
    /// The one-time prekeys; one of them is drawn for each session.
    public let preKeys: [OneTimePreKey.Public]

    /// The profile that the bundle was published in.
    public var profile: OMEMOProfile { identity.profile }

    /// Puts a bundle together; nothing is checked yet.
    public init(
        identity: OMEMOIdentityKey, signedPreKey: OMEMOSignedPreKey.Public, preKeys: [OneTimePreKey.Public]
    ) {
        self.identity = identity
        self.signedPreKey = signedPreKey
        self.preKeys = preKeys
    }

    /// Checks the signature under ``identity``; initiating a session does it again. Costs some 130 microseconds.
    ///
    /// - Throws: ``RatchetError/invalidSignature``, also where the signed prekey is of another profile.
    public func verify() throws(RatchetError) {
        try signedPreKey.verify(by: identity)
    }
}
