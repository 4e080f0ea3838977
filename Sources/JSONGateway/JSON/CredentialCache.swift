// A cache of the owners of credentials. The gateway resolves a credential by a lookup at the backend, and ignores what
// the client claims. The key is a digest, so that the cache holds no credential.

import Crypto
package import Protection
import Synchronization

/// The accounts of credentials, as confirmed by the backend.
package final class CredentialCache: Sendable {
    /// Ours: lifetime of an entry for requests that the backend answers itself, because it rejects an expired
    /// credential. In nanoseconds.
    package static let memory: Int64 = 600_000_000_000
    /// Ours: lifetime for writes, which the gateway stores and may send later with another login. The same as for
    /// members.
    package static let memoryForWrites = MemberCache.memory
    /// Ours: lifetime for calls, which never reach the backend: long enough for a series of calls. In nanoseconds.
    package static let memoryForCalls: Int64 = 5_000_000_000
    /// Ours: maximum cached credentials; beyond it the whole cache is dropped.
    package static let limit = 100_000

    /// The digest by which a credential is stored.
    package struct Digest: Hashable, Sendable {
        private let value: SHA256.Digest

        init(_ value: SHA256.Digest) { self.value = value }

        package var bytes: [UInt8] { Array(value) }
    }

    /// Ours: lifetime of a rejection, so that a client that repeats requests causes one lookup. In nanoseconds.
    package static let memoryOfRefusals: Int64 = 10_000_000_000

    /// The owner of a credential.
    package enum Owner: Equatable, Sendable {
        case account(AccountID)
        /// The backend rejects the credential: 401.
        case rejected
        /// The backend names no account, for another reason.
        case nobody
        /// The backend has to be asked.
        case unknown
    }

    private let accounts = Mutex<[Digest: (owner: Owner, at: Int64)]>([:])

    package init() {}

    /// The owner of a credential.
    ///
    /// - Parameter life: maximum age of an entry with an account, in nanoseconds.
    package func owner(of credential: Digest, now: Int64, within life: Int64 = memory) -> Owner {
        accounts.withLock { accounts in
            guard let entry = accounts[credential] else { return .unknown }
            if case .account = entry.owner { return now - entry.at < life ? entry.owner : .unknown }
            return now - entry.at < Self.memoryOfRefusals ? entry.owner : .unknown
        }
    }

    /// Stores the backend's answer, unless it is `unknown`.
    package func remember(_ owner: Owner, of credential: Digest, now: Int64) {
        guard owner != .unknown else { return }
        accounts.withLock { accounts in
            if accounts.count >= Self.limit { accounts.removeAll() }
            accounts[credential] = (owner, now)
        }
    }

    /// Drops a credential that the backend no longer accepts.
    package func forget(_ credential: Digest) {
        accounts.withLock { $0[credential] = nil }
    }
}
