// Requests that do not belong to a client's connection: they are sent whole, and their answer is collected.

package import HTTPCodec
package import NIOCore
import NIOSupport
import Protection

/// A collected answer of the backend.
package struct WholeAnswer: Sendable {
    package var head: ResponseHead
    package var body: ByteBuffer
    /// Whether the body was larger than the limit, so that only its beginning is here.
    package var isCut = false
}

/// Sends one request and collects its answer. The caller keeps it until it has called `done` or is cancelled. Confined to
/// its event loop.
final class WholeRequest: UpstreamUser {
    /// What differs between the requests of the gateway itself and those of the queue.
    struct Rules {
        /// For everything, from the connection to the end of the answer.
        var timeout: TimeAmount
        /// Maximum bytes of the answer's body that are kept.
        var limit: Int
        /// Whether a longer answer is cut; if false, it is a failure.
        ///
        /// If it is cut, it is also collected without room in the budget: the write that it answers is done.
        var cuts: Bool
        /// Whether the request waits for a connection if there are too many.
        var waits: Bool
        /// Whether it is sent again over a new connection if the backend has closed an idle one just as it was reused.
        var retries: Bool
    }

    /// Ours: bytes of a head for which room is made at once. A longer one costs another allocation.
    private static let usualHead = 1024
    /// Ours: the largest body that is copied behind its head, in bytes. For a larger one a second write costs less.
    private static let copiedBody = 4096

    /// The answer is longer than the limit.
    struct TooLong: Error {}

    /// There is no room in the budget for the answer.
    struct NoRoom: Error {}

    /// Why a request was not sent: no byte of it has reached the backend.
    struct Unsent: Error { let cause: any Error }

    private let pool: UpstreamPool
    private let head: RequestHead
    private let body: ByteBuffer
    private let rules: Rules
    private let done: (WholeRequest, Result<WholeAnswer, any Error>) -> Void
    private var upstream: UpstreamConnection?
    private var response: ResponseHead?
    private var received = ByteBuffer()
    private let room: ByteReservation
    private var isSent = false
    private var hasRetried = false
    private var timer: Scheduled<Void>?
    package private(set) var isCancelled = false

    /// - Parameters:
    ///   - payer: the account for which the answer is collected; nil if it is unknown.
    ///   - done: called once, unless the request is cancelled before.
    init(
        _ head: RequestHead, _ body: ByteBuffer = ByteBuffer(), rules: Rules, payer: AccountID? = nil,
        pool: UpstreamPool, eventLoop: any EventLoop,
        done: @escaping (WholeRequest, Result<WholeAnswer, any Error>) -> Void
    ) {
        (self.head, self.body, self.rules, self.pool, self.done) = (head, body, rules, pool, done)
        room = pool.services.budget.reservation(of: payer)
        timer = eventLoop.assumeIsolated().scheduleTask(in: rules.timeout) {
            self.fail(self.isSent ? UpstreamError.timeout : Unsent(cause: UpstreamError.noFreeConnection))
        }
    }

    package func start() { pool.lease(self, isFresh: false, waits: rules.waits) }

    package func cancel() {
        isCancelled = true
        timer?.cancel()
        pool.withdraw(self)
        upstream?.close()
        upstream = nil
        room.release()
    }

    private func finish(_ result: Result<WholeAnswer, any Error>) {
        guard !isCancelled else { return }
        isCancelled = true
        timer?.cancel()
        pool.withdraw(self)
        done(self, result)
        room.release()
    }

    private func fail(_ error: any Error) {
        upstream?.close()
        upstream = nil
        finish(.failure(error))
    }

    // MARK: Upstream

    var takesAnswer: Bool { true }
    package var readsAnswer: Bool { true }

    func leased(_ upstream: UpstreamConnection) {
        self.upstream = upstream
        isSent = true
        let isCopied = body.readableBytes <= Self.copiedBody
        var bytes = ByteBuffer()
        bytes.reserveCapacity(Self.usualHead + (isCopied ? body.readableBytes : 0))
        bytes.write(head)
        if isCopied { bytes.writeImmutableBuffer(body) }
        upstream.begin(bytes, isToHead: head.method == "HEAD", isWhole: true)
        if !isCopied { upstream.write(body) }
        upstream.flush()
    }

    func leaseFailed(_ error: any Error) { finish(.failure(isSent ? error : Unsent(cause: error))) }

    package func answered(_ response: ReceivedResponse) {
        guard response.head.status >= 200 else {
            // The request never asks for an upgrade.
            if response.head.status == 101 { fail(UpstreamError.unaskedUpgrade) }
            return
        }
        self.response = response.head
    }

    package func answered(_ bytes: ByteBuffer) {
        let rest = rules.limit - received.readableBytes
        guard bytes.readableBytes > rest else {
            received.writeImmutableBuffer(bytes)
            if !room.resize(to: received.readableBytes, for: .lookup) {
                guard rules.cuts else { return fail(NoRoom()) }
                room.set(received.readableBytes)
            }
            return
        }
        guard rules.cuts, let response else { return fail(TooLong()) }
        received.writeBytes(bytes.readableBytesView.prefix(rest))
        // The rest is not read, so the connection cannot be used again.
        upstream?.close()
        upstream = nil
        finish(.success(WholeAnswer(head: response, body: received, isCut: true)))
    }

    func answerEnded(_: HeaderFields) {
        let upstream = upstream
        self.upstream = nil
        upstream?.release()
        guard let response else { return finish(.failure(UpstreamError.closed)) }
        finish(.success(WholeAnswer(head: response, body: received)))
    }

    func upstreamBroke(_ error: any Error) {
        let wasStale = upstream?.mayBeStale == true
        upstream = nil
        guard !isCancelled else { return }
        guard wasStale, rules.retries, !hasRetried else { return finish(.failure(error)) }
        hasRetried = true
        pool.lease(self, isFresh: true, waits: rules.waits)
    }

    package func upstreamReadComplete() {}
    func upstreamIsWritable() {}
    func upstreamBytes(_: ByteBuffer) {}
    package func upstreamInputEnded() {}
}
