// Hands the messages of one side of a call to the app's session, one after the other.

import Foundation
import Synchronization

/// The lane of one side of a call.
final class CallLane: Sendable {
    enum Delivery: Sendable {
        case offer(Call, SessionDescription, SDPNegotiationMetadata)
        case answer(Call, SessionDescription)
        case candidate(Call, IceCandidate)
        case ciphertext(Call.Participant, String, Data, Call)
        case groupCiphertext(Call, String, String, Data)
        case control(Call, RTCGroupCallControlMessage)
    }

    /// Ours: messages that wait for a session that does not return. More than a storm of candidates has.
    private static let limit = 512

    private enum End {
        case none
        /// What waits is dropped.
        case at(Call, CallEndState)
        case silent
    }

    private let deliveries: AsyncStream<Delivery>.Continuation
    private let end = Mutex(End.none)

    init(session: @escaping @Sendable () -> (any RTCSession)?, onError: @escaping @Sendable () -> Void) {
        let (stream, deliveries) = AsyncStream.makeStream(
            of: Delivery.self, bufferingPolicy: .bufferingOldest(Self.limit))
        self.deliveries = deliveries
        Task { [self] in
            for await delivery in stream {
                guard !hasEnded, let session = session() else { continue }
                do {
                    try await Self.hand(delivery, to: session)
                } catch {
                    onError()
                }
            }
            if case .at(let call, let endState) = end.withLock({ $0 }) {
                await session()?.handleEnd(call: call, endState: endState)
            }
        }
    }

    private var hasEnded: Bool { end.withLock { if case .none = $0 { false } else { true } } }

    /// - Returns: false if too many wait.
    func yield(_ delivery: Delivery) -> Bool {
        if case .dropped = deliveries.yield(delivery) { false } else { true }
    }

    /// Drops what waits.
    ///
    /// - Parameter endState: for the session; nil if it knows of the end.
    func finish(_ endState: (Call, CallEndState)?) {
        end.withLock { end in
            guard case .none = end else { return }
            end = endState.map { .at($0.0, $0.1) } ?? .silent
        }
        deliveries.finish()
    }

    /// Ends when all that waits was handed over.
    func finishAfterAll() { deliveries.finish() }

    private static func hand(_ delivery: Delivery, to session: any RTCSession) async throws {
        switch delivery {
        case .offer(let call, let sdp, let metadata):
            try await session.handleOffer(call: call, sdp: sdp, metadata: metadata)
        case .answer(let call, let sdp): try await session.handleAnswer(call: call, sdp: sdp)
        case .candidate(let call, let candidate): try await session.handleCandidate(call: call, candidate: candidate)
        case .ciphertext(let participant, let id, let bytes, let call):
            try await session.handleCiphertext(from: participant, connectionId: id, ciphertext: bytes, call: call)
        case .groupCiphertext(let call, let name, let id, let bytes):
            try await session.groupCall(for: call)?.handleCiphertextFromParticipant(
                fromParticipantId: name, connectionId: id, ciphertext: bytes)
        case .control(let call, let message):
            try await session.groupCall(for: call)?.handleControlMessage(message)
        }
    }
}
