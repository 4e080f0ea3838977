import DoubleRatchet
import OMEMO
import Testing

/// Stands for the database of a device: rows sealed under one key, each bound to its name.
struct DeviceRows {
    let sealer: StateSealer
    var rows: [String: [UInt8]] = [:]
    /// The newest counter of each row. Keep them where a backup of the rows does not take them back.
    var counters: [String: UInt64] = [:]

    mutating func put(_ name: String, _ state: inout [UInt8], random: inout SystemRandomSource) {
        let counter = counters[name, default: 0] + 1
        var sealed: [UInt8] = []
        sealer.seal(
            state.span, place: Array(name.utf8), counter: counter, random: &random, into: &sealed)
        SecretBytes.wipe(&state)
        (rows[name], counters[name]) = (sealed, counter)
    }

    func get(_ name: String) throws -> [UInt8] {
        var state: [UInt8] = []
        let sealed = rows[name] ?? []
        _ = try sealer.open(
            sealed.span, place: Array(name.utf8), atLeast: counters[name] ?? 0, into: &state)
        return state
    }

    mutating func put(_ changes: [PreKeyChange], random: inout SystemRandomSource) {
        for change in changes {
            switch change {
            case .put(let record):
                var state: [UInt8] = []
                record.serialize(into: &state)
                put("prekey \(record.name.kind) \(record.name.id)", &state, random: &random)
            case .remove(let name): rows["prekey \(name.kind) \(name.id)"] = nil
            }
        }
    }

    mutating func put(
        _ name: String, _ state: consuming UncommittedState, random: inout SystemRandomSource
    ) -> CommittedState {
        var bytes = state.withBytes { state in state.withUnsafeBytes { Array($0) } }
        put(name, &bytes, random: &random)
        return state.committed()
    }
}

/// The code of the articles in DoubleRatchet.docc, with the public interface only. `DocumentationTests` compares the two.
@Suite("The examples of the documentation")
struct ExampleTests {
    @Test("Getting started: two devices that store what they have to") func devices() throws {
        var random = SystemRandomSource()
        let (alicesKey, bobsKey) = ([UInt8](repeating: 7, count: 32), [UInt8](repeating: 8, count: 32))
        var alicesRows = DeviceRows(sealer: StateSealer(key: alicesKey.span))
        var bobsRows = DeviceRows(sealer: StateSealer(key: bobsKey.span))
        let now: Int64 = 1_800_000_000_000

        // Bob's device makes its identity and prekeys, stores them, and only then publishes the bundle.
        let bob = IdentityKeyPair(random: &random)
        var preKeys = PreKeyStore()
        var changes: [PreKeyChange] = []
        let offered = preKeys.bundleForOne(identity: bob, at: now, random: &random, &changes)
        bobsRows.put(changes, random: &random)
        var published: [UInt8] = []
        offered.serialize(into: &published)

        let pinned = bob.publicKey
        // Alice's device fetches it and begins. The identity is the one that she has pinned for Bob.
        let alice = IdentityKeyPair(random: &random)
        let bundle = try PreKeyBundle(serialized: published.span)
        let session = try Session.initiate(
            identity: alice, with: bundle, expecting: pinned, random: &random)
        var alicesRecord = SessionRecord(session)
        let conversation = Array("alice/1 to bob/1".utf8)
        let greeting = Array("Hello".utf8)
        let pending = try alicesRecord.encrypt(
            greeting.span, associatedData: conversation.span, random: &random)
        let stored = alicesRows.put("bob/1", alicesRecord.uncommittedState(), random: &random)
        // The stored state lets the message out.
        var message = try pending.bytes(after: stored)

        let first = message
        // Bob's device opens it with the prekeys that it names; none is used up before the commit.
        var plaintext: [UInt8] = []
        let beginning = try preKeys.begin(
            identity: bob, message: message.span, associatedData: conversation.span, expecting: alice.publicKey,
            plaintext: &plaintext)
        changes.removeAll()
        let bobsRecord = SessionRecord(try beginning.commit(to: &preKeys, at: now, &changes))
        // One transaction: the prekey that is used up, and the session. Then show the plaintext.
        bobsRows.put(changes, random: &random)
        _ = bobsRows.put("alice/1", bobsRecord.uncommittedState(), random: &random)
        #expect(plaintext == greeting)
        #expect(preKeys.oneTimeCount == 0)

        // A copy of the first message begins nothing, and an older state is known for what it is.
        #expect(throws: RatchetError.unknownPreKey) {
            _ = try preKeys.begin(
                identity: bob, message: first.span, associatedData: conversation.span, expecting: nil,
                plaintext: &plaintext)
        }
        let older = bobsRows.rows["alice/1"]

