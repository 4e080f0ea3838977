import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

@Suite("OMEMO payloads and identities")
struct OMEMOPayloadTests {
    private func open(
        _ payload: [UInt8], _ iv: [UInt8], _ material: [UInt8], _ profile: OMEMOProfile
    ) throws(RatchetError) -> [UInt8] {
        var output: [UInt8] = []
        try OMEMOPayload.open(
            payload.span, iv: iv.span, keyMaterial: material.span, profile: profile, into: &output)
        return output
    }

    @Test("there and back, and nothing may change", arguments: OMEMOProfile.allCases)
    func roundTrip(_ profile: OMEMOProfile) throws {
        var random = SeededGenerator(seed: 460)
        for length in [0, 1, 15, 16, 17, 100] {
            let text = random.bytes(length)
            let sealed = OMEMOPayload.seal(text.span, profile: profile, random: &random)
            let material = sealed.keyMaterial.array
            #expect(sealed.ciphertext.count == (profile == .omemo2 ? (length / 16 + 1) * 16 : length))
            #expect((sealed.iv.count, material.count) == (profile == .omemo2 ? (0, 48) : (12, 32)))
            #expect(try open(sealed.ciphertext, sealed.iv, material, profile) == text)
            for index in sealed.ciphertext.indices {
                var changed = sealed.ciphertext
                changed[index] ^= 1
                #expect(throws: RatchetError.authenticationFailed) { try open(changed, sealed.iv, material, profile) }
            }
            for index in material.indices {
                var changed = material
                changed[index] ^= 1
                #expect(throws: RatchetError.authenticationFailed) {
                    try open(sealed.ciphertext, sealed.iv, changed, profile)
                }
            }
            for material in [Array(material.dropLast()), material + [0], Array(material.prefix(16)), []] {
                #expect(throws: RatchetError.malformed) { try open(sealed.ciphertext, sealed.iv, material, profile) }
            }
            #expect(throws: RatchetError.malformed) {
                try open(sealed.ciphertext, sealed.iv + [0], material, profile)
            }
            #expect(throws: RatchetError.authenticationFailed) {
                try open(sealed.ciphertext + [0], sealed.iv, material, profile)
            }
        }
    }

    /// NIST's GCM specification, test case 2: AES-128 with a zero key and IV over a zero block.
    @Test("AES-128-GCM as specified, and the IV of 16 bytes that old clients wrote") func gcm() throws {
        let zero = [UInt8](repeating: 0, count: 16)
        let tag = hex("ab6e47d42cec13bdf53a67b21257bddf")
        let ciphertext = hex("0388dace60b6a392f328c2b971b2fe78")
        #expect(try open(ciphertext, Array(zero.prefix(12)), zero + tag, .axolotl) == zero)
        // The counter that GHASH makes from the longer IV: computed by python-cryptography.
        let bytes = (0..<32).map { UInt8($0) }
        let sealed = hex("aaf293961ede4dedb86c e2799cc810630dfc2087aa91fed3b2dc")
        let opened = try open(
            Array(sealed[..<10]), Array(bytes[16...]), Array(bytes[..<16] + Array(sealed[10...])), .axolotl)
        #expect(opened == Array("old client".utf8))
    }

    @Test("an identity has one fingerprint in both profiles, and two wire forms") func fingerprints() throws {
        var random = SeededGenerator(seed: 461)
        let identity = IdentityKeyPair(random: &random)
        let (new, old) = (identity.omemoKey(in: .omemo2), identity.omemoKey(in: .axolotl))
        #expect(new.bytes == identity.publicKey.bytes)
        #expect(old.bytes == [5] + new.fingerprint)
        #expect(new.fingerprint == old.fingerprint && new != old)
        #expect(new.description == text(new.fingerprint))
        let (newWire, oldWire) = (new.bytes, old.bytes)
        #expect(try OMEMOIdentityKey(newWire.span, profile: .omemo2) == new)
        #expect(try OMEMOIdentityKey(oldWire.span, profile: .axolotl) == old)
        #expect(throws: RatchetError.malformed) { try OMEMOIdentityKey(oldWire.span, profile: .omemo2) }
        #expect(throws: RatchetError.malformed) { try OMEMOIdentityKey(newWire.span, profile: .axolotl) }
        #expect(OMEMOProfile.omemo2.namespace == "urn:xmpp:omemo:2")
        #expect(OMEMOProfile.axolotl.namespace == "eu.siacs.conversations.axolotl")
    }

    @Test("nothing secret is printed", arguments: OMEMOProfile.allCases) func printing(_ profile: OMEMOProfile) {
        var random = SeededGenerator(seed: 462)
        let sealed = OMEMOPayload.seal([1, 2, 3].span, profile: profile, random: &random)
        var dumped = ""
        dump(sealed, to: &dumped)
        let key = sealed.keyMaterial.array.prefix(4)
        #expect(!"\(sealed)\(dumped)".contains(text(Array(key))))
        #expect(dumped.contains("SecretBytes(\(sealed.keyMaterial.count) bytes)"))
    }
}
