// What every front is assembled from.

import Devices
import Foundation
import Logging
import NIOPosix
import NIOSupport
import PawlConfiguration
import Protection
import Reports
import StorePort

/// What the fronts of all chat protocols are made of.
struct FrontParts {
    var configuration: PawlConfiguration
    var network: String
    var store: any Store
    var sealer: StorageSealer
    var tables: SharedTables
    var group: MultiThreadedEventLoopGroup
    var logger: Logger
    var downstream: @Sendable () -> DownstreamOptions
    var upstream: @Sendable () -> UpstreamOptions
    /// Called with the reports of a batch that was not committed.
    var failed: @Sendable (StoreError, [StoreChange]) -> Void
    /// Whether another gateway has the store; asked for after a commit of unknown outcome, within some seconds.
    var isTakenOver: @Sendable () -> Bool

    var earlierNetworks: [String] { configuration.upstream.earlierNetworks.filter { $0 != network } }

    /// Logs errors of connections to the backend, at most one in ten seconds: a backend that is down fails for every client.
    var upstreamFailed: @Sendable (any Error) -> Void {
        let lastReport = Shared(Int64(0))
        return { [logger] error in
            let now = SystemClock.now().monotonic
            let isDue = lastReport.withLock { last in
                guard now - last > 10_000_000_000 || last == 0 else { return false }
                last = now
                return true
            }
            guard isDue else { return }
            if let fault = error as? CertificateFault {
                logger.error("\(fault)")
            } else {
                logger.warning("no answer from the backend: \(ErrorWords.text(error))")
            }
        }
    }

    /// Ends the process, which cannot know what its store holds; its service manager starts it again.
    ///
    /// A gateway that takes over ends the connections of this one, also one with a commit under way: that is no failure.
    var endProcess: @Sendable (StoreError) -> Void {
        { [logger, isTakenOver] failure in
            logger.critical(
                """
                It is not known whether the store has taken a batch: \(failure.message) The gateway ends now, answers \
                nobody, and reads the store when it is started again.
                """)
            if isTakenOver() { Standby.endTaken(logger) }
            ProcessEnd.end(ExitStatus.failed)
        }
    }

    /// Commits what opening the store has changed, and logs what the operator should know.
    ///
    /// - Parameter epochs: by which the process owned its shards when it loaded the store.
    /// - Throws: ``AdminFailure`` if the policy does not fit the store; no thread of the front runs yet. ``StoreError`` if
    ///   the changes are not committed.
    func begin(_ changes: [StoreChange], by epochs: [ShardEpoch], _ warnings: [String]) throws {
        if !changes.isEmpty {
            let results = try store.commit([ChangeGroup(changes, in: .several)], by: epochs)
            for case let failure? in results { throw failure }
        }
        for warning in warnings { logger.warning("\(warning)") }
        try refuseUnprotected()
    }

    /// - Throws: ``AdminFailure`` if conversations are protected and the policy would send them in the clear.
    private func refuseUnprotected() throws {
        guard !tables.policies.snapshot.everyone.takesPart, !tables.latches.isEmpty else { return }
        throw AdminFailure(
            .conversationsProtected,
            "\(tables.latches.count) conversations are protected, and the policy off would send them in the clear. Start "
                + "with --policy observe, which keeps them protected, and reset them if that is meant: "
                + "pawl conversations reset A B.")
    }
}

extension NoticeTexts {
    init(_ refusal: PawlConfiguration.Refusal) {
        self.init()
        outsider = refusal.outsider.template
        required = refusal.required.template
        room = refusal.room.template
    }
}
