import CallSignalling
import Foundation
import Synchronization

@testable import PawlMessenger

/// The RTC code of an app: it records what the messenger hands over, and answers if it is told to.
final class RecordingSession: RTCSession, RTCGroupCall {
    struct Records: Sendable {
        /// All events in their order, in words.
        var log: [String] = []
        var calls: [Call] = []
        var ciphertexts: [(from: String, device: String, connectionId: String, bytes: Data)] = []
        var metadata: [SDPNegotiationMetadata] = []
        var controls: [RTCGroupCallControlMessage] = []
    }

    private let state = Mutex(Records())
    /// Whether it takes part in group calls.
    let hasGroupCalls: Bool
    /// Runs before each event is recorded.
    let onEvent: @Sendable (String, Call?) async throws -> Void

    init(hasGroupCalls: Bool = true, onEvent: @escaping @Sendable (String, Call?) async throws -> Void = { _, _ in }) {
        (self.hasGroupCalls, self.onEvent) = (hasGroupCalls, onEvent)
    }

    var records: Records { state.withLock { $0 } }
    var log: [String] { records.log }

    private func note(_ text: String, _ call: Call?) async throws {
        try await onEvent(text, call)
        state.withLock { records in
            records.log.append(text)
            if let call { records.calls.append(call) }
        }
    }

    func handleOffer(call: Call, sdp: SessionDescription, metadata: SDPNegotiationMetadata) async throws {
        state.withLock { $0.metadata.append(metadata) }
        try await note("offer \(sdp.sdp)", call)
    }
    func handleAnswer(call: Call, sdp: SessionDescription) async throws { try await note("answer \(sdp.sdp)", call) }
    func handleCandidate(call: Call, candidate: IceCandidate) async throws {
        try await note("candidate \(candidate.sdp)", call)
    }
    func handleCiphertext(
        from participant: Call.Participant, connectionId: String, ciphertext: Data, call: Call
    ) async throws {
        state.withLock {
            $0.ciphertexts.append((participant.secretName, participant.deviceId, connectionId, ciphertext))
        }
        try await note("ciphertext", call)
    }
    func handleEnd(call: Call, endState: CallEndState) async { try? await note("end \(endState.rawValue)", call) }
    func groupCall(for call: Call) async -> (any RTCGroupCall)? { hasGroupCalls ? self : nil }

    func handleControlMessage(_ message: RTCGroupCallControlMessage) async throws {
        state.withLock { $0.controls.append(message) }
        let text =
            switch message {
            case .sfuAnswer(let sdp): "sfu answer \(sdp.sdp)"
            case .sfuCandidate(let candidate): "sfu candidate \(candidate.sdp)"
            case .groupControl(.invitation): "invitation"
            case .groupControl(.participants(let list, let version)):
                "participants \(version): \(list.map(\.secretName).joined(separator: " "))"
            case .groupControl(.participantDemuxId(let participant, let id)):
                "demux \(participant) \(id.map(String.init) ?? "none")"
            case .participantLeft(let participant): "left \(participant)"
            }
        try await note(text, nil)
    }
    func handleCiphertextFromParticipant(
        fromParticipantId: String, connectionId: String, ciphertext: Data
    ) async throws {
        state.withLock { $0.ciphertexts.append((fromParticipantId, "", connectionId, ciphertext)) }
        try await note("ciphertext from \(fromParticipantId)", nil)
    }
}

/// An app with calls.
struct CallApp {
    let app: App
    let session: RecordingSession

    static func register(
        _ name: Username, at server: SpoofServer, adopts: Bool = false, options: CallOptions = CallOptions(),
        times: CallTimes = .patient, session: RecordingSession = RecordingSession()
    ) async throws -> CallApp {
        let app = try await App.registerStubbornly(name, at: server, adopts: adopts)
        var options = options
        options.times = times
        app.messenger.setCallSession(session, options: options)
        return CallApp(app: app, session: session)
    }

    var messenger: CypherMessenger { app.messenger }
    var log: [String] { session.log }
    var name: String { messenger.username.raw }

    func participant(_ name: String) -> Call.Participant { Call.Participant(secretName: name, nickname: name) }

    /// A call of this person with an offer in it.
    func call(
        _ recipients: String..., sdp: String = "o", id: String = UUID().uuidString.lowercased()
    ) -> Call {
        var call = Call(
            sharedCommunicationId: id, sender: participant(name), recipients: recipients.map(participant),
            createdAt: Date(timeIntervalSince1970: 1_700_000_000))
        call.sessionDescription = SessionDescription(sdp: sdp, type: .offer)
        return call
    }

    /// Answers the last offer.
    func answer(_ sdp: String = "a") async throws {
        guard var call = session.records.calls.last, let metadata = session.records.metadata.last else {
            throw CallError.noCall
        }
        call.sessionDescription = SessionDescription(sdp: sdp, type: .answer)
        try await messenger.sendAnswer(call: call, metadata: metadata)
    }

    func close() { app.close() }
}

extension IceCandidate {
    static func numbered(_ number: Int, size: Int = 0) -> IceCandidate {
        IceCandidate(
            id: number, sdp: "\(number)" + String(repeating: "x", count: size), sdpMLineIndex: 0, sdpMid: "0")
    }
}

extension CallTimes {
    /// Times for tests beside others: no phone stops ringing because the machine is busy.
    static let patient: CallTimes = {
        var times = CallTimes()
        (times.gap, times.ringing, times.answering, times.message) = (120_000, 600_000, 600_000, 600)
        return times
    }()
}