        // After a restart Bob's device goes on from what it has stored.
        var state = try bobsRows.get("alice/1")
        var restored = try SessionRecord(serialized: state.span)
        SecretBytes.wipe(&state)
        let reply = Array("Hello, Alice".utf8)
        let answer = try restored.encrypt(
            reply.span, associatedData: conversation.span, random: &random)
        message = try answer.bytes(
            after: bobsRows.put("alice/1", restored.uncommittedState(), random: &random))

        // Alice's device opens the reply, stores, and only then shows it.
        plaintext.removeAll()
        let received = try alicesRecord.decrypt(
            message.span, associatedData: conversation.span, into: &plaintext)
        _ = alicesRows.put("bob/1", alicesRecord.uncommittedState(), random: &random)
        #expect(plaintext == reply && received.skipped == 0)
        #expect(alicesRecord.isEstablished == true)
        bobsRows.rows["alice/1"] = older
        #expect(throws: RatchetError.rolledBack) { _ = try bobsRows.get("alice/1") }
    }

    @Test("Getting started without what remembers") func gettingStarted() throws {
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
        var alicesSession = try Session.initiate(
            identity: alice, with: bundle, expecting: nil, random: &random)
        let conversation = Array("alice/1 to bob/1".utf8)
        let greeting = Array("Hello".utf8)
        let pending = try alicesSession.encrypt(
            greeting.span, associatedData: conversation.span, random: &random)
        var message = try pending.bytes(after: alicesSession.uncommittedState().committed())

        // Bob's device looks which keys the message needs, and answers.
        let header = try PreKeyMessage.header(of: message.span)
        #expect(header.identity == alice.publicKey && header.oneTimePreKeyID == 1)
        let named: OneTimePreKey? = consume oneTimePreKey
        var plaintext: [UInt8] = []
        var bobsSession = try Session.respond(
            identity: bob, signedPreKey: signedPreKey, oneTimePreKey: named, kemPreKey: kemPreKey,
            message: message.span, associatedData: conversation.span, expecting: nil, plaintext: &plaintext)
        #expect(plaintext == greeting)

        let reply = Array("Hello, Alice".utf8)
        let answer = try bobsSession.encrypt(reply.span, associatedData: conversation.span, random: &random)
        message = try answer.bytes(after: bobsSession.uncommittedState().committed())
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
        let pending = try session.encrypt(text.span, associatedData: conversation.span, random: &random)
        let state = session.uncommittedState()
        // Seal and store both in one transaction, so that the message is sent again after a restart.
        let queued = pending.withBytesToStore { message in message.withUnsafeBytes { Array($0) } }
        let restored = try state.withBytes { state in try Session(serialized: state) }
        // Only the committed state lets the message out.
        let message = try pending.bytes(after: state.committed())
        #expect(restored.id == session.id && message == queued)
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
        var session = try OMEMOSession.initiate(identity: alice, with: bundle, expecting: nil, random: &random)
        let text = Array("<content xmlns='urn:xmpp:sce:1'/>".utf8)
        let payload = OMEMOPayload.seal(text.span, profile: profile, random: &random)
        var message: [UInt8] = []
        let form = try session.encrypt(payload.keyMaterial, random: &random, into: &message)
        #expect(form == .keyExchange)

        var keyMaterial: [UInt8] = []
        var bobsSession = try OMEMOSession.respond(
            identity: bob, signedPreKey: signedPreKey, preKey: preKey, message: message.span, profile: profile,
            expecting: nil, plaintext: &keyMaterial)
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
        let pending = try senderKey.encrypt(text.span, associatedData: group.span)
        let message = try pending.bytes(after: senderKey.uncommittedState().committed())
        var plaintext: [UInt8] = []
        _ = try member.decrypt(message.span, associatedData: group.span, into: &plaintext)
        #expect(plaintext == text)
        // Somebody leaves: a new key, which that member does not get.
        senderKey = SenderKey(random: &random)
        #expect(senderKey.iteration == 0)
    }
}
