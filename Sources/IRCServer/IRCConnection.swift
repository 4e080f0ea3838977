// One client's socket, its socket to the backend, and their session machine. Only this file turns the machine's output
// into writes, reads and timers. Everything here runs on one event loop.

import IRCCodec
import IRCGateway
import NIOCore
import NIOPosix
import NIOSSL
import NIOSupport
import Protection
import Reports
import Vault

/// The runner of one session machine. `@unchecked Sendable`, because it is confined to its event loop.
final class IRCConnection: CommitClient, @unchecked Sendable {
    package let id: ConnectionID
    package let eventLoop: any EventLoop
    package let services: ConnectionServices
    package private(set) var machine: IRCConnectionMachine
    package let output: MachineOutput
    package let downstream: any Channel
    package var upstream: (any Channel)?
    /// The end of patience with a client that has not begun, then with the backend's handshake of TLS.
    private var handshake: Scheduled<Void>?
    private var timer: (at: Int64, scheduled: Scheduled<Void>)?
    /// The client's address from a trusted peer; nil if none was sent.
    var proxied: ProxiedAddresses?
    /// The client's TLS, which ends here or at a trusted peer; nil if there is none.
    var security: ClientSecurity?
    /// Whether the client's handshake of TLS is not over.
    private var awaitsTLS: Bool
    var reconnection = Reconnection()
    private var addressReader: ProxiedAddressReader
    private var early = ByteBuffer()
    var isDownstreamOpen = true
    var isDownstreamInputOpen = true
    var isUpstreamInputOpen = true
    private var sentUpstreamEnd = false
    private var sentDownstreamEnd = false
    var isFinished = false
    var hasReceivedFromUpstream = false
    private let usesWebSocket: Bool
    /// Whether the handshake of a WebSocket is not over: nothing of IRC can be written.
    var isInHandshake = false
    /// Whether the gateway is being stopped, so that the client is no longer read.
    private var isStopping = false
    private var downstreamNeedsFlush = false
    private var upstreamNeedsFlush = false

    /// - Parameter listener: the one that has accepted the client.
    init(
        id: ConnectionID, downstream: any Channel, output: MachineOutput, listener: ListenerOptions,
        services: ConnectionServices
    ) {
        self.id = id
        self.downstream = downstream
        self.output = output
        self.services = services
        eventLoop = downstream.eventLoop
        usesWebSocket = listener.usesWebSocket
        awaitsTLS = listener.usesTLS
        machine = IRCConnectionMachine(
            id: id, environment: services.environment,
            mayStartTLS: !listener.usesTLS && !listener.usesWebSocket)
        var options = services.downstream()
        // WEBIRC is a line of IRC; a proxy for WebSockets names the client in a field of its request.
        if usesWebSocket { options.webIRCPassword = nil }
        addressReader = ProxiedAddressReader(
            options: options, peer: downstream.remoteAddress, usesTLS: listener.usesTLS)
    }

    /// Whether a PROXY header precedes TLS, so that the TLS handler is added after the header.
    package var expectsHeaderBeforeTLS: Bool { addressReader.isBeforeTLS }

    // MARK: Start

    package func accepted() {
        services.environment.tally.add(.connectionsAccepted)
        services.register(self, id)
        if awaitsTLS || !addressReader.isDone { boundBeginning() }
        if addressReader.isDone { begin() }
        downstream.read()
    }

    /// Nothing is connected meanwhile that would end the connection.
    private func boundBeginning() {
        handshake = eventLoop.assumeIsolated().scheduleTask(in: services.patience) { [services, downstream] in
            services.environment.tally.add(.connectionsRefused)
            downstream.close(promise: nil)
        }
    }

    /// The client's TLS is established.
    func downstreamSecured() {
        let isFirst = awaitsTLS
        awaitsTLS = false
        if !addressReader.isGateway {
            let asks = services.downstream().asksForCertificates
            let handler = try? downstream.pipeline.syncOperations.handler(type: NIOSSLServerHandler.self)
            security = ClientSecurity(asks ? handler?.peerCertificate : nil)
        }
        if isFirst, addressReader.isDone { begin() }
    }

    /// Begins after the client's address and TLS are known: with the handshake of a WebSocket, or with the backend.
    private func begin() {
        guard !awaitsTLS else { return }
        handshake?.cancel()
        handshake = nil
        guard usesWebSocket else { return connectUpstream() }
        let rest = early
        early = ByteBuffer()
        do { try awaitWebSocket(rest) } catch { downstream.close(promise: nil) }
    }

