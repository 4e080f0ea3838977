// The backend dies and the client stays: when the backend is tried again.

import IRCGateway
import NIOCore
import Protection

/// How often a backend that has gone has been tried.
struct Reconnection {
    /// Ours: the first pause, and the longest one. In milliseconds.
    static let firstPause = 500.0
    package static let longestPause = 30_000.0
    /// Ours: the longest pause while the backend is back and its services, which come a little later, are not.
    static let servicesPause = 3_000.0

    package var attempts = 0
    var begunAt: Int64?
    package var scheduled: Scheduled<Void>?

    /// The pause before the next attempt: twice as long each time, and never the same for all clients at once.
    mutating func nextPause(atMost longest: Double) -> TimeAmount {
        let whole = min(Self.firstPause * Double(1 << min(attempts, 10)), longest)
        attempts += 1
        return .milliseconds(Int64(Double.random(in: whole / 2...whole)))
    }
}

extension IRCConnection {
    /// Keeps a client whose backend has gone, and tries the backend again later.
    ///
    /// - Returns: whether the client stays.
    func staysWithout() -> Bool {
        guard isDownstreamOpen, isDownstreamInputOpen, !isFinished else { return false }
        guard session.isSuspended || session.outlivesBackend else { return false }
        let now = services.clock()
        if !session.isSuspended || reconnection.begunAt == nil {
            reconnection.scheduled?.cancel()
            reconnection = Reconnection(begunAt: now.wall)
        }
        guard now.wall - (reconnection.begunAt ?? now.wall) < session.settings.outagePatience else { return false }
        let gone = upstream
        upstream = nil
        upstreamSecured()
        isUpstreamInputOpen = true
        gone?.close(promise: nil)
        let longest = session.awaitsServices ? Reconnection.servicesPause : Reconnection.longestPause
        session.suspend(at: now, output)
        run()
        flush()
        readDownstream()
        reconnection.scheduled?.cancel()
        reconnection.scheduled = eventLoop.assumeIsolated().scheduleTask(in: reconnection.nextPause(atMost: longest)) {
            guard !self.isFinished, self.upstream == nil, self.session.isSuspended else { return }
            self.connectUpstream()
        }
        return true
    }
}
