import DoubleRatchet

/// The key agreement that starts an OMEMO session (X3DH revision 1, sections 2.2, 3.3 and 3.4; XEP-0384, section 4.2).
///
/// ```
/// KM = FF * 32 || DH(IKA, SPKB) || DH(EKA, IKB) || DH(EKA, SPKB) || DH(EKA, OPKB)
/// SK = HKDF-SHA256(salt 00 * 32, KM, info of the profile, 32)
/// ```
enum X3DH {
    /// The initiator's secret. The caller has verified the signature of the prekey.
    package static func initiate(
        identity: borrowing IdentityKeyPair, ephemeral: AgreementKeyPair, with bundle: OMEMOBundle,
        preKey: OneTimePreKey.Public
    ) throws(RatchetError) -> SecretBytes {
        let signedPreKey = try AgreementPublicKey(bundle.signedPreKey.key)
        return derive(
            [
                try identity.agreementPair.agree(with: signedPreKey),
                try ephemeral.agree(with: try bundle.identity.agreementKey()),
                try ephemeral.agree(with: signedPreKey),
                try ephemeral.agree(with: try AgreementPublicKey(preKey.key)),
            ], profile: bundle.profile)
    }

    /// The responder's secret; the prekeys are those that `exchange` names.
    package static func respond(
        identity: borrowing IdentityKeyPair, signedPreKey: AgreementKeyPair, preKey: AgreementKeyPair,
        exchange: OMEMOKeyExchange
    ) throws(RatchetError) -> SecretBytes {
        let ephemeral = try AgreementPublicKey(exchange.ephemeralKey)
        return derive(
            [
                try signedPreKey.agree(with: try exchange.identity.agreementKey()),
                try identity.agreementPair.agree(with: ephemeral),
                try signedPreKey.agree(with: ephemeral),
                try preKey.agree(with: ephemeral),
            ], profile: exchange.identity.profile)
    }

    private static func derive(_ secrets: [SecretBytes], profile: OMEMOProfile) -> SecretBytes {
        KeyMaterial.derive(from: secrets, info: profile.agreementInfo, blocks: 1)[0]
    }
}
