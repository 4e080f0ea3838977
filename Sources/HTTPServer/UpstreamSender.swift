// Sends requests of the queue over the connections that other requests use.

package import HTTPCodec
import JSONGateway
package import NIOCore
import NIOSupport

/// Sends whole requests on one event loop.
package final class UpstreamSender: Sendable {
    /// Why there is no answer.
    package enum Failure: Error {
        /// No byte of the request has reached the backend.
        case unsent(any Error)
        /// The backend may have received the request.
        case unanswered(any Error)
    }

    /// Confined to the event loop.
    private struct Running {
        var request: WholeRequest?
        var isCancelled = false
    }

    package let eventLoop: any EventLoop
    private let pool: UpstreamPool

    init(_ pool: UpstreamPool, on eventLoop: any EventLoop) { (self.pool, self.eventLoop) = (pool, eventLoop) }

    /// Sends a request once, and waits for its whole answer. An idempotent request is sent again if the backend has
    /// closed an idle connection just as it was reused. RFC 9110 section 9.2.2.
    ///
    /// - Parameters:
    ///   - head: `Host` and the body's length are added.
    ///   - timeout: for the whole answer.
    ///   - limit: maximum bytes of the body that are kept; the rest is not read.
    /// - Throws: ``Failure``, or `CancellationError` after the task is cancelled.
    package func send(
        _ head: RequestHead, _ body: ByteBuffer, timeout: TimeAmount, limit: Int
    ) async throws -> WholeAnswer {
        let promise = eventLoop.makePromise(of: WholeAnswer.self)
        let running = NIOLoopBoundBox.makeBoxSendingValue(Running(), eventLoop: eventLoop)
        let begin: @Sendable () -> Void = { [pool, eventLoop] in
            guard !running.value.isCancelled else { return promise.fail(CancellationError()) }
            let head = Self.complete(head, body, pool)
            let rules = WholeRequest.Rules(
                timeout: timeout, limit: limit, cuts: true, waits: true, retries: head.isIdempotent)
            let request = WholeRequest(head, body, rules: rules, pool: pool, eventLoop: eventLoop) { _, result in
                running.value.request = nil
                promise.completeWith(result.mapError { Self.failure($0, pool) })
            }
            running.value.request = request
            request.start()
        }
        return try await withTaskCancellationHandler {
            if eventLoop.inEventLoop { begin() } else { eventLoop.execute(begin) }
            return try await promise.futureResult.get()
        } onCancel: { [eventLoop] in
            eventLoop.execute {
                running.value.isCancelled = true
                guard let request = running.value.request else { return }
                running.value.request = nil
                request.cancel()
                promise.fail(CancellationError())
            }
        }
    }

    /// Adds the fields that a request needs.
    private static func complete(_ head: RequestHead, _ body: ByteBuffer, _ pool: UpstreamPool) -> RequestHead {
        var head = head
        head.addHost(pool.services.upstream().authority)
        if body.readableBytes > 0 || !["GET", "HEAD"].contains(head.method) {
            head.headers.set("Content-Length", to: "\(body.readableBytes)")
        }
        return head
    }

    /// Reports a failure as those of other requests are. The pool has reported the one of a connection that it could not
    /// open, but it does not know how long a request waits for one.
    private static func failure(_ error: any Error, _ pool: UpstreamPool) -> Failure {
        guard let unsent = error as? WholeRequest.Unsent else {
            pool.services.report(error)
            return .unanswered(error)
        }
        if case UpstreamError.noFreeConnection = unsent.cause { pool.services.report(unsent.cause) }
        return .unsent(unsent.cause)
    }
}
