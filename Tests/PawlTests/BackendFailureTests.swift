import Foundation
import HTTPCodec
import HTTPServer
import NIOCore
import RequestQueue
import Testing

@testable import pawl

/// What the queue is told of a failure. Above all it has to know whether the backend may have received the request.
@Suite struct BackendFailureTests {
    private let refused = IOError(errnoCode: ECONNREFUSED, reason: "connect")
    private let reset = IOError(errnoCode: ECONNRESET, reason: "read")

    private func told(_ failure: UpstreamSender.Failure) -> NetworkFailure { BackendNetwork.failure(failure) }

    @Test func whatWasNotSentIsNotInDoubt() {
        for cause: any Error in [refused, reset, UpstreamError.timeout, UpstreamError.closed] {
            #expect(told(.unsent(cause)).kind == .unreachable, "\(cause)")
        }
        #expect(told(.unsent(refused)) == .cannotConnectToHost)
        #expect(told(.unsent(ChannelError.connectTimeout(.seconds(1)))).kind == .unreachable)
        // The queue tries again soon, and counts no attempt.
        #expect(told(.unsent(UpstreamError.noFreeConnection)) == .noFreeConnection)
    }

    @Test func whatWasSentIsInDoubt() {
        // The second connection for a request that was sent over a first one.
        #expect(told(.unanswered(refused)) == .networkConnectionLost)
        #expect(told(.unanswered(reset)) == .networkConnectionLost)
        #expect(told(.unanswered(UpstreamError.closed)) == .networkConnectionLost)
        #expect(told(.unanswered(UpstreamError.timeout)) == .timedOut)
        for cause: any Error in [UpstreamError.notHTTP(.malformed), UpstreamError.unaskedUpgrade] {
            #expect(told(.unanswered(cause)) == .badServerResponse)
        }
    }
}
