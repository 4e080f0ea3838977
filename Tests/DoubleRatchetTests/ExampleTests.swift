import DoubleRatchet
import Testing

/// The code of the articles in DoubleRatchet.docc, with the public interface only. `DocumentationTests` compares the two.
@Suite("The examples of the documentation")
struct ExampleTests {
    @Test("Getting started") func gettingStarted() throws {
        var random = SystemRandomSource()

        // Bob's device makes its keys, stores the secret halves sealed, and publishes the bundle.
        let bob = IdentityKeyPair(random: &random)
        let signedPreKey = SignedPreKey(id: 1, identity: bob, random: &random)
        let kemPreKey = KEMPreKey(id: 1, isLastResort: true, identity: bob, random: &random)
        let oneTimePreKey = OneTimePreKey(id: 1, random: &random)
        var published: [UInt8] = []
        PreKeyBundle(
            identity: bob.publicKey, signedPreKey: signedPreKey.publicKey, kemPreKey: kemPreKey.publicKey,
            oneTimePreKey: oneTimePreKey.publicKey
        ).serialize(into: &published)

        // Alice's device fetches it and begins.
        let alice = IdentityKeyPair(random: &random)
        let bundle = try PreKeyBundle(serialized: published.span)
        var alicesSession = try Session.initiate(identity: alice, with: bundle, random: &random)
        let conversation = Array("alice/1 to bob/1".utf8)
        let greeting = Array("Hello".utf8)
        var message: [UInt8] = []
        try alicesSession.encrypt(
            greeting.span, associatedData: conversation.span, random: &random, into: &message)

        // Bob's device looks which keys the message needs, and answers.
        let header = try PreKeyMessage.header(of: message.span)
        #expect(header.identity == alice.publicKey && header.oneTimePreKeyID == 1)
        let named: OneTimePreKey? = consume oneTimePreKey
        var plaintext: [UInt8] = []
        var bobsSession = try Session.respond(
            identity: bob, signedPreKey: signedPreKey, oneTimePreKey: named, kemPreKey: kemPreKey,
            message: message.span, associatedData: conversation.span, plaintext: &plaintext)
        #expect(plaintext == greeting)

        let reply = Array("Hello, Alice".utf8)
        message.removeAll()
        try bobsSession.encrypt(reply.span, associatedData: conversation.span, random: &random, into: &message)
        plaintext.removeAll()
        let received = try alicesSession.decrypt(
            message.span, associatedData: conversation.span, into: &plaintext)
        #expect(plaintext == reply && received.skipped == 0)

        try state(of: &bobsSession, conversation: conversation, random: &random)
        try refusals(alicesSession: &alicesSession, message: message, conversation: conversation)
        try comparison(alice: alice.publicKey, bob: bob.publicKey)
    }

    private func state(
        of session: inout Session, conversation: [UInt8], random: inout SystemRandomSource
    ) throws {
        let text = Array("One more".utf8)
        // Advance first, store second, send last.
        var message: [UInt8] = []
        try session.encrypt(text.span, associatedData: conversation.span, random: &random, into: &message)
        var state: [UInt8] = []
        session.serialize(into: &state)
        // ... seal and store `state` in one transaction with `message`, then ...
        let restored = try Session(serialized: state.span)
        SecretBytes.wipe(&state)
        // ... and only now may `message` leave.
        #expect(restored.id == session.id)
    }

    private func refusals(alicesSession: inout Session, message: [UInt8], conversation: [UInt8]) throws {
        var plaintext: [UInt8] = []
        do {
            _ = try alicesSession.decrypt(message.span, associatedData: conversation.span, into: &plaintext)
        } catch {
            switch error {
            case .duplicate: break  // Opened before: drop it.
            case .authenticationFailed, .malformed: break  // Damaged or forged: drop it, ask for it again.
            case .tooFarAhead, .exhausted: break  // This session cannot go on: begin another.
            case .downgrade, .unsupportedVersion: break  // Refuse, and say so.
            default: throw error
            }
            #expect(error == .duplicate && plaintext.isEmpty)
        }
    }

    private func comparison(alice: IdentityKey, bob: IdentityKey) throws {
        let number = SafetyNumber(
            SafetyNumber.Party(identifier: Array("alice".utf8), key: alice),
            SafetyNumber.Party(identifier: Array("bob".utf8), key: bob))
        #expect(number.digits.count == 60)
        #expect(number.matches(scanned: number.scannable.span) == .match)
    }

    @Test("Profiles") func profiles() throws {
        var random = SystemRandomSource()
        let profile = OMEMOProfile.omemo2
        let bob = IdentityKeyPair(random: &random)
        let signedPreKey = OMEMOSignedPreKey(id: 1, identity: bob, profile: profile, random: &random)
        let preKey = OneTimePreKey(id: 1, random: &random)
        let bundle = OMEMOBundle(
            identity: bob.omemoKey(in: profile), signedPreKey: signedPreKey.publicKey, preKeys: [preKey.publicKey])

        let alice = IdentityKeyPair(random: &random)
        var session = try OMEMOSession.initiate(identity: alice, with: bundle, random: &random)
        let text = Array("<content xmlns='urn:xmpp:sce:1'/>".utf8)
        let payload = OMEMOPayload.seal(text.span, profile: profile, random: &random)
        var message: [UInt8] = []
        let form = try session.encrypt(payload.keyMaterial, random: &random, into: &message)
        #expect(form == .keyExchange)

        var keyMaterial: [UInt8] = []
        var bobsSession = try OMEMOSession.respond(
            identity: bob, signedPreKey: signedPreKey, preKey: preKey, message: message.span, profile: profile,
            plaintext: &keyMaterial)
        var opened: [UInt8] = []
        try OMEMOPayload.open(
            payload.ciphertext.span, iv: payload.iv.span, keyMaterial: keyMaterial.span, profile: profile,
            into: &opened)
        SecretBytes.wipe(&keyMaterial)
        #expect(opened == text)

        message.removeAll()
        _ = try bobsSession.encrypt(OMEMOPayload.emptyKeyMaterial(profile), random: &random, into: &message)
        var empty: [UInt8] = []
        _ = try session.decrypt(message.span, isKeyExchange: false, into: &empty)
        #expect(session.isEstablished == true)
    }

    @Test("Groups") func groups() throws {
        var random = SystemRandomSource()
        var senderKey = SenderKey(random: &random)
        // To each member over its session: whoever has this reads from the next message on.
        var distribution: [UInt8] = []
        senderKey.distribution.serialize(into: &distribution)
        var member = SenderKeyReceiver(try SenderKeyDistribution(serialized: distribution.span))
        SecretBytes.wipe(&distribution)

        let group = Array("group 7, alice/1".utf8)
        let text = Array("To all".utf8)
        var message: [UInt8] = []
        try senderKey.encrypt(text.span, associatedData: group.span, into: &message)
        var plaintext: [UInt8] = []
        _ = try member.decrypt(message.span, associatedData: group.span, into: &plaintext)
        #expect(plaintext == text)
        // Somebody leaves: a new key, which that member does not get.
        senderKey = SenderKey(random: &random)
        #expect(senderKey.iteration == 0)
    }
}
