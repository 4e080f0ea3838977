import Foundation
import PawlMessenger
import Testing

/// The examples of the document about call signalling, with these substitutions:
///
/// - `RTCTransportEvents`, `RTCSession` and `RTCGroupCall` are protocols of this library: the app's RTC code implements the
///   last two.
/// - The types that the document names without showing them are those of `Calls/Call.swift`. `didEnd(call:endState:)`
///   takes a `CallEndState`.
/// - "Ciphertext of a call of two goes into the call setup flow" is `RTCSession.handleCiphertext(from:connectionId:
///   ciphertext:call:)`. The end of a call, which the document has no entry for, is `RTCSession.handleEnd(call:endState:)`.
/// - The suggested envelope has the members `v`, `call`, `stream` and `seq` as well, and the types `answered` and `end`.
/// - `groupControl` is a case of `RTCGroupCallControlMessage`, beside `.sfuAnswer` and `.sfuCandidate`.
@Suite struct CallDocumentTests {
    /// The five outbound callbacks. If a name or a label differed, this type would not conform.
    private actor DocumentedTransport: RTCTransportEvents {
        var calls: [String] = []

        func sendOffer(call: Call) async throws { calls.append("sendOffer(call:)") }
        func sendAnswer(call: Call, metadata: SDPNegotiationMetadata) async throws {
            calls.append("sendAnswer(call:metadata:)")
        }
        func sendCandidate(_ candidate: IceCandidate, call: Call) async throws {
            calls.append("sendCandidate(_:call:)")
        }
        func sendCiphertext(
            recipient: String, connectionId: String, ciphertext: Data, call: Call
        ) async throws { calls.append("sendCiphertext(recipient:connectionId:ciphertext:call:)") }
        func didEnd(call: Call, endState: CallEndState) async throws { calls.append("didEnd(call:endState:)") }
    }

    /// What an app does with all callbacks.
    private func useAll(of transport: some RTCTransportEvents, _ call: Call) async throws {
        try await transport.sendOffer(call: call)
        try await transport.sendAnswer(
            call: call, metadata: .init(offerSecretName: "bob", offerDeviceId: "1", answerDeviceId: "2"))
        try await transport.sendCandidate(.init(id: 0, sdp: "c", sdpMLineIndex: 0, sdpMid: nil), call: call)
        try await transport.sendCiphertext(recipient: "bob", connectionId: "c", ciphertext: Data(), call: call)
        try await transport.didEnd(call: call, endState: .userInitiated)
    }

    @Test func theFiveCallbacksHaveTheirNames() async throws {
        let transport = DocumentedTransport()
        try await useAll(of: transport, CallEnvelopeTests.call)
        #expect(await transport.calls.count == 5)
    }

    /// The messenger is such a transport.
    @Test func theMessengerImplementsTheCallbacks() async throws {
        let server = SpoofServer()
        let app = try await App.register("alice", at: server)
        let transport: any RTCTransportEvents = app.messenger
        await #expect(throws: CallError.self) { try await transport.sendOffer(call: CallEnvelopeTests.call) }
        app.close()
    }

    /// The inbound entry points, as the document routes to them.
    @Test func theEntryPointsHaveTheirNames() async throws {
        let recording = RecordingSession()
        let (session, group): (any RTCSession, any RTCGroupCall) = (recording, recording)
        let call = CallEnvelopeTests.call
        let sdp = SessionDescription(sdp: "v=0", type: .offer)
        let candidate = IceCandidate(id: 0, sdp: "c", sdpMLineIndex: 0, sdpMid: nil)
        try await session.handleOffer(
            call: call, sdp: sdp, metadata: .init(offerSecretName: "alice", offerDeviceId: "1", answerDeviceId: "2"))
        try await session.handleAnswer(call: call, sdp: sdp)
        try await session.handleCandidate(call: call, candidate: candidate)
        try await group.handleControlMessage(.sfuAnswer(sdp))
        try await group.handleControlMessage(.sfuCandidate(candidate))
        try await group.handleControlMessage(.groupControl(.invitation))
        try await group.handleCiphertextFromParticipant(
            fromParticipantId: "bob", connectionId: "c", ciphertext: Data([1]))
        #expect(
            recording.log == [
                "offer v=0", "answer v=0", "candidate c", "sfu answer v=0", "sfu candidate c", "invitation",
                "ciphertext from bob",
            ])
    }

    /// The suggested envelope: its five members and its five types are those of the envelope that is sent.
    @Test func theEnvelopeHasTheSuggestedMembers() async throws {
        let server = SpoofServer()
        let app = try await App.register("alice", at: server)
        let session = RecordingSession()
        let (texts, sent) = AsyncStream.makeStream(of: String.self)
        var options = CallOptions()
        options.sfu = .plain(name: "media") { text in sent.yield(text) }
        app.messenger.setCallSession(session, options: options)
        // Joining a group call: the server is a recipient called "sfu".
        var call = CallEnvelopeTests.call
        call.recipients.append(.init(secretName: "sfu", nickname: "sfu"))
        call.sessionDescription = SessionDescription(sdp: "v=0", type: .offer)
        try await app.messenger.sendOffer(call: call)
        var iterator = texts.makeAsyncIterator()
        let text = try #require(await iterator.next())
        let object = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        #expect(object["callId"] as? String == call.sharedCommunicationId)
        #expect(object["from"] as? String == "alice" && object["to"] as? String == "sfu")
        #expect(object["type"] as? String == "sdpOffer" && object["payload"] is [String: Any])
        for type in ["sdpOffer", "sdpAnswer", "iceCandidate", "ciphertext", "groupControl"] {
            #expect(CallEnvelopeTests.kinds.contains(type))
        }
        app.close()
    }
}
