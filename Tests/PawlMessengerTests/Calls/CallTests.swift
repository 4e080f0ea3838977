import CallSignalling
import Foundation
import Messenger
import TestKit
import Testing

@testable import PawlMessenger

/// Calls between messengers over a server in memory.
@Suite struct CallTests {
    /// Alice and Bob, who have exchanged keys.
    private func couple(
        _ server: SpoofServer, times: CallTimes = .patient, bob session: RecordingSession = RecordingSession()
    ) async throws -> (CallApp, CallApp) {
        let alice = try await CallApp.register("alice", at: server, times: times)
        let bob = try await CallApp.register("bob", at: server, times: times, session: session)
        return (alice, bob)
    }

    private func wait(_ app: CallApp, for log: [String]) async throws {
        try await eventuallyAsync("\(app.name) has \(log), not \(app.log), \(app.messenger.callStatistics)") {
            app.log == log
        }
    }

    // MARK: Calls of two

    @Test func aCallOfTwoIsSignalled() async throws {
        let server = SpoofServer()
        let (alice, bob) = try await couple(server)
        let call = alice.call("bob", sdp: "v=0 alice")
        try await alice.messenger.sendCandidate(.numbered(0), call: call)
        try await alice.messenger.sendOffer(call: call)
        try await alice.messenger.sendCandidate(.numbered(1), call: call)
        try await wait(bob, for: ["offer v=0 alice", "candidate 0", "candidate 1"])
        let metadata = try #require(bob.session.records.metadata.first)
        #expect(metadata.offerSecretName == "alice" && metadata.offerDeviceId == alice.messenger.deviceId.raw)
        #expect(metadata.answerDeviceId == bob.messenger.deviceId.raw)
        // The call comes as it was sent.
        #expect(bob.session.records.calls.first == call)
        try await bob.answer("v=0 bob")
        try await bob.messenger.sendCandidate(.numbered(9), call: call)
        try await wait(alice, for: ["answer v=0 bob", "candidate 9"])
        try await alice.messenger.didEnd(call: call, endState: .userInitiated)
        try await alice.messenger.didEnd(call: call, endState: .failed)
        try await wait(bob, for: ["offer v=0 alice", "candidate 0", "candidate 1", "end partnerInitiated"])
        try await bob.messenger.didEnd(call: call, endState: .partnerInitiated)
        await #expect(throws: CallError.ended) { try await alice.messenger.sendOffer(call: call) }
        // Calls are not in the history, and the server reads nothing.
        #expect(try await alice.app.texts(with: "bob").isEmpty)
        for bytes in server.receivedBytes {
            let text = String(decoding: bytes, as: UTF8.self)
            #expect(!text.contains("v=0") && !text.contains("callId"))
        }
        for app in [alice, bob] { app.close() }
    }

    /// Names that are equal as texts, and not byte by byte, are two accounts: the other one does not speak for this one.
    @Test func aNameInAnotherCompositionIsAnotherPerson() async throws {
        let server = SpoofServer()
        let alice = try await CallApp.register("alice", at: server)
        let zoe = try await CallApp.register("zo\u{EB}", at: server)
        let other = try await CallApp.register("zoe\u{308}", at: server)
        #expect(zoe.messenger.username != other.messenger.username)
        let call = alice.call(zoe.name)
        try await alice.messenger.sendOffer(call: call)
        try await wait(zoe, for: ["offer o"])
        let end = CallEnvelope(
            callId: call.sharedCommunicationId, call: call.id, from: zoe.name, to: "alice", .end, (.max, 0),
            .init(endState: "userInitiated"))
        let job = SignalJob(to: "alice", kind: CallRouter.kind, text: try end.text(), lifetime: 30)
        try await eventuallyAsync("it is sent") { (try? await other.messenger.send(job)) != nil }
        try await eventuallyAsync("it is dropped") {
            alice.messenger.callStatistics.dropped["notParticipant"] ?? 0 > 0
        }
        try await zoe.answer()
        try await wait(alice, for: ["answer a"])
        #expect(other.log.isEmpty)
        for app in [alice, zoe, other] { app.close() }
    }

