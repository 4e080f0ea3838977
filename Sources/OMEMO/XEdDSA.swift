import DoubleRatchet

/// Signatures under an X25519 key (XEdDSA revision 1, sections 2.3 to 2.5), for the profile `axolotl`.
///
/// Our identity is an Ed25519 seed, so signatures are made by RFC 8032. Peers see the X25519 key, which does not
/// contain the sign of the Edwards point. As in libsignal, the sign is in the top bit of the signature, which is zero
/// in every RFC 8032 signature. A signature by XEdDSA itself has sign 0 and passes the same check.
enum XEdDSA {
    private static let signBit: UInt8 = 0x80

    /// Puts the sign of the Edwards point into an RFC 8032 signature made with it.
    package static func folded(_ signature: [UInt8], by key: IdentityKey) -> [UInt8] {
        var signature = signature
        signature[63] |= key.rawBytes.array[31] & signBit
        return signature
    }

    static func isValid(_ signature: [UInt8], of message: [UInt8], by key: AgreementPublicKey) -> Bool {
        guard signature.count == KeySize.signature else { return false }
        var unfolded = signature
        unfolded[63] &= ~signBit
        return Primitives.verify(unfolded, of: message, by: edwards(key, sign: signature[63] & signBit))
    }

    /// `y = (u - 1) / (u + 1)` (RFC 7748, section 4.1) with the sign in bit 255. The divisor is not zero: u = -1 is of
    /// low order, so ``AgreementPublicKey`` rejects it.
    private static func edwards(_ key: AgreementPublicKey, sign: UInt8) -> Bytes32 {
        let u = FieldElement(littleEndian: key.bytes)
        let one = FieldElement(1)
        var bytes = ((u - one) * (u + one).inverse).littleEndian.array
        bytes[31] |= sign
        return Bytes32(bytes)
    }
}
