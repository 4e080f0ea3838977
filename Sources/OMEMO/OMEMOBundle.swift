public import DoubleRatchet

/// A device's public keys, needed to start a session with it (XEP-0384, Bundles). The gateway handles its XML.
public struct OMEMOBundle: Hashable, Sendable {
    /// The identity of the device.
    public let identity: OMEMOIdentityKey
    /// The signed prekey.
    public let signedPreKey: OMEMOSignedPreKey.Public
    /// The one-time prekeys; one of them is drawn for each session.
    public let preKeys: [OneTimePreKey.Public]

    /// The profile that the bundle was published in.
    public var profile: OMEMOProfile { identity.profile }

    /// Makes a bundle without checking it.
    public init(
        identity: OMEMOIdentityKey, signedPreKey: OMEMOSignedPreKey.Public, preKeys: [OneTimePreKey.Public]
    ) {
        self.identity = identity
        self.signedPreKey = signedPreKey
        self.preKeys = preKeys
    }

    /// Verifies the signature under ``identity``; initiating a session verifies it again. Takes about 130 microseconds.
    ///
    /// - Throws: ``RatchetError/invalidSignature``, also if the signed prekey is of another profile.
    public func verify() throws(RatchetError) {
        try signedPreKey.verify(by: identity)
    }
}