    /// With the times of the program: 30 seconds.
    @Test func whatNobodyAnswersEndsByItself() async throws {
        let server = SpoofServer()
        let (alice, bob) = try await couple(server, times: CallTimes())
        try await alice.messenger.sendOffer(call: alice.call("bob"))
        try await wait(alice, for: ["end userInitiatedUnanswered"])
        // An offer that came in time is followed by its end.
        try await eventuallyAsync("it has stopped ringing") { bob.log.isEmpty || bob.log.count == 2 }
        #expect([[], ["offer o", "end partnerInitiatedUnanswered"]].contains(bob.log))
        for app in [alice, bob] { app.close() }
    }

    @Test func idsAndCiphertextsComeByteForByte() async throws {
        let server = SpoofServer()
        let (alice, bob) = try await couple(server)
        let route = " #STANDUP_0A1B2C3D-4E5F-4A6B-8C7D-9E0F1A2B3C4D"
        let call = alice.call("bob", id: route)
        let ids = [
            "", "a\u{0}b", "e\u{301} \u{E9} \u{1F468}\u{200D}\u{1F469}", "\"\\/\n\r",
            String(repeating: "i", count: 1024),
        ]
        let values = [
            Data(), Data(0...255), Data(repeating: 0xFF, count: 1568), Data(count: CallEnvelope.partLimit),
            Data((0..<CallEnvelope.ciphertextLimit).map { UInt8(truncatingIfNeeded: $0 &* 31) }),
        ]
        for id in ids {
            for value in values {
                try await alice.messenger.sendCiphertext(
                    recipient: "bob", connectionId: id, ciphertext: value, call: call)
            }
        }
        try await eventuallyAsync("all have come") { bob.session.records.ciphertexts.count == ids.count * values.count }
        let received = bob.session.records.ciphertexts
        for (number, found) in received.enumerated() {
            #expect(found.connectionId.utf8.elementsEqual(ids[number / values.count].utf8))
            #expect(found.bytes == values[number % values.count])
            #expect(found.from == "alice" && found.device == alice.messenger.deviceId.raw)
        }
        #expect(bob.session.records.calls.allSatisfy { $0.sharedCommunicationId.utf8.elementsEqual(route.utf8) })
        // Another spelling is the same call.
        var other = call
        other.sharedCommunicationId = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
        try await alice.messenger.sendOffer(call: other)
        try await alice.messenger.didEnd(call: call, endState: .userInitiated)
        try await eventuallyAsync("one call has ended") { bob.log.suffix(2) == ["offer o", "end partnerInitiated"] }
        for app in [alice, bob] { app.close() }
    }

