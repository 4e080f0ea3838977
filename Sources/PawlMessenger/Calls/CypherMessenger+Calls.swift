// Calls of a messenger, as the app's RTC code uses them.

public import Foundation

extension CypherMessenger: RTCTransportEvents {
    /// Sets what takes the messages about calls, and how this messenger takes part in them.
    ///
    /// Messages that came before were dropped: set it right after the registration.
    ///
    /// - Parameters:
    ///   - session: held weakly.
    ///   - options: how this messenger takes part.
    public func setCallSession(_ session: any RTCSession, options: CallOptions = CallOptions()) {
        callRouter.start(self, session, options)
    }

    /// What became of the messages about calls.
    public var callStatistics: CallStatistics { callRouter.statistics }

    /// Sends the offer in `call.metadata`; see ``RTCTransportEvents/sendOffer(call:)``.
    public func sendOffer(call: Call) async throws { try await callRouter.send(offer: call) }

    /// Sends the answer in `call.metadata`; see ``RTCTransportEvents/sendAnswer(call:metadata:)``.
    ///
    /// The person's other devices stop ringing.
    public func sendAnswer(call: Call, metadata: SDPNegotiationMetadata) async throws {
        try await callRouter.send(answer: call, metadata)
    }

    /// Sends a candidate; see ``RTCTransportEvents/sendCandidate(_:call:)``.
    public func sendCandidate(_ candidate: IceCandidate, call: Call) async throws {
        try await callRouter.send(candidate: candidate, call)
    }

    /// Sends a ciphertext; see ``RTCTransportEvents/sendCiphertext(recipient:connectionId:ciphertext:call:)``.
    public func sendCiphertext(recipient: String, connectionId: String, ciphertext: Data, call: Call) async throws {
        try await callRouter.send(ciphertext: ciphertext, connectionId, to: recipient, call)
    }

    /// Ends a call; see ``RTCTransportEvents/didEnd(call:endState:)``.
    public func didEnd(call: Call, endState: CallEndState) async throws { try await callRouter.end(call, endState) }

    /// Sends an invitation to a participant of a group call; or, from its server, what all have to know.
    ///
    /// - Parameters:
    ///   - control: what all have to know.
    ///   - participant: the `secretName` of a participant.
    ///   - call: the group call.
    /// - Throws: ``CallError``
    public func sendGroupControl(_ control: GroupControl, to participant: String, call: Call) async throws {
        try await callRouter.send(control: control, to: participant, call)
    }

    /// Takes an envelope of a server without keys.
    ///
    /// - Throws: ``CallError/noServer`` unless ``CallOptions/sfu`` allows the server by this name.
    public func receivePlainSignal(_ text: String, fromServer name: String) throws {
        try callRouter.receive(plain: text, from: name)
    }
}
