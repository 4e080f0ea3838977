// The connections of one event loop to the backend.

import DequeModule
import JSONGateway
import NIOCore
import NIOPosix
import NIOSSL
import NIOSupport

/// Keeps and opens connections to the backend. Confined to its event loop, hence `@unchecked Sendable`.
final class UpstreamPool: @unchecked Sendable {
    package let services: HTTPServices
    private let eventLoop: any EventLoop
    /// Idle connections, last in first out, so that surplus ones expire.
    private var idle: [UpstreamConnection] = []
    private var waiting: Deque<Waiting> = []
    private var open = 0 {
        didSet { services.meters.upstreamChanged(by: open - oldValue) }
    }
    package private(set) var generation = 0
    private var isStopped = false
    private var sweep: Scheduled<Void>?

    /// A user that waits because there are too many connections.
    private struct Waiting {
        let user: any UpstreamUser
        /// Whether it has to be a new connection.
        let isFresh: Bool
    }

    init(services: HTTPServices, eventLoop: any EventLoop) {
        (self.services, self.eventLoop) = (services, eventLoop)
    }

    /// Assigns a connection to a user: an idle one at once, or a new one later.
    ///
    /// - Parameters:
    ///   - isFresh: whether it has to be a new connection.
    ///   - waits: whether the user waits if there are too many connections. False for a lookup, whose exchange may hold
    ///     a connection already: waiting could deadlock.
    package func lease(_ user: any UpstreamUser, isFresh: Bool, waits: Bool = true) {
        while !isFresh, let upstream = idle.popLast() {
            guard upstream.isUsable else {
                upstream.close()
                continue
            }
            upstream.user = user
            return user.leased(upstream)
        }
        guard waits, open >= services.limits.upstreamConnections else { return connect(user) }
        waiting.append(Waiting(user: user, isFresh: isFresh))
        // Its end makes room for a new one.
        if isFresh, !idle.isEmpty { idle.removeFirst().close() }
    }

    /// Removes a user that no longer needs a connection, if it waits for one.
    package func withdraw(_ user: any UpstreamUser) {
        if !waiting.isEmpty { waiting.removeAll { $0.user === user } }
    }

    private func connect(_ user: any UpstreamUser) {
        open += 1
        let options = services.upstream()
        let generation = generation
        let limits = services.limits
        let bound = NIOLoopBound(user, eventLoop: eventLoop)
        // A host with several addresses gets a channel for each attempt (RFC 8305), and each has a connection of its own.
        // One that does not become active reports nothing to the pool.
        let attempts = NIOLoopBoundBox<[UpstreamConnection]>([], eventLoop: eventLoop)
        ClientBootstrap(group: eventLoop)
            .resolver(options.resolver)
            .connectTimeout(options.connectTimeout)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.autoRead, value: false)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .transientReadBuffers()
            .channelOption(
                .writeBufferWaterMark, value: .init(low: limits.window / 2, high: limits.window)
            )
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addGate(options.gate, dropsAtClose: true)
                    if let tls = options.tls {
                        try channel.pipeline.syncOperations.addHandler(
                            try NIOSSLClientHandler(context: tls, serverHostname: options.serverName))
                    }
                    let upstream = UpstreamConnection(pool: self, generation: generation)
                    try channel.pipeline.syncOperations.addHandler(upstream)
                    attempts.value.append(upstream)
                }
            }
            .connect(host: options.host, port: options.port)
            .whenComplete { result in
                let user = bound.value
                let made = attempts.value
                attempts.value = []
                switch result {
                case .success(let channel):
                    guard let upstream = made.first(where: { $0.channel === channel }) else {
                        channel.close(promise: nil)
                        return self.failed(user, UpstreamError.closed)
                    }
                    guard options.tls != nil else { return self.connected(upstream, user) }
                    self.secure(upstream, user, channel, limit: options.connectTimeout)
                case .failure(let error):
                    // A channel that never became active does not become inactive either, so `closed` is not called.
                    self.open -= 1
                    self.failed(user, error)
                    self.serveNext()
                }
            }
    }

    /// Waits for TLS, for the connect timeout at most, because a backend may accept the connection and never begin TLS.
    private func secure(
        _ upstream: UpstreamConnection, _ user: any UpstreamUser, _ channel: any Channel, limit: TimeAmount
    ) {
        let bound = NIOLoopBound((upstream, user), eventLoop: eventLoop)
        let timer = eventLoop.scheduleTask(in: limit) {
            bound.value.0.secured(UpstreamError.timeout)
            channel.close(promise: nil)
        }
        upstream.onSecured = { [unowned upstream] failure in
            timer.cancel()
            if let failure { self.failed(user, failure) } else { self.connected(upstream, user) }
        }
        channel.read()
    }

    private func connected(_ upstream: UpstreamConnection, _ user: any UpstreamUser) {
        if upstream.channel?.isActive != true { return failed(user, UpstreamError.closed) }
        guard !user.isCancelled else { return takeBack(upstream) }
        upstream.user = user
        user.leased(upstream)
    }

    private func failed(_ user: any UpstreamUser, _ error: any Error) {
        services.report(error)
        if !user.isCancelled { user.leaseFailed(error) }
    }

    /// Takes a released connection: assigns it to a waiting user, keeps it idle, or closes it.
    package func takeBack(_ upstream: UpstreamConnection) {
        // One with earlier options may lead to another backend.
        guard upstream.generation == generation else { return upstream.close() }
        if let next = waiting.first {
            // A used connection makes room for a new one.
            guard upstream.isUnused || !next.isFresh else { return upstream.close() }
            waiting.removeFirst()
            upstream.user = next.user
            return next.user.leased(upstream)
        }
        guard !isStopped, idle.count < services.limits.idleUpstream else { return upstream.close() }
        upstream.idleSince = .now()
        idle.append(upstream)
        if sweep == nil { scheduleSweep() }
        upstream.channel?.read()
    }

    package func closed(_ upstream: UpstreamConnection) {
        open -= 1
        if let index = idle.firstIndex(where: { $0 === upstream }) { idle.remove(at: index) }
        serveNext()
    }

    private func serveNext() {
        guard open < services.limits.upstreamConnections, let next = waiting.popFirst() else { return }
        connect(next.user)
    }

    private func scheduleSweep() {
        sweep = eventLoop.assumeIsolated().scheduleTask(in: services.limits.idleUpstreamTime) {
            self.sweep = nil
            let oldest = NIODeadline.now() - self.services.limits.idleUpstreamTime
            let old = self.idle.filter { $0.idleSince <= oldest }
            self.idle.removeAll { $0.idleSince <= oldest }
            for upstream in old { upstream.close() }
            if !self.idle.isEmpty { self.scheduleSweep() }
        }
    }

    /// Stops the reuse of existing connections, because the upstream options have changed.
    package func renew() {
        generation += 1
        let old = idle
        idle = []
        for upstream in old { upstream.close() }
    }

    package func stop() {
        isStopped = true
        sweep?.cancel()
        renew()
    }
}
