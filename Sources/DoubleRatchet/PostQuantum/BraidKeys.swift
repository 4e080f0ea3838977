/// Our key pair of one epoch. The seed is all that is stored; the public half is made again when it is needed.
struct BraidKeyPair: Sendable {
    let seed: SecretBytes
    private var derived: (header: [UInt8], vector: [UInt8])?
    private var authenticated: [UInt8]?

    init(seed: SecretBytes) {
        self.seed = seed
    }

    private mutating func derive() -> (header: [UInt8], vector: [UInt8]) {
        if let derived { return derived }
        let key = Primitives.kem768PublicKey(seed: seed)
        let parts = (IncrementalKEM.header(of: key), Array(key[..<IncrementalKEM.vectorSize]))
        derived = parts
        return parts
    }

    /// The header and its MAC in `epoch`, 96 bytes. Within an epoch the authenticator stays the same until the header is
    /// through.
    package mutating func header(authenticatedBy authenticator: BraidAuthenticator, epoch: UInt32) -> [UInt8] {
        if let authenticated { return authenticated }
        let header = derive().header
        let data = header + authenticator.mac(epoch: epoch, header: header)
        authenticated = data
        return data
    }

    /// 1152 bytes.
    mutating func vector() -> [UInt8] { derive().vector }
}

/// Our encapsulation to a header of the peer. The 32 random bytes and the header are all that is stored.
struct BraidEncapsulation: Sendable {
    package let message: SecretBytes
    package let header: [UInt8]
    private var derivedFirst: [UInt8]?

    init(message: SecretBytes, header: [UInt8]) {
        self.message = message
        self.header = header
    }

    /// The shared secret. Computes the first part of the ciphertext along the way.
    package mutating func secret() -> SecretBytes {
        let (secret, first) = IncrementalKEM.encapsulate(message, header: header)
        derivedFirst = first
        return secret
    }

    /// 960 bytes.
    package mutating func first() -> [UInt8] {
        if let derivedFirst { return derivedFirst }
        let first = IncrementalKEM.encapsulate(message, header: header).first
        derivedFirst = first
        return first
    }

    /// 128 bytes. Throws ``RatchetError/invalidKey`` where `vector` does not belong to the header.
    package func second(vector: [UInt8]) throws(RatchetError) -> [UInt8] {
        try IncrementalKEM.complete(message, header: header, vector: vector)
    }
}
