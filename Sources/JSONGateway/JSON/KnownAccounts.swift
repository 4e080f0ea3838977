// The accounts behind this gateway: those that have shown it a valid credential, in this process or an earlier one.

package import Protection
package import StorePort
import Synchronization

/// The accounts behind the gateway.
package final class KnownAccounts: Sendable {
    /// Ours: minimum time between two records of the same account with the same software, in nanoseconds.
    package static let interval: Int64 = 600_000_000_000
    /// Ours: maximum length of the stored products of a `User-Agent`, in bytes.
    static let softwareLimit = 96

    private struct State {
        package var known: Set<AccountID> = []
        var noted: [AccountID: (agent: String, asked: Bool, until: Int64)] = [:]
    }

    private let state = Mutex(State())

    package init() {}

    /// Loads the accounts that earlier processes have stored.
    package func adopt(_ rows: [EvidenceRow]) {
        state.withLock { state in
            for row in rows where row.verified { state.known.insert(.services(row.name)) }
        }
    }

    package func contains(_ account: AccountID) -> Bool { state.withLock { $0.known.contains(account) } }

    /// All accounts, for reports.
    package var all: Set<AccountID> { state.withLock { $0.known } }

    package var count: Int { state.withLock { $0.known.count } }

    /// Records that an account uses the gateway, and its software.
    ///
    /// - Parameter asked: whether the client has shown that it can encrypt: by a subprotocol, a proven device, or an
    ///   envelope.
    /// - Returns: the change to store; nil if a recent record says the same.
    package func note(_ account: AccountID, software: String?, asked: Bool = false, now: Timestamp) -> StoreChange? {
        let agent = software ?? ""
        let isNew = state.withLock { state in
            if let noted = state.noted[account], noted.agent == agent, noted.asked || !asked,
                noted.until > now.monotonic
            {
                return false
            }
            state.known.insert(account)
            if state.noted.count >= CredentialCache.limit { state.noted.removeAll() }
            state.noted[account] = (agent, asked, now.monotonic + Self.interval)
            return true
        }
        guard isNew else { return nil }
        let software = Self.product(agent)
        return .addEvidence(
            EvidenceRow(
                name: account.name, verified: true, software: software, asked: asked, firstSeen: now.wall,
                lastSeen: now.wall, registrations: 1))
    }

    /// The products of a `User-Agent` without comments, which name machines, not programs. RFC 9110 section 10.1.5.
    package static func product(_ agent: String) -> String {
        var depth = 0
        var text = ""
        for scalar in agent.unicodeScalars {
            switch scalar {
            case "(": depth += 1
            case ")": depth = max(0, depth - 1)
            default:
                guard depth == 0, scalar.value >= 0x20, scalar.value != 0x7F else { continue }
                text.unicodeScalars.append(scalar)
            }
            if text.utf8.count >= softwareLimit { break }
        }
        return text.split(separator: " ").joined(separator: " ")
    }
}
