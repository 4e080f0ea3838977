import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

/// A device of ours in one profile, with some one-time prekeys that stay until the test drops them.
struct OMEMODevice: ~Copyable {
    let profile: OMEMOProfile
    let identity: IdentityKeyPair
    let signed: OMEMOSignedPreKey
    private let preKeySecrets: [[UInt8]]
    let bundle: OMEMOBundle

    /// `sign` chooses an identity whose Edwards point has that sign.
    init(
        _ profile: OMEMOProfile, _ random: inout SeededGenerator, preKeys: Int = 5, sign: UInt8? = nil
    ) throws(RatchetError) {
        self.profile = profile
        var seed = random.bytes(32)
        while let sign, try IdentityKeyPair(seed: seed.span).publicKey.bytes[31] >> 7 != sign {
            seed = random.bytes(32)
        }
        identity = try IdentityKeyPair(seed: seed.span)
        signed = OMEMOSignedPreKey(id: 7, identity: identity, profile: profile, random: &random)
        var (secrets, publics): ([[UInt8]], [OneTimePreKey.Public]) = ([], [])
        for id in 0..<UInt32(preKeys) {
            let key = OneTimePreKey(id: 100 + id, random: &random)
            var bytes: [UInt8] = []
            key.serialize(into: &bytes)
            secrets.append(bytes)
            publics.append(key.publicKey)
        }
        preKeySecrets = secrets
        bundle = OMEMOBundle(
            identity: identity.omemoKey(in: profile), signedPreKey: signed.publicKey, preKeys: publics)
    }

    func respond(
        to message: [UInt8], expecting: OMEMOIdentityKey? = nil, into output: inout [UInt8]
    ) throws(RatchetError) -> OMEMOSession {
        let exchange = try OMEMOKeyExchange(of: message.span, profile: profile)
        guard let index = bundle.preKeys.firstIndex(where: { $0.id == exchange.preKeyID }) else { throw .unknownPreKey }
        let secret = preKeySecrets[index]
        let preKey = try OneTimePreKey(serialized: secret.span)
        return try OMEMOSession.respond(
            identity: identity, signedPreKey: signed, preKey: preKey, message: message.span, profile: profile,
            expecting: expecting, plaintext: &output)
    }
}

/// Arrays in and out, for transcripts that read as one line a message.
extension OMEMOSession {
    mutating func seal(
        _ text: [UInt8], random: inout SeededGenerator
    ) throws(RatchetError) -> OMEMOPeer.Message {
        var output: [UInt8] = []
        let form = try encrypt(text.span, random: &random, into: &output)
        return OMEMOPeer.Message(isKeyExchange: form == .keyExchange, bytes: output)
    }

    mutating func open(_ message: OMEMOPeer.Message) throws(RatchetError) -> [UInt8] {
        var output: [UInt8] = []
        _ = try decrypt(message.bytes.span, isKeyExchange: message.isKeyExchange, into: &output)
        return output
    }

    mutating func received(_ message: OMEMOPeer.Message) throws(RatchetError) -> Received {
        var output: [UInt8] = []
        return try decrypt(message.bytes.span, isKeyExchange: message.isKeyExchange, into: &output)
    }

    var state: [UInt8] {
        var output: [UInt8] = []
        serialize(into: &output)
        return output
    }

    /// The error of opening, nil if it opens. Fails the test where an error left a trace.
    mutating func refusal(of message: OMEMOPeer.Message) -> RatchetError? {
        let before = state
        var output: [UInt8] = [1, 2, 3]
        do {
            _ = try decrypt(message.bytes.span, isKeyExchange: message.isKeyExchange, into: &output)
            return nil
        } catch {
            #expect(state == before, "a refused message changed the state")
            #expect(output == [1, 2, 3], "a refused message changed the output")
            return error
        }
    }
}

func restoredOMEMO(_ state: [UInt8]) throws(RatchetError) -> OMEMOSession {
    try OMEMOSession(serialized: state.span)
}

/// Two ends of ours after the exchange of two messages.
struct OMEMOPair: ~Copyable {
    var alice: OMEMOSession
    var bob: OMEMOSession
    var random: SeededGenerator

    init(_ profile: OMEMOProfile, seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let aliceIdentity = IdentityKeyPair(random: &random)
        let device = try OMEMODevice(profile, &random)
        var alice = try OMEMOSession.initiate(
            identity: aliceIdentity, with: device.bundle, expecting: nil, random: &random)
        var plaintext: [UInt8] = []
        var bob = try device.respond(to: try alice.seal([1], random: &random).bytes, into: &plaintext)
        _ = try alice.open(try bob.seal([2], random: &random))
        self.alice = alice
        self.bob = bob
        self.random = random
    }
}

extension OMEMOMessage {
    /// What the MAC is made over, except for the identities.
    static func authenticated(
        profile: OMEMOProfile, ratchetKey: Bytes32, number: UInt32, previousCount: UInt32, ciphertext: [UInt8]
    ) -> [UInt8] {
        var output: [UInt8] = []
        writeHead(
            profile: profile, ratchetKey: ratchetKey, number: number, previousCount: previousCount,
            ciphertextCount: ciphertext.count, into: &output)
        return output + ciphertext
    }
}
