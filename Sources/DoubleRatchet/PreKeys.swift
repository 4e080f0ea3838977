// Prekeys (PQXDH section 3.2): keys that a device publishes so that others can begin a session while it is away.

/// A signed X25519 prekey with its private half. Rotated now and then; used by many sessions.
public struct SignedPreKey: Sendable {
    let secret: SecretBytes
    /// What is published.
    public let publicPart: SignedPreKeyPublic

    /// A new prekey, signed by its identity.
    public static func generate(
        id: UInt32, identity: borrowing IdentityKeyPair, random: inout some RandomSource
    ) -> SignedPreKey {
        while true {
            let secret = random.secret(32)
            guard let key = try? Primitives.publicKey(of: secret),
                let signature = try? Primitives.sign(
                    SignedPreKeyPublic.signed(id, key, identity.publicKey), seed: identity.seed)
            else { continue }
            return SignedPreKey(secret: secret, publicPart: .init(id: id, key: key, signature: signature))
        }
    }
}

/// The public half of a signed prekey.
public struct SignedPreKeyPublic: Equatable, Sendable {
    /// The owner's number for it.
    public let id: UInt32
    let key: [UInt8]
    let signature: [UInt8]

    static func signed(_ id: UInt32, _ key: [UInt8], _ identity: IdentityKey) -> [UInt8] {
        var message = Array("Pawl signed prekey v1".utf8) + identity.agreement
        message.append(number: id)
        return message + key
    }
}

/// A one-time X25519 prekey with its private half. The owner deletes it when it has been used.
public struct OneTimePreKey: Sendable {
    let secret: SecretBytes
    /// What is published.
    public let publicPart: OneTimePreKeyPublic

    /// A new prekey.
    public static func generate(id: UInt32, random: inout some RandomSource) -> OneTimePreKey {
        while true {
            let secret = random.secret(32)
            guard let key = try? Primitives.publicKey(of: secret) else { continue }
            return OneTimePreKey(secret: secret, publicPart: .init(id: id, key: key))
        }
    }
}

/// The public half of a one-time prekey.
public struct OneTimePreKeyPublic: Equatable, Sendable {
    /// The owner's number for it.
    public let id: UInt32
    let key: [UInt8]
}

/// A signed ML-KEM-1024 prekey (FIPS 203) with its private half; one-time, or the last resort when none is left.
public struct KEMPreKey: Sendable {
    let seed: SecretBytes
    /// What is published.
    public let publicPart: KEMPreKeyPublic

    /// A new prekey, signed by its identity.
    public static func generate(
        id: UInt32, identity: borrowing IdentityKeyPair, isLastResort: Bool, random: inout some RandomSource
    ) -> KEMPreKey {
        while true {
            let seed = random.secret(64)
            guard let key = try? Primitives.kemPublicKey(seed: seed),
                let signature = try? Primitives.sign(
                    KEMPreKeyPublic.signed(id, isLastResort, key, identity.publicKey), seed: identity.seed)
            else { continue }
            return KEMPreKey(
                seed: seed, publicPart: .init(id: id, isLastResort: isLastResort, key: key, signature: signature))
        }
    }
}

/// The public half of a KEM prekey.
public struct KEMPreKeyPublic: Equatable, Sendable {
    /// The owner's number for it.
    public let id: UInt32
    /// Whether it may be used more than once.
    public let isLastResort: Bool
    let key: [UInt8]
    let signature: [UInt8]

    static func signed(_ id: UInt32, _ isLastResort: Bool, _ key: [UInt8], _ identity: IdentityKey) -> [UInt8] {
        var message = Array("Pawl KEM prekey v1".utf8) + identity.agreement
        message.append(isLastResort ? 1 : 0)
        message.append(number: id)
        return message + key
    }
}

/// What somebody needs to begin a session with a device (PQXDH section 3.2).
public struct PreKeyBundle: Equatable, Sendable {
    /// The device's identity.
    public let identity: IdentityKey
    let signedPreKey: SignedPreKeyPublic
    let oneTimePreKey: OneTimePreKeyPublic?
    let kemPreKey: KEMPreKeyPublic

    /// A bundle of these keys; nothing is checked before it is used.
    public init(
        identity: IdentityKey, signedPreKey: SignedPreKeyPublic, oneTimePreKey: OneTimePreKeyPublic?,
        kemPreKey: KEMPreKeyPublic
    ) {
        self.identity = identity
        self.signedPreKey = signedPreKey
        self.oneTimePreKey = oneTimePreKey
        self.kemPreKey = kemPreKey
    }

    /// - Throws: ``RatchetError/invalidSignature`` or ``RatchetError/invalidKey``.
    func verify() throws(RatchetError) {
        try Primitives.demandCanonical(identity.agreement)
        try Primitives.demandCanonical(signedPreKey.key)
        if let oneTimePreKey { try Primitives.demandCanonical(oneTimePreKey.key) }
        guard
            Primitives.verify(
                signedPreKey.signature, SignedPreKeyPublic.signed(signedPreKey.id, signedPreKey.key, identity),
                key: identity.signing),
            Primitives.verify(
                kemPreKey.signature,
                KEMPreKeyPublic.signed(kemPreKey.id, kemPreKey.isLastResort, kemPreKey.key, identity),
                key: identity.signing)
        else { throw .invalidSignature }
    }
}