    @Test func whatIsTooLongOrMalformedIsRefused() async throws {
        let server = SpoofServer()
        let (alice, bob) = try await couple(server)
        let (messenger, call) = (alice.messenger, alice.call("bob"))
        func refusal(_ body: () async throws -> Void) async -> CallError? {
            do { try await body() } catch { return error as? CallError }
            return nil
        }
        var long = call
        long.sessionDescription = SessionDescription(sdp: String(repeating: "v", count: 60_000), type: .offer)
        #expect(await refusal { try await messenger.sendOffer(call: long) } == .tooLong)
        let bytes = Data(count: CallEnvelope.ciphertextLimit + 1)
        #expect(
            await refusal {
                try await messenger.sendCiphertext(recipient: "bob", connectionId: "", ciphertext: bytes, call: call)
            } == .tooLong)
        let id = String(repeating: "i", count: 1025)
        #expect(
            await refusal {
                try await messenger.sendCiphertext(recipient: "bob", connectionId: id, ciphertext: Data(), call: call)
            } == .malformed)
        #expect(
            await refusal {
                try await messenger.sendCiphertext(recipient: "eve", connectionId: "", ciphertext: Data(), call: call)
            } == .notParticipant)
        for change: @Sendable (inout Call) -> Void in [
            { $0.metadata = nil }, { $0.metadata = Data("no JSON".utf8) }, { $0.sharedCommunicationId = "" },
            { $0.sharedCommunicationId = String(repeating: "c", count: 257) }, { $0.recipients = [] },
            { $0.sender.secretName = "" },
        ] {
            var changed = call
            change(&changed)
            #expect(await refusal { try await messenger.sendOffer(call: changed) } == .malformed)
        }
        for names in [["alice"], ["bob", "carol"]] {
            var changed = call
            changed.recipients = names.map(alice.participant)
            #expect(await refusal { try await messenger.sendOffer(call: changed) } == .notParticipant)
        }
        var group = call
        group.recipients = [alice.participant("sfu")]
        #expect(await refusal { try await messenger.sendOffer(call: group) } == .noServer)
        #expect(
            await refusal { try await messenger.sendCandidate(.numbered(-1), call: call) } == .malformed)
        // Nothing of it went out, and a good call still works.
        #expect(server.receivedBytes.isEmpty)
        try await messenger.sendOffer(call: call)
        try await wait(bob, for: ["offer o"])
        for app in [alice, bob] { app.close() }
    }

    /// A part is lost, or its sender has stopped in the middle: the rest is dropped, and the next ciphertext comes whole.
    @Test func aCiphertextWithoutAllItsPartsIsDropped() async throws {
        let server = SpoofServer()
        let (alice, bob) = try await couple(server)
        let call = alice.call("bob")
        try await alice.messenger.sendOffer(call: call)
        try await wait(bob, for: ["offer o"])
        var bare = call
        bare.metadata = nil
        let long = CallEnvelope.parts(of: Data(count: 40_000), "c", bare)
        var other = long[1]
        other.connectionId = "d"
        let short = CallEnvelope.parts(of: Data([1]), "c", bare)
        var number = 0
        for payload in [long[1], long[0], other, long[0], long[0], long[1], long[0], short[0], long[1]] {
            // A stream of its own, after that of the offer.
            let envelope = CallEnvelope(
                callId: call.sharedCommunicationId, call: call.id, from: "alice", to: "bob", .ciphertext,
                (Int64.max, number), payload)
            number += 1
            try await alice.messenger.send(
                SignalJob(to: "bob", kind: CallRouter.kind, text: try envelope.text(), lifetime: 30))
        }
        try await eventuallyAsync("all are dropped but two") {
            bob.messenger.callStatistics.dropped == ["expired": 5] && bob.session.records.ciphertexts.count == 2
        }
        #expect(bob.session.records.ciphertexts.map(\.bytes) == [Data(count: 40_000), Data([1])])
        for app in [alice, bob] { app.close() }
    }

    /// What nothing waits for is tried again while it matters.
    @Test func aNoticeThatCannotBeSentIsTriedAgain() async {
        var failures = 0
        let isSent = await CallRouter.persist(for: .seconds(600)) {
            failures += 1
            if failures < 3 { throw CallError.keysMissing }
        }
        #expect(isSent && failures == 3)
        let isSentAtLast = await CallRouter.persist(for: .milliseconds(300)) { throw CallError.keysMissing }
        #expect(!isSentAtLast)
        var attempts = 0
        let isClosed = await CallRouter.persist(for: .seconds(600)) {
            attempts += 1
            throw MessengerClosed()
        }
        #expect(!isClosed && attempts == 1)
    }

    /// Two people call each other at the same time under one id: the call of Alice goes on.
    @Test func ofTwoWhoCallEachOtherOneIsCalled() async throws {
        let server = SpoofServer()
        let (alice, bob) = try await couple(server)
        for (app, other) in [(alice, "bob"), (bob, "alice")] as [(CallApp, Username)] {
            try await app.app.chat(other).sendText("hello")
        }
        for (app, other) in [(alice, "bob"), (bob, "alice")] as [(CallApp, Username)] {
            try await eventuallyAsync("the text has come") { try await app.app.texts(with: other).count == 2 }
        }
        let calls = (alice.call("bob", sdp: "from alice", id: "us"), bob.call("alice", sdp: "from bob", id: "us"))
        // Bob's offer reaches Alice after she has made hers, and hers reaches him after that.
        let transport = try #require(alice.app.transport)
        try await transport.disconnect()
        try await alice.messenger.sendOffer(call: calls.0)
        try await bob.messenger.sendOffer(call: calls.1)
        try await transport.reconnect()
        try await eventuallyAsync("bob's phone rings: \(bob.log)") {
            Set(bob.log) == ["end userInitiatedUnanswered", "offer from alice"]
        }
        try await eventuallyAsync("bob's call was dropped") { alice.messenger.callStatistics.dropped["otherCall"] == 2 }
        #expect(alice.log.isEmpty)
        var answer = calls.0
        answer.sessionDescription = SessionDescription(sdp: "bob's", type: .answer)
        let metadata = try #require(bob.session.records.metadata.last)
        try await bob.messenger.sendAnswer(call: answer, metadata: metadata)
        try await wait(alice, for: ["answer bob's"])
        try await bob.messenger.didEnd(call: calls.0, endState: .userInitiated)
        try await wait(alice, for: ["answer bob's", "end partnerInitiated"])
        for app in [alice, bob] { app.close() }
    }

    @Test func aPersonWithoutKeysIsNotCalled() async throws {
        let server = SpoofServer()
        let alice = try await CallApp.register("alice", at: server)
        await #expect(throws: CallError.keysMissing) { try await alice.messenger.sendOffer(call: alice.call("nobody")) }
        #expect(server.receivedBytes.isEmpty)
        alice.close()
    }

    @Test func aSessionThatThrowsOrIsSlowDelaysNoOtherCall() async throws {
        let server = SpoofServer()
        let gate = AsyncStream.makeStream(of: Void.self)
        let session = RecordingSession { text, _ in
            if text == "offer slow" { for await _ in gate.stream {} }
            if text == "candidate 0" { throw CallError.malformed }
        }
        let (alice, bob) = try await couple(server, bob: session)
        let (slow, quick) = (alice.call("bob", sdp: "slow"), alice.call("bob", sdp: "quick"))
        try await alice.messenger.sendOffer(call: slow)
        try await alice.messenger.sendOffer(call: quick)
        for number in 0..<3 { try await alice.messenger.sendCandidate(.numbered(number), call: quick) }
        try await wait(bob, for: ["offer quick", "candidate 1", "candidate 2"])
        #expect(bob.messenger.callStatistics.sessionErrors == 1)
        // Texts are not delayed either.
        try await alice.app.chat("bob").sendText("hello")
        try await eventuallyAsync("the text has come") { try await bob.app.texts(with: "alice") == ["hello"] }
        gate.continuation.finish()
        try await eventuallyAsync("the slow one goes on") { bob.log.contains("offer slow") }
        for app in [alice, bob] { app.close() }
    }

    /// What waits for a session is dropped when the call ends.
    @Test func nothingComesAfterTheEnd() async throws {
        let server = SpoofServer()
        let gate = AsyncStream.makeStream(of: Void.self)
        let session = RecordingSession { text, _ in if text == "offer o" { for await _ in gate.stream {} } }
        let (alice, bob) = try await couple(server, bob: session)
        let call = alice.call("bob")
        try await alice.messenger.sendOffer(call: call)
        for number in 0..<5 { try await alice.messenger.sendCandidate(.numbered(number), call: call) }
        try await alice.messenger.didEnd(call: call, endState: .userInitiated)
        try await alice.app.chat("bob").sendText("after the end")
        try await eventuallyAsync("the end has come") { try await bob.app.texts(with: "alice").count == 1 }
        gate.continuation.finish()
        try await wait(bob, for: ["offer o", "end partnerInitiated"])
        for app in [alice, bob] { app.close() }
    }

    @Test func aStormOfCandidatesComesWholeAndInOrder() async throws {
        let server = SpoofServer()
        let (alice, bob) = try await couple(server)
        let call = alice.call("bob")
        try await alice.messenger.sendOffer(call: call)
        try await wait(bob, for: ["offer o"])
        for number in 0..<200 {
            try await alice.messenger.sendCandidate(.numbered(number, size: 12_500), call: call)
        }
        try await eventuallyAsync("all have come") { bob.log.count == 201 }
        #expect(bob.log.dropFirst().map { $0.filter(\.isNumber) } == (0..<200).map { "\($0)" })
        for app in [alice, bob] { app.close() }
    }

    // MARK: Several devices

    @Test func theOtherDevicesOfThePersonStopRinging() async throws {
        let server = SpoofServer()
        let alice = try await CallApp.register("alice", at: server)
        let bob = try await CallApp.register("bob", at: server, adopts: true)
        let (phone, tablet) = (
            try await CallApp.register("bob", at: server), try await CallApp.register("bob", at: server)
        )
        for device in [phone, tablet] {
            try await eventuallyAsync("it is adopted") { await device.messenger.isAdopted() }
        }
        // The devices of one person exchange keys.
        try await alice.app.chat("bob").sendText("hello")
        for device in [bob, phone, tablet] {
            try await eventuallyAsync("it has come") { try await device.app.texts(with: "alice") == ["hello"] }
        }
        let call = alice.call("bob")
        try await alice.messenger.sendOffer(call: call)
        for device in [bob, phone, tablet] { try await wait(device, for: ["offer o"]) }
        try await phone.answer()
        try await wait(alice, for: ["answer a"])
        for device in [bob, tablet] { try await wait(device, for: ["offer o", "end auxiliaryDeviceAnswered"]) }
        try await alice.messenger.sendCandidate(.numbered(1), call: call)
        try await wait(phone, for: ["offer o", "candidate 1"])
        try await phone.messenger.didEnd(call: call, endState: .userInitiated)
        try await wait(alice, for: ["answer a", "end partnerInitiated"])
        // A rejection on one device ends the ringing on all.
        let second = alice.call("bob", sdp: "2")
        try await alice.messenger.sendOffer(call: second)
        for device in [bob, phone, tablet] {
            try await eventuallyAsync("it rings") { device.log.last == "offer 2" }
        }
        try await bob.messenger.didEnd(call: second, endState: .partnerInitiatedRejected)
        try await wait(alice, for: ["answer a", "end partnerInitiated", "end partnerInitiatedRejected"])
        for device in [phone, tablet] {
            try await eventuallyAsync("it stops") { device.log.last == "end partnerInitiatedRejected" }
        }
        #expect(bob.log.last == "offer 2")
        for app in [alice, bob, phone, tablet] { app.close() }
    }

    // MARK: A hostile server

    /// The server delays, repeats, reorders and loses answers: all comes once and in order.
    @Test(arguments: [UInt64(1), 2, 3])
    func nothingIsLostRepeatedOrReordered(_ seed: UInt64) async throws {
        let server = SpoofServer(seed: seed)
        let (alice, bob) = try await couple(server)
        let call = alice.call("bob")
        try await alice.messenger.sendOffer(call: call)
        try await wait(bob, for: ["offer o"])
        server.setFaults(.all(10))
        for number in 0..<40 { try await alice.messenger.sendCandidate(.numbered(number), call: call) }
        try await eventuallyAsync("all have come, seed \(seed)") { bob.log.count == 41 }
        #expect(bob.log.dropFirst() == (0..<40).map { "candidate \($0)" }[...], "seed \(seed)")
        server.setFaults(SpoofServer.Faults())
        for app in [alice, bob] { app.close() }
    }

    /// The server was down for a while: candidates are not lost either.
    @Test func whatIsSentOfflineComesLater() async throws {
        let server = SpoofServer()
        let (alice, bob) = try await couple(server)
        let call = alice.call("bob")
        try await alice.messenger.sendOffer(call: call)
        try await wait(bob, for: ["offer o"])
        let transport = try #require(alice.app.transport)
        try await transport.disconnect()
        for number in 0..<5 { try await alice.messenger.sendCandidate(.numbered(number), call: call) }
        try await transport.reconnect()
        try await wait(bob, for: ["offer o"] + (0..<5).map { "candidate \($0)" })
        for app in [alice, bob] { app.close() }
    }

    /// Altered envelopes, and those of others, are not opened; descriptions cannot be exchanged.
    @Test func aServerThatSwapsDescriptionsIsDetected() async throws {
        let server = SpoofServer()
        let (alice, bob) = try await couple(server)
        let carol = try await CallApp.register("carol", at: server)
        try await alice.messenger.sendOffer(call: alice.call("bob", sdp: "from alice"))
        try await eventuallyAsync("it rings") { bob.log.count == 1 }
        let first = try #require(server.receivedBytes.max { $0.count < $1.count })
        let count = server.receivedBytes.count
        try await carol.messenger.sendOffer(call: carol.call("bob", sdp: "from carol"))
        try await eventuallyAsync("both ring") { bob.log.count == 2 }
        let before = bob.app.handler.events.unreadable.count
        let second = try #require(server.receivedBytes[count...].max { $0.count < $1.count })
        let half: Int = first.count / 2
        let spliced: [UInt8] = Array(first.prefix(half)) + Array(second.suffix(half))
        var flipped = first
        flipped[first.count - 1] ^= 1
        let deliveries: [([UInt8], Username, DeviceId)] = [
            (spliced, "alice", alice.messenger.deviceId), (flipped, "alice", alice.messenger.deviceId),
            // Under another name, and a second time.
            (first, "carol", carol.messenger.deviceId), (first, "alice", alice.messenger.deviceId),
            (second, "alice", alice.messenger.deviceId),
        ]
        for (bytes, user, device) in deliveries {
            try await bob.messenger.receiveServerEvent(
                .messageSent(RatchetedCypherMessage(bytes: bytes), id: "1", byUser: user, deviceId: device))
        }
        try await eventuallyAsync("it is reported") { bob.app.handler.events.unreadable.count >= before + 3 }
        #expect(bob.log.count == 2 && bob.session.records.calls.count == 2)
        for app in [alice, bob, carol] { app.close() }
    }

    /// A person can write under their own name only, whatever the envelope says.
    @Test func anEnvelopeUnderAnotherNameIsDropped() async throws {
        let server = SpoofServer()
        // One of the forged envelopes has a number that leaves a gap.
        var times = CallTimes.patient
        times.gap = 1_000
        let (alice, bob) = try await couple(server, times: times)
        let mallory = try await CallApp.register("mallory", at: server)
        let call = alice.call("bob")
        var forged: [CallEnvelope] = []
        func envelope(_ kind: CallEnvelope.Kind, from: String, to: String = "bob", _ call: Call) -> CallEnvelope {
            var bare = call
            bare.metadata = nil
            return CallEnvelope(
                callId: call.sharedCommunicationId, call: call.id, from: from, to: to, kind, (1, forged.count),
                .init(
                    call: bare, sdp: SessionDescription(sdp: "forged", type: .offer), endState: "failed",
                    caller: kind == .answered ? "alice" : nil))
        }
        try await alice.messenger.sendOffer(call: call)
        try await wait(bob, for: ["offer o"])
        try await mallory.app.chat("bob").sendText("hello")
        try await eventuallyAsync("keys are exchanged") { mallory.app.chat("bob").safetyNumber() != nil }
        // Under Alice's name; in a call of Alice; for somebody else; as Bob's other device.
        forged.append(envelope(.sdpOffer, from: "alice", call))
        forged.append(envelope(.sdpOffer, from: "mallory", call))
        forged.append(envelope(.sdpOffer, from: "mallory", to: "carol", mallory.call("bob")))
        forged.append(envelope(.answered, from: "mallory", mallory.call("bob")))
        forged.append(envelope(.end, from: "alice", call))
        for envelope in forged {
            try await mallory.messenger.send(
                SignalJob(to: "bob", kind: CallRouter.kind, text: try envelope.text(), lifetime: 30))
        }
        for text in ["", "{}", "{\"v\": 2}", "[1]"] {
            try await mallory.messenger.send(SignalJob(to: "bob", kind: CallRouter.kind, text: text, lifetime: 30))
        }
        try await eventuallyAsync("all are dropped") {
            bob.messenger.callStatistics.dropped.values.reduce(0, +) == forged.count + 4
        }
        let dropped = bob.messenger.callStatistics.dropped
        #expect(dropped["notParticipant"] == 4 && dropped["unexpected"] == 1)
        #expect(dropped["malformed"] == 3 && dropped["unknownVersion"] == 1)
        #expect(bob.log == ["offer o"])
        for app in [alice, bob, mallory] { app.close() }
    }
}
