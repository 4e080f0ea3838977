// Which credential has proven which device, and what the next proof has to be made over. In memory: whoever starts again
// proves again.

package import DeviceDirectory
package import Envelope
package import Protection
import Synchronization

/// What clients of a JSON backend have shown of their own devices. A request has no connection that could be proven, so
/// the credential stands for it.
package final class DeviceBook: Sendable {
    /// Ours: how long a challenge may be answered. In nanoseconds.
    package static let challengeLife: Int64 = 120_000_000_000
    /// Ours: challenges that wait for their answer; with more, all of them are forgotten and asked for again.
    static let challengeLimit = 20_000
    /// Ours: credentials that have proven a device; with more, all of them have to prove theirs again.
    static let provenLimit = 100_000
    /// Ours: calls of one account in a minute, in nanoseconds. Asking for keys uses up somebody's.
    package static let callLimit = 240
    static let callPeriod: Int64 = 60_000_000_000

    private struct State {
        var challenges: [CredentialBook.Digest: (nonce: [UInt8], until: Int64)] = [:]
        package var proven: [CredentialBook.Digest: (account: AccountID, device: DeviceID)] = [:]
        /// Devices whose envelopes were seen.
        var sealers: Set<DeviceID> = []
        package var calls: [AccountID: (count: Int, since: Int64)] = [:]
    }

    private let state = Mutex(State())

    package init() {}

    /// Notes what a credential is to prove its device over; an earlier challenge counts no more.
    package func challenge(_ credential: CredentialBook.Digest, with nonce: [UInt8], now: Int64) {
        state.withLock { state in
            if state.challenges.count >= Self.challengeLimit { state.challenges.removeAll() }
            state.challenges[credential] = (nonce, now + Self.challengeLife)
        }
    }

    /// Takes the challenge of a credential, which counts once, whatever is made of it.
    func takeChallenge(of credential: CredentialBook.Digest, now: Int64) -> [UInt8]? {
        state.withLock { state in
            guard let entry = state.challenges.removeValue(forKey: credential), entry.until > now else { return nil }
            return entry.nonce
        }
    }

    package func prove(_ device: DeviceID, of account: AccountID, by credential: CredentialBook.Digest) {
        state.withLock { state in
            if state.proven.count >= Self.provenLimit { state.proven.removeAll() }
            state.proven[credential] = (account, device)
        }
    }

    /// The device that a credential has proven, as long as the directory has it.
    package func device(
        of account: AccountID, by credential: CredentialBook.Digest, in directory: DirectoryTable
    ) -> DeviceID? {
        guard !directory.isEmpty, let proven = state.withLock({ $0.proven[credential] }), proven.account == account,
            let entry = directory[account], !entry.isBlocked, entry.published.contains(proven.device)
        else { return nil }
        return proven.device
    }

    /// An envelope of a published device has come from its account.
    func noteEnvelope(of device: DeviceID) {
        state.withLock { state in
            if state.sealers.count < Self.provenLimit { state.sealers.insert(device) }
        }
    }

    /// Devices that a credential has proven since this process began, and those whose envelopes it has seen.
    package var seen: (proven: Set<DeviceID>, sealing: Set<DeviceID>) {
        state.withLock { (Set($0.proven.values.map(\.device)), $0.sealers) }
    }

    func mayCall(_ account: AccountID, now: Int64) -> Bool {
        state.withLock { state in
            if state.calls.count >= Self.provenLimit { state.calls.removeAll() }
            var entry = state.calls[account] ?? (0, now)
            if entry.since + Self.callPeriod <= now { entry = (0, now) }
            entry.count += 1
            state.calls[account] = entry
            return entry.count <= Self.callLimit
        }
    }
}
