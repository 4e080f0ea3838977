public import DoubleRatchet

/// A device's public identity in one profile: an Ed25519 key in `omemo2`, an X25519 key in `axolotl`.
///
/// A device's keys in the two profiles are not equal; their ``fingerprint``s are.
public struct OMEMOIdentityKey: Hashable, Sendable, CustomStringConvertible {
    /// The profile that the key was read or made for.
    public let profile: OMEMOProfile
    /// The Ed25519 or the X25519 key, without a type byte.
    package let rawBytes: Bytes32

    /// Reads a key in its wire form: 32 bytes in `omemo2`, 33 with the type `05` in `axolotl`.
    ///
    /// - Throws: ``RatchetError/malformed`` for another form, ``RatchetError/invalidKey`` for a key that is not
    ///   canonical, of low order or, in `omemo2`, not on the curve.
    public init(_ bytes: Span<UInt8>, profile: OMEMOProfile) throws(RatchetError) {
        self = try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
            try OMEMOIdentityKey(bytes, profile: profile)
        }
    }

    init(_ bytes: UnsafeRawBufferPointer, profile: OMEMOProfile) throws(RatchetError) {
        switch profile {
        case .omemo2:
            guard bytes.count == IdentityKey.byteCount else { throw .malformed }
            self.init(checked: Bytes32(bytes), profile: profile)
        case .axolotl:
            self.init(checked: try profile.agreementKey(bytes), profile: profile)
        }
        _ = try agreementKey()
    }

    /// A key that was checked before it was stored, or that this library made.
    init(checked bytes: Bytes32, profile: OMEMOProfile) {
        rawBytes = bytes
        self.profile = profile
    }

    /// The key in its wire form.
    public var bytes: [UInt8] {
        var bytes: [UInt8] = []
        append(to: &bytes)
        return bytes
    }

    package func append(to bytes: inout [UInt8]) {
        switch profile {
        case .omemo2: rawBytes.append(to: &bytes)
        case .axolotl: profile.append(agreementKey: rawBytes, to: &bytes)
        }
    }

    /// The fingerprint that users compare (XEP-0384, Security Considerations): the X25519 key, 32 bytes, the same in
    /// both profiles.
    public var fingerprint: [UInt8] {
        switch profile {
        // A key is checked when it is made, so the conversion cannot fail.
        case .omemo2: (try? agreementKey())?.bytes.array ?? rawBytes.array
        case .axolotl: rawBytes.array
        }
    }

    package func agreementKey() throws(RatchetError) -> AgreementPublicKey {
        switch profile {
        case .omemo2: try IdentityKey(checked: rawBytes).agreementKey()
        case .axolotl: try AgreementPublicKey(rawBytes)
        }
    }

    /// Whether `signature` is this identity's over `message`: RFC 8032 in `omemo2`, XEdDSA in `axolotl`.
    package func isValidSignature(_ signature: [UInt8], of message: [UInt8]) throws(RatchetError) -> Bool {
        switch profile {
        case .omemo2:
            signature.count == KeySize.signature && Primitives.verify(signature, of: message, by: rawBytes)
        case .axolotl: XEdDSA.isValid(signature, of: message, by: try AgreementPublicKey(rawBytes))
        }
    }

    /// The fingerprint in hexadecimal; it is public.
    public var description: String {
        let digits = Array("0123456789abcdef")
        return String(fingerprint.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] })
    }
}

extension IdentityKeyPair {
    /// The public key in the form that peers of a profile use.
    public borrowing func omemoKey(in profile: OMEMOProfile) -> OMEMOIdentityKey {
        switch profile {
        case .omemo2: OMEMOIdentityKey(checked: publicKey.rawBytes, profile: profile)
        case .axolotl: OMEMOIdentityKey(checked: agreementPair.publicKey.bytes, profile: profile)
        }
    }

    /// Signs without a context, as the profiles demand.
    ///
    /// Only for the public keys that this library makes: 32 or 33 bytes. Such a signature cannot be confused with one
    /// of ``sign(_:context:)``, whose message begins with another text.
    borrowing func omemoSignature(of message: [UInt8], in profile: OMEMOProfile) -> [UInt8] {
        let signature = Primitives.sign(message, with: signingKey)
        switch profile {
        case .omemo2: return signature
        case .axolotl: return XEdDSA.folded(signature, by: publicKey)
        }
    }
}
