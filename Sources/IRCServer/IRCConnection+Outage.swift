// Outages of the backend while the client stays: the pauses between attempts to reconnect.

import IRCGateway
import NIOCore
import Protection

/// The attempts to reconnect in one outage.
struct Reconnection {
    /// Ours: the first pause, in milliseconds.
    static let firstPause = 500.0
    /// Ours: the longest pause, in milliseconds.
    package static let longestPause = 30_000.0
    /// Ours: the longest pause while the backend is back without its services, in milliseconds. They start soon after.
    static let servicesPause = 3_000.0

    package var attempts = 0
    var begunAt: Int64?
    /// The next attempt, or the end of the current one.
    package var scheduled: Scheduled<Void>?

    /// The pause before the next attempt: doubled each time, and randomised so that clients do not reconnect together.
    mutating func nextPause(atMost longest: Double) -> TimeAmount {
        let whole = min(Self.firstPause * Double(1 << min(attempts, 10)), longest)
        attempts += 1
        return .milliseconds(Int64(Double.random(in: whole / 2...whole)))
    }
}

extension IRCConnection {
    /// Keeps a client connected during an outage, and schedules the next attempt to reconnect.
    ///
    /// - Returns: whether the client stays connected.
    func staysWithout() -> Bool {
        guard isDownstreamOpen, isDownstreamInputOpen, !isFinished else { return false }
        guard machine.isSuspended || machine.outlivesBackend else { return false }
        let now = services.clock()
        if !machine.isSuspended || reconnection.begunAt == nil {
            reconnection.scheduled?.cancel()
            reconnection = Reconnection(begunAt: now.wall)
        }
        guard now.wall - (reconnection.begunAt ?? now.wall) < machine.settings.outagePatience else { return false }
        let gone = upstream
        upstream = nil
        upstreamSecured()
        isUpstreamInputOpen = true
        gone?.close(promise: nil)
        let longest = machine.awaitsServices ? Reconnection.servicesPause : Reconnection.longestPause
        machine.suspend(at: now, output)
        run()
        flush()
        readDownstream()
        reconnection.scheduled?.cancel()
        reconnection.scheduled = eventLoop.assumeIsolated().scheduleTask(in: reconnection.nextPause(atMost: longest)) {
            guard !self.isFinished, self.upstream == nil, self.machine.isSuspended else { return }
            self.connectUpstream()
        }
        return true
    }

    /// Limits an attempt to reconnect, for a backend that accepts the connection and does not register the client.
    func boundReconnection(_ channel: any Channel) {
        let limit = services.registrationPatience
        reconnection.scheduled = eventLoop.assumeIsolated().scheduleTask(in: limit) {
            guard !self.isFinished, self.upstream === channel, self.machine.isSuspended else { return }
            self.upstreamFailed(ChannelError.connectTimeout(limit))
        }
    }
}
