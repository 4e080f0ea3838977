/// Our key pair of one epoch. Only the seed is stored; the public key is computed when needed.
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

    /// The header and its MAC in `epoch`, 96 bytes. The authenticator does not change within an epoch until the whole
    /// header has been sent.
    package mutating func header(authenticatedBy authenticator: BraidAuthenticator, epoch: UInt32) -> [UInt8] {
        if let authenticated { return authenticated }
        let header = derive().header
        let data = header + authenticator.mac(epoch: epoch, header: header)
        authenticated = data
        return data
    }

    /// The key's vector, 1152 bytes.
    mutating func vector() -> [UInt8] { derive().vector }
}

/// Our encapsulation to a header of the peer. Only the 32 random bytes and the header are stored.
struct BraidEncapsulation: Sendable {
    package let message: SecretBytes
    package let header: [UInt8]
    private var derivedFirst: [UInt8]?

    init(message: SecretBytes, header: [UInt8]) {
        self.message = message
        self.header = header
    }

    /// The shared secret. Also computes the first part of the ciphertext.
    package mutating func secret() -> SecretBytes {
        let (secret, first) = IncrementalKEM.encapsulate(message, header: header)
        derivedFirst = first
        return secret
    }

    /// The first part of the ciphertext, 960 bytes.
    package mutating func first() -> [UInt8] {
        if let derivedFirst { return derivedFirst }
        let first = IncrementalKEM.encapsulate(message, header: header).first
        derivedFirst = first
        return first
    }

    /// The second part of the ciphertext, 128 bytes.
    ///
    /// - Throws: ``RatchetError/invalidKey`` if `vector` does not belong to the header.
    package func second(vector: [UInt8]) throws(RatchetError) -> [UInt8] {
        try IncrementalKEM.complete(message, header: header, vector: vector)
    }
}
