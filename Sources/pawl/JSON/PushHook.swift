// Calls the operator's push hook for devices that are not connected. What is called, and when, is the queue's matter; this
// is the side of the network.

import AsyncHTTPClient
import JSONCodec
import JSONGateway
import Logging
import NIOPosix
import NIOSSL
import PawlConfiguration
import Protection
import RequestQueue
import RequestQueueAsyncHTTP
import RequestQueueClient
import Synchronization

/// Sends notices to the push hook: the token of a device, and nothing about the message.
final class PushHook: Sendable {
    /// Ours: how long a call may take, in milliseconds. A hook only accepts the notice.
    private static let timeout: Int64 = 10_000
    /// Ours: the pause between two looks at the queue, so that many messages cost one.
    private static let pause: Duration = .milliseconds(100)
    /// Ours: bytes of an answer that are read.
    private static let answerLimit = 64 << 10

    private let notices: PushNotices
    private let client: HTTPClient
    private let network: HTTPNetworkClient
    private let url: String
    private let secret: Secret?
    private let drop: @Sendable (PushQueue.Notice) -> Void
    private let logger: Logger
    private let signal: AsyncStream<Void>.Continuation
    private let task = Mutex<Task<Void, Never>?>(nil)
    private let lastFailure = Mutex<String?>(nil)

    /// - Parameter drop: removes a token that the hook does not know any more.
    /// - Throws: ``AdminFailure`` if the authorities cannot be used.
    init(
        _ configuration: PawlConfiguration.Push, _ notices: PushNotices, group: MultiThreadedEventLoopGroup,
        logger: Logger, drop: @escaping @Sendable (PushQueue.Notice) -> Void
    ) throws {
        (self.notices, self.drop, self.logger) = (notices, drop, logger)
        (url, secret) = (configuration.url?.text ?? "", configuration.secret)
        client = HTTPClient(eventLoopGroup: group, configuration: try Self.client(configuration))
        network = HTTPNetworkClient(client, largestResponse: Self.answerLimit)
        let (signals, signal) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        self.signal = signal
        notices.onChange { signal.yield() }
        task.withLock { task in
            task = Task { [weak self] in
                for await _ in signals {
                    self?.send()
                    try? await Task.sleep(for: Self.pause)
                }
            }
        }
        signal.yield()
    }

    /// The settings of the client that calls the hook.
    static func client(_ configuration: PawlConfiguration.Push) throws -> HTTPClient.Configuration {
        var settings = HTTPNetworkClient.configuration
        guard let authorities = configuration.authorities else { return settings }
        var tls = TLSConfiguration.makeClientConfiguration()
        tls.trustRoots = .file(authorities)
        do {
            _ = try NIOSSLContext(configuration: tls)
        } catch {
            throw AdminFailure(
                .authoritiesUnusable, "The authorities for the push hook's certificate cannot be used: \(error).")
        }
        settings.tlsConfiguration = tls
        return settings
    }

    /// Why the last call failed; nil after one that did not, and before the first.
    var failure: String? { lastFailure.withLock { $0 } }

    func close() async {
        signal.finish()
        task.withLock { $0 }?.cancel()
        try? await client.shutdown()
    }

    private func send() {
        let (due, next) = notices.take(now: SystemClock.now().monotonic)
        for notice in due { Task { await send(notice) } }
        guard let next else { return }
        let pause = max(next - SystemClock.now().monotonic, 0)
        Task { [signal] in
            try? await Task.sleep(for: .nanoseconds(pause))
            signal.yield()
        }
    }

    private func send(_ notice: PushQueue.Notice) async {
        var request = NetworkRequest(method: .post, url: url, timeoutInterval: Self.timeout)
        request.headers.append(.init("Content-Type", "application/json"))
        if let secret { request.headers.append(.init("Authorization", "Bearer \(secret.value)")) }
        request.body = JSONFragment.object([("version", .integer(1)), ("token", .string(notice.token))]).bytes
        let (end, words, retryAfter): (PushQueue.End, String?, Int64)
        do throws(NetworkFailure) {
            let response = try await network.send(request)
            (end, retryAfter) = (Self.end(response.status), Self.retryAfter(response))
            words = end == .delivered || end == .gone ? nil : "it answers \(response.status)"
        } catch {
            (end, words, retryAfter) = (.failed, "\(error.kind)", 0)
        }
        note(words)
        if notices.ended(notice, end, retryAfter: retryAfter, now: SystemClock.now().monotonic) { drop(notice) }
    }

    private static func end(_ status: Int) -> PushQueue.End {
        switch status {
        case 200..<300: .delivered
        case 410: .gone
        case 408, 425, 429, 500...: .failed
        default: .refused
        }
    }

    /// The pause that an answer asks for in whole seconds, in nanoseconds. RFC 9110 section 10.2.3.
    private static func retryAfter(_ response: NetworkResponse) -> Int64 {
        let field = response.headers.first { $0.name.lowercased() == "retry-after" }
        guard let seconds = field.flatMap({ Int64($0.value) }), (1...86_400).contains(seconds) else { return 0 }
        return seconds * 1_000_000_000
    }

    /// Logs when the hook begins to fail, and when it works again.
    private func note(_ failure: String?) {
        let before = lastFailure.withLock { last in
            defer { last = failure }
            return last
        }
        switch (before, failure) {
        case (nil, let failure?): logger.warning("the push hook fails: \(failure)")
        case (_?, nil): logger.notice("the push hook works again")
        default: break
        }
    }
}
