// The devices that credentials have proven, and the challenges for proofs. In memory only: after a restart of the
// gateway, clients prove their devices again.

package import DeviceDirectory
package import Envelope
package import Protection
import Synchronization

/// The proven devices of clients of a JSON backend.
///
/// HTTP requests share no connection, so a proof is bound to the credential.
package final class ProvenDevices: Sendable {
    /// Ours: lifetime of a challenge, in nanoseconds.
    package static let challengeLife: Int64 = 120_000_000_000
    /// Ours: maximum open challenges; beyond it all are dropped, and clients request new ones.
    static let challengeLimit = 20_000
    /// Ours: maximum credentials with a proven device; beyond it all are dropped, and clients prove again.
    package static let provenLimit = 100_000
    private struct State {
        var challenges: [CredentialCache.Digest: (nonce: [UInt8], until: Int64)] = [:]
        package var proven: [CredentialCache.Digest: (account: AccountID, device: DeviceID)] = [:]
        /// Devices of which the gateway has seen envelopes.
        var sealers: Set<DeviceID> = []
        var calls = CallCounts()
        var mailCalls = CallCounts(limit: CallCounts.mailLimit)
    }

    private let state = Mutex(State())

    package init() {}

    /// Stores the challenge of a credential, and replaces an earlier one.
    package func challenge(_ credential: CredentialCache.Digest, with nonce: [UInt8], now: Int64) {
        state.withLock { state in
            if state.challenges.count >= Self.challengeLimit { state.challenges.removeAll() }
            state.challenges[credential] = (nonce, now + Self.challengeLife)
        }
    }

    /// Removes and returns the challenge of a credential, which can be used once; nil if there is none or it has
    /// expired.
    func takeChallenge(of credential: CredentialCache.Digest, now: Int64) -> [UInt8]? {
        state.withLock { state in
            guard let entry = state.challenges.removeValue(forKey: credential), entry.until > now else { return nil }
            return entry.nonce
        }
    }

    package func prove(_ device: DeviceID, of account: AccountID, by credential: CredentialCache.Digest) {
        state.withLock { state in
            if state.proven.count >= Self.provenLimit { state.proven.removeAll() }
            state.proven[credential] = (account, device)
        }
    }

    /// The device that a credential has proven; nil if there is none, or the directory does not publish it.
    package func device(
        of account: AccountID, by credential: CredentialCache.Digest, in directory: DirectoryCache
    ) -> DeviceID? {
        guard !directory.isEmpty, let proven = state.withLock({ $0.proven[credential] }), proven.account == account,
            let entry = directory[account], !entry.isBlocked, entry.published.contains(proven.device)
        else { return nil }
        return proven.device
    }

    /// Records that an account has sent an envelope of its published device.
    func noteEnvelope(of device: DeviceID) {
        state.withLock { state in
            if state.sealers.count < Self.provenLimit { state.sealers.insert(device) }
        }
    }

    /// The devices proven since the start of this process, and those of which it has seen envelopes.
    package var seen: (proven: Set<DeviceID>, sealing: Set<DeviceID>) {
        state.withLock { (Set($0.proven.values.map(\.device)), $0.sealers) }
    }

    /// Counts a call.
    ///
    /// - Parameter isMail: whether it is about mailboxes, which have limits of their own.
    func mayCall(_ account: AccountID, isMail: Bool, now: Int64) -> Bool {
        state.withLock { state in
            isMail ? state.mailCalls.mayCall(account, now: now) : state.calls.mayCall(account, now: now)
        }
    }
}

/// Counts the calls of accounts, because a request for keys consumes another's prekeys.
package struct CallCounts {
    /// Ours: maximum calls of one account in ``period``.
    package static let callLimit = 240
    /// Ours: maximum calls of one account about its mailboxes in ``period``, from all its devices: each message takes one
    /// to send and two to receive.
    package static let mailLimit = 1200
    /// In nanoseconds.
    package static let period: Int64 = 60_000_000_000

    private let limit: Int
    private let capacity: Int
    private var counts: [AccountID: (count: Int, since: Int64)] = [:]

    /// - Parameters:
    ///   - limit: maximum calls of one account in one period.
    ///   - capacity: maximum accounts with calls in one period.
    package init(limit: Int = callLimit, capacity: Int = ProvenDevices.provenLimit) {
        (self.limit, self.capacity) = (limit, capacity)
    }

    /// Counts a call. Returns whether the account may make it.
    package mutating func mayCall(_ account: AccountID, now: Int64) -> Bool {
        var entry = counts[account] ?? (0, now)
        if entry.since + Self.period <= now { entry = (0, now) }
        entry.count += 1
        if counts[account] == nil, counts.count >= capacity { makeRoom(now: now) }
        counts[account] = entry
        return entry.count <= limit
    }

    /// Removes the accounts whose period has ended, or else the half that has made the fewest calls.
    ///
    /// Removing all would lift the limit of an account that has reached it. A half at a time, so that the search for
    /// them is rare.
    private mutating func makeRoom(now: Int64) {
        counts = counts.filter { $0.value.since + Self.period > now }
        guard counts.count >= capacity else { return }
        for (account, _) in counts.sorted(by: { $0.value.count < $1.value.count }).prefix((capacity + 1) / 2) {
            counts[account] = nil
        }
    }
}
