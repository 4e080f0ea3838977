@testable import DoubleRatchet

#if !ONE_MODULE
    import TestKit

    @testable import OMEMO
#endif

/// The keys of one device in every protocol, made once: a key generation for each input would take most of a fuzzer's time.
final class FuzzDevice: Sendable {
    let identity: IdentityKeyPair
    let signed: SignedPreKey
    /// That of a device which reads version 2 only.
    let exactSigned: SignedPreKey
    let once: OneTimePreKey
    let kem: KEMPreKey
    let omemoSigned: [OMEMOSignedPreKey.Public]
    private let omemoSecrets: [[UInt8]]

    init(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        identity = IdentityKeyPair(random: &random)
        signed = SignedPreKey(id: 7, identity: identity, random: &random)
        once = OneTimePreKey(id: 8, random: &random)
        kem = KEMPreKey(id: 9, isLastResort: false, identity: identity, random: &random)
        var (secrets, publics): ([[UInt8]], [OMEMOSignedPreKey.Public]) = ([], [])
        for profile in OMEMOProfile.allCases {
            let key = OMEMOSignedPreKey(id: 7, identity: identity, profile: profile, random: &random)
            var bytes: [UInt8] = []
            key.serialize(into: &bytes)
            secrets.append(bytes)
            publics.append(key.publicKey)
        }
        (omemoSecrets, omemoSigned) = (secrets, publics)
        exactSigned = SignedPreKey(marked: 7, identity: identity, random: &random)
    }

    var bundle: PreKeyBundle { bundle(.paddedHeader) }

    func bundle(_ version: MessageVersion) -> PreKeyBundle {
        PreKeyBundle(
            identity: identity.publicKey,
            signedPreKey: version == .exactHeader ? exactSigned.publicKey : signed.publicKey, kemPreKey: kem.publicKey,
            oneTimePreKey: once.publicKey)
    }

    func bundle(_ profile: OMEMOProfile) -> OMEMOBundle {
        OMEMOBundle(
            identity: identity.omemoKey(in: profile), signedPreKey: omemoSigned[Int(profile.rawValue) - 1],
            preKeys: [once.publicKey])
    }

    func omemoSecret(_ profile: OMEMOProfile) -> [UInt8] { omemoSecrets[Int(profile.rawValue) - 1] }

    func respond(to packet: End.Packet, into output: inout [UInt8]) throws(RatchetError) -> Session {
        var stored: [UInt8] = []
        once.serialize(into: &stored)
        let key: OneTimePreKey? = try OneTimePreKey(serialized: stored.span)
        let header = try PreKeyMessage.header(of: packet.bytes.span)
        guard header.signedPreKeyID != exactSigned.publicKey.id else {
            return try Session.respond(
                identity: identity, signedPreKey: exactSigned, oneTimePreKey: key, kemPreKey: kem,
                message: packet.bytes.span, associatedData: packet.data.span, expecting: nil, plaintext: &output)
        }
        return try Session.respond(
            identity: identity, signedPreKey: signed, oneTimePreKey: key, kemPreKey: kem, message: packet.bytes.span,
            associatedData: packet.data.span, expecting: nil, plaintext: &output)
    }

    func respond(
        to packet: End.Packet, _ profile: OMEMOProfile, into output: inout [UInt8]
    ) throws(RatchetError) -> OMEMOSession {
        let stored = omemoSecret(profile)
        let signed = try OMEMOSignedPreKey(serialized: stored.span)
        guard packet.isKeyExchange else { throw .malformed }
        return try OMEMOSession.respond(
            identity: identity, signedPreKey: signed, preKey: once, message: packet.bytes.span, profile: profile,
            expecting: nil, plaintext: &output)
    }
}

/// What programmes begin with, made once.
struct FuzzStates: Sendable {
    static let shared = Result { try FuzzStates() }

    /// A native session.
    struct Native: Sendable {
        /// Alice's end before her first message.
        let initiator: [UInt8]
        /// Both ends in the middle of an epoch, with keys of messages that are missing.
        let established: (alice: [UInt8], bob: [UInt8])
    }

    let bob = FuzzDevice(seed: 2)
    /// Of version 3.
    let padded: Native
    /// Of version 2.
    let exact: Native
    var initiator: [UInt8] { padded.initiator }
    var established: (alice: [UInt8], bob: [UInt8]) { padded.established }
    /// Alice's end before her first message, in the order of the profiles.
    let omemo: [[UInt8]]
    let establishedOMEMO: [(alice: [UInt8], bob: [UInt8])]
    let sender: [UInt8]
    let distribution: [UInt8]
    let safetyNumber: SafetyNumber

    private init() throws {
        var random = SeededGenerator(seed: 1)
        let alice = IdentityKeyPair(random: &random)
        padded = try Self.native(alice, bob, .paddedHeader, &random)
        exact = try Self.native(alice, bob, .exactHeader, &random)
        var first: [[UInt8]] = []
        var later: [(alice: [UInt8], bob: [UInt8])] = []
        for profile in OMEMOProfile.allCases {
            let session = try OMEMOSession.initiate(
                identity: alice, with: bob.bundle(profile), expecting: nil, random: &random)
            var state: [UInt8] = []
            session.serialize(into: &state)
            first.append(state)
            let ends = (try OMEMOEnd(state, profile), OMEMOEnd(answeringAs: bob, profile))
            later.append(try Self.talk(ends.0, ends.1, &random))
        }
        (omemo, establishedOMEMO) = (first, later)
        let key = SenderKey(random: &random)
        var (keyState, distributed): ([UInt8], [UInt8]) = ([], [])
        key.serialize(into: &keyState)
        key.distribution.serialize(into: &distributed)
        (sender, distribution) = (keyState, distributed)
        safetyNumber = SafetyNumber(
            SafetyNumber.Party(identifier: [1], key: alice.publicKey),
            SafetyNumber.Party(identifier: [2], key: bob.identity.publicKey))
    }

    private static func native(
        _ alice: borrowing IdentityKeyPair, _ bob: FuzzDevice, _ version: MessageVersion,
        _ random: inout SeededGenerator
    ) throws -> Native {
        let session = try Session.initiate(
            identity: alice, with: bob.bundle(version), expecting: nil, random: &random)
        var state: [UInt8] = []
        session.serialize(into: &state)
        let ends = (try NativeEnd(state), NativeEnd(answeringAs: bob))
        return Native(initiator: state, established: try talk(ends.0, ends.1, &random))
    }

    /// Some turns with losses.
    private static func talk(
        _ alice: End, _ bob: End, _ random: inout SeededGenerator
    ) throws -> (alice: [UInt8], bob: [UInt8]) {
        for turn in 0..<40 {
            let (from, to) = turn % 2 == 0 ? (alice, bob) : (bob, alice)
            for number in 0..<3 {
                let packet = try from.seal([UInt8(turn), UInt8(number)], random: &random)
                var output: [UInt8] = []
                if (turn + number) % 7 != 2 || turn == 0 { try to.open(packet, into: &output) }
            }
        }
        return (alice.state, bob.state)
    }
}