    func connectUpstream() {
        let options = services.upstream()
        let connection = self
        ClientBootstrap(group: eventLoop)
            .connectTimeout(options.connectTimeout)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.autoRead, value: false)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .transientReadBuffers()
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addGate(options.gate, dropsAtClose: true)
                    if let tls = options.tls {
                        try channel.pipeline.syncOperations.addHandler(
                            try NIOSSLClientHandler(context: tls, serverHostname: options.serverName))
                    }
                    try channel.pipeline.syncOperations.addHandler(UpstreamHandler(connection))
                }
            }
            .connect(host: options.host, port: options.port)
            .whenComplete { result in
                switch result {
                case .success(let channel): connection.connected(channel)
                case .failure(let error): connection.upstreamFailed(error)
                }
            }
    }

    private func connected(_ channel: any Channel) {
        guard isDownstreamOpen else { return channel.close(promise: nil) }
        guard channel.isActive else { return upstreamFailed(ChannelError.eof) }
        upstream = channel
        hasReceivedFromUpstream = false
        if services.upstream().tls != nil { boundHandshake() }
        if machine.isSuspended { boundReconnection(channel) }
        let addresses = clientAddresses
        if let version = services.upstream().proxyProtocol {
            channel.write(ProxyProtocol.header(version, addresses, security: security), promise: nil)
        }
        if let password = services.upstream().webIRCPassword {
            let port = downstream.localAddress?.port ?? 0
            channel.write(
                WebIRC.line(password: password, addresses, localPort: port, security: security), promise: nil)
        }
        machine.begin(at: services.clock(), output)
        run()
        if early.readableBytes > 0 {
            let bytes = early
            early = ByteBuffer()
            machine.fromDownstream(bytes, at: services.clock(), output)
            run()
        }
        flush()
        if !isDownstreamInputOpen { downstreamInputEnded() }
        channel.read()
        readDownstream()
    }

    /// Limits the TLS handshake, for a backend that accepts the connection and does not begin TLS.
    private func boundHandshake() {
        let limit = services.upstream().connectTimeout
        handshake = eventLoop.assumeIsolated().scheduleTask(in: limit) {
            self.upstreamFailed(ChannelError.connectTimeout(limit))
            self.upstream?.close(promise: nil)
        }
    }

    /// TLS with the backend is established.
    func upstreamSecured() {
        handshake?.cancel()
        handshake = nil
    }

    private var clientAddresses: ProxiedAddresses? {
        if let proxied { return proxied }
        guard let source = downstream.remoteAddress, let destination = downstream.localAddress else { return nil }
        return ProxiedAddresses(source: source, destination: destination)
    }

    /// The connection to the backend has failed.
    ///
    /// Before its first byte it was never usable, for example because its certificate is not trusted.
    func upstreamFaulted(_ error: any Error, _ channel: any Channel) {
        if !hasReceivedFromUpstream, channel === upstream { upstreamFailed(error) }
    }

    func upstreamFailed(_ error: any Error) {
        services.environment.tally.add(.upstreamFailures)
        let options = services.upstream()
        let fault = upstream.flatMap {
            CertificateFault(error, host: options.serverName ?? options.host, $0, now: services.clock().wall)
        }
        services.upstreamFailed(fault ?? error)
        guard !staysWithout() else { return }
        machine.giveUpOutage(at: services.clock(), output)
        run()
        let isSidecar =
            switch services.environment.role {
            case .front: false
            case .sidecar: true
            }
        let reason =
            fault?.line(inSidecar: isSidecar)
            ?? "the chat server cannot be reached\(isSidecar ? "" : " through the gateway"). Try again later."
        let line = "ERROR :Closing link: \(reason)\r\n"
        downstream.writeAndFlush(ByteBuffer(string: line)).whenComplete { _ in self.downstream.close(promise: nil) }
    }

    // MARK: Bytes

    func downstreamRead(_ bytes: ByteBuffer) {
        guard !addressReader.isDone || upstream == nil && !machine.isSuspended else {
            machine.fromDownstream(bytes, at: services.clock(), output)
            return run()
        }
        early.writeImmutableBuffer(bytes)
        guard !addressReader.isDone else { return }
        switch addressReader.take(&early) {
        case .waiting: downstream.read()
        case .secured:
            let rest = early
            early = ByteBuffer()
            startTLS()
            if addressReader.isDone { proxied = addressReader.addresses }
            // The TLS handler takes an empty read for the end of the stream.
            if rest.readableBytes > 0 {
                downstream.pipeline.fireChannelRead(rest)
                downstream.pipeline.fireChannelReadComplete()
            }
            downstream.read()
        case .done(let addresses):
            proxied = addresses
            if addressReader.isGateway { security = nil }
            security = security ?? addressReader.security
            begin()
        case .refused(let reason):
            services.environment.tally.add(.connectionsRefused)
            downstream.writeAndFlush(ByteBuffer(string: "ERROR :\(reason)\r\n")).whenComplete { _ in
                self.downstream.close(promise: nil)
            }
        }
    }

    func upstreamRead(_ bytes: ByteBuffer, _ channel: any Channel) {
        // One that was given up may end its TLS first.
        guard channel === upstream else { return }
        hasReceivedFromUpstream = true
        machine.fromUpstream(bytes, at: services.clock(), output)
        run()
    }

    package func answered(_ replies: [IRCReply]) {
        guard !isFinished else { return }
        let now = services.clock()
        for reply in replies { machine.answered(reply, at: now, output) }
        run()
        flush()
        readDownstream()
        readUpstream()
        endIfDone()
    }

    func downstreamReadComplete() {
        flush()
        readDownstream()
    }

    package func upstreamReadComplete() {
        flush()
        // The backend may have answered what the client had to wait for.
        readDownstream()
        readUpstream()
        endIfDone()
    }

    // MARK: Output

    package func run() {
        if output.upstream.readableBytes > 0, let upstream {
            upstream.write(output.upstream, promise: nil)
            upstreamNeedsFlush = true
        }
        if output.downstream.readableBytes > 0 { writeDownstream() }
        if !output.jobs.isEmpty { services.submit(output.jobs) }
        for command in output.commands { services.command(id, command) }
        if let wakeAt = output.wakeAt { schedule(wakeAt) }
        let (starts, closesDownstream, closesUpstream) = (
            output.startsTLS, output.closesDownstream, output.closesUpstream
        )
        output.reset()
        if starts { clientStartsTLS() }
        if closesDownstream || closesUpstream {
            flush()
            if closesUpstream { upstream?.close(promise: nil) }
            if closesDownstream { downstream.close(promise: nil) }
        }
    }

    private func writeDownstream() {
        downstreamNeedsFlush = true
        guard !output.delivered.isEmpty else {
            downstream.write(output.downstream, promise: nil)
            return
        }
        let delivered = output.delivered
        let services = services
        downstream.write(output.downstream).whenSuccess {
            for sequence in delivered { services.markDelivered(sequence) }
            services.submit([.delivered(sequences: delivered)])
        }
    }

    package func flush() {
        if upstreamNeedsFlush {
            upstreamNeedsFlush = false
            upstream?.flush()
        }
        if downstreamNeedsFlush {
            downstreamNeedsFlush = false
            downstream.flush()
        }
    }

    /// Reads the client if the backend can accept more.
    func readDownstream() {
        guard isDownstreamOpen, isDownstreamInputOpen, !isStopping, !machine.isCongested(at: services.clock()) else {
            return
        }
        guard upstream?.isWritable ?? machine.isSuspended else { return }
        downstream.read()
    }

    func readUpstream() {
        guard isUpstreamInputOpen, downstream.isWritable, !machine.isDeliveryCongested else { return }
        upstream?.read()
    }

    private func schedule(_ wakeAt: Int64) {
        if let timer {
            guard wakeAt < timer.at else { return }
            timer.scheduled.cancel()
        }
        let delay = max(wakeAt - services.clock().monotonic, 1_000_000)
        let scheduled = eventLoop.assumeIsolated().scheduleTask(in: .nanoseconds(delay)) { self.woken() }
        timer = (wakeAt, scheduled)
    }

    private func woken() {
        timer = nil
        guard !isFinished else { return }
        machine.woken(at: services.clock(), output)
        run()
        flush()
        readDownstream()
        // Lines for the client may have waited for what has now expired.
        readUpstream()
        endIfDone()
    }

    /// The client has sent STARTTLS.
    ///
    /// A backend that was told of a client without TLS is connected to anew, after the handshake. The client begins anew
    /// as well: what it has sent in the clear may be an attacker's (as in RFC 3207 section 4.2).
    private func clientStartsTLS() {
        startTLS()
        guard services.upstream().announcesTLS, let gone = upstream else { return }
        upstream = nil
        upstreamSecured()
        gone.close(promise: nil)
        timer?.scheduled.cancel()
        timer = nil
        machine.finish(at: services.clock(), output)
        if !output.jobs.isEmpty { services.submit(output.jobs) }
        output.reset()
        machine = IRCConnectionMachine(id: id, environment: services.environment, mayStartTLS: false)
        awaitsTLS = true
        boundBeginning()
        downstream.read()
    }

    private func startTLS() {
        guard let handler = services.downstream().tlsHandler() else { return }
        flush()
        try? downstream.pipeline.syncOperations.addBehindGate(handler)
    }

    // MARK: Stopping

    /// The steps in which a server stops its connections, in order.
    package enum Stop {
        /// Stop reading from the client.
        case quiet
        /// Notify the client that new messages are not sent.
        case announce
        /// Send the backend a PING, to find out whether it has delivered everything to the client.
        case probe
        /// Only return whether the connection is settled.
        case look
    }

    /// Performs one step of stopping. May be called on any thread.
    ///
    /// - Returns: whether the connection is settled: nothing is in progress any more.
    func takeStep(_ step: Stop) -> EventLoopFuture<Bool> {
        eventLoop.submit {
            guard !self.isFinished, self.isDownstreamOpen, !self.isInHandshake else { return true }
            switch step {
            case .quiet: self.isStopping = true
            case .announce: self.machine.announceStop(self.output)
            case .probe: self.machine.askForLastPong(self.output)
            case .look: break
            }
            self.run()
            self.flush()
            return self.machine.isSettled
        }
    }

    /// Notifies the client of unsent messages, and closes the connection. May be called on any thread.
    package func end() {
        eventLoop.execute {
            guard !self.isFinished, self.isDownstreamOpen else { return }
            guard !self.isInHandshake else { return self.downstream.close(promise: nil) }
            self.machine.stop(self.output)
            self.run()
            self.flush()
            let line = ByteBuffer(string: "ERROR :Closing link: the gateway is being shut down.\r\n")
            self.downstream.writeAndFlush(line).whenComplete { _ in self.downstream.close(promise: nil) }
            // Closes a client that does not read.
            self.eventLoop.assumeIsolated().scheduleTask(in: .seconds(2)) { self.downstream.close(promise: nil) }
        }
    }

    // MARK: Ends

    func downstreamInputEnded() {
        isDownstreamInputOpen = false
        if machine.isSuspended { return downstream.close(promise: nil) }
        guard let upstream, !sentUpstreamEnd else { return }
        machine.downstreamEnded(at: services.clock(), output)
        run()
        flush()
        guard !machine.hasPendingLines else { return }
        sentUpstreamEnd = true
        upstream.close(mode: .output, promise: nil)
        endIfDone()
    }

    package func upstreamInputEnded(_ channel: any Channel) {
        guard channel === upstream, !staysWithout() else { return }
        isUpstreamInputOpen = false
        machine.upstreamEnded(at: services.clock(), output)
        run()
        flush()
        endIfDone()
        // Closes a client that never ends its side. The weak reference releases a connection that has ended before.
        eventLoop.assumeIsolated().scheduleTask(in: .seconds(30)) { [weak self] in
            self?.downstream.close(promise: nil)
        }
    }

    /// Closes each side after the other side has ended and nothing waits for it any more.
    private func endIfDone() {
        if !isDownstreamInputOpen, !sentUpstreamEnd, !machine.hasPendingLines, let upstream {
            sentUpstreamEnd = true
            upstream.close(mode: .output, promise: nil)
        }
        guard !isUpstreamInputOpen, !machine.hasPendingDeliveries else { return }
        if !sentDownstreamEnd {
            sentDownstreamEnd = true
            downstream.close(mode: .output, promise: nil)
        }
        if !isDownstreamInputOpen { downstream.close(promise: nil) }
    }

    func downstreamClosed() {
        isDownstreamOpen = false
        isDownstreamInputOpen = false
        handshake?.cancel()
        guard let upstream else { return finish() }
        finish()
        upstream.close(promise: nil)
    }

    func upstreamClosed(_ channel: any Channel) {
        guard channel === upstream else { return }
        upstreamSecured()
        guard !staysWithout() else { return }
        isUpstreamInputOpen = false
        upstream = nil
        guard isDownstreamOpen else { return }
        machine.upstreamEnded(at: services.clock(), output)
        run()
        flush()
        closeDownstreamWhenDone()
    }

    /// Closes the client's side after the vault has opened the pending messages, or after about five seconds.
    private func closeDownstreamWhenDone(_ attempts: Int = 100) {
        guard machine.hasPendingDeliveries, attempts > 0 else { return downstream.close(promise: nil) }
        eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(50)) { self.closeDownstreamWhenDone(attempts - 1) }
    }

    private func finish() {
        guard !isFinished else { return }
        isFinished = true
        timer?.scheduled.cancel()
        timer = nil
        reconnection.scheduled?.cancel()
        handshake?.cancel()
        handshake = nil
        machine.finish(at: services.clock(), output)
        if !output.jobs.isEmpty { services.submit(output.jobs) }
        output.reset()
        services.unregister(id)
    }
}
