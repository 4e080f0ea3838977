// Sends the gateway's own requests to the backend.

import HTTPCodec
import JSONGateway
import NIOCore

/// Executes one ``Lookup``. Lives until it has called `done` or is cancelled.
final class LookupRunner: UpstreamUser {
    private let pool: UpstreamPool
    private let lookup: Lookup
    private let done: (LookupRunner, ExchangeEvent) -> Void
    private var upstream: UpstreamConnection?
    private var response: ResponseHead?
    private var body = ByteBuffer()
    private var hasRetried = false
    private var timer: Scheduled<Void>?
    package private(set) var isCancelled = false

    /// - Parameter done: called once, with `found` or `notFound`.
    init(
        _ lookup: Lookup, pool: UpstreamPool, eventLoop: any EventLoop,
        done: @escaping (LookupRunner, ExchangeEvent) -> Void
    ) {
        (self.lookup, self.pool, self.done) = (lookup, pool, done)
        timer = eventLoop.assumeIsolated().scheduleTask(in: pool.services.limits.lookup) { self.fail() }
    }

    package func start() { pool.lease(self, isFresh: false, waits: false) }

    package func cancel() {
        isCancelled = true
        timer?.cancel()
        upstream?.close()
        upstream = nil
    }

    private func finish(_ event: ExchangeEvent) {
        guard !isCancelled else { return }
        isCancelled = true
        timer?.cancel()
        done(self, event)
    }

    private func fail() {
        upstream?.close()
        upstream = nil
        finish(.notFound(lookup.id))
    }

    // MARK: Upstream

    var takesAnswer: Bool { true }
    package var readsAnswer: Bool { true }

    func leased(_ upstream: UpstreamConnection) {
        self.upstream = upstream
        var bytes = ByteBuffer()
        bytes.write(lookup.head)
        upstream.begin(bytes, isToHead: lookup.head.method == "HEAD", isWhole: true)
        upstream.flush()
    }

    func leaseFailed(_: any Error) { finish(.notFound(lookup.id)) }

    package func answered(_ response: ReceivedResponse) {
        guard response.head.status >= 200 else {
            // A lookup never requests an upgrade.
            if response.head.status == 101 { fail() }
            return
        }
        self.response = response.head
    }

    package func answered(_ bytes: ByteBuffer) {
        guard body.readableBytes + bytes.readableBytes <= lookup.limit else { return fail() }
        body.writeImmutableBuffer(bytes)
    }

    func answerEnded(_: HeaderFields) {
        let upstream = upstream
        self.upstream = nil
        upstream?.release()
        guard let response else { return finish(.notFound(lookup.id)) }
        finish(.found(lookup.id, response, body))
    }

    func upstreamBroke(_: any Error) {
        let wasStale = (upstream?.uses ?? 0) > 1 && upstream?.hasAnswered == false
        upstream = nil
        guard !isCancelled else { return }
        guard wasStale, !hasRetried else { return finish(.notFound(lookup.id)) }
        hasRetried = true
        pool.lease(self, isFresh: true, waits: false)
    }

    package func upstreamReadComplete() {}
    func upstreamIsWritable() {}
    func upstreamBytes(_: ByteBuffer) {}
    package func upstreamInputEnded() {}
}
