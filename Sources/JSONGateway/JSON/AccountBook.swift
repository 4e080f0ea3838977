// Who is behind this gateway: accounts that have shown it a credential, in this process or before.

package import Protection
package import StorePort
import Synchronization

/// The accounts behind the gateway.
package final class AccountBook: Sendable {
    /// Ours: how often the same account is written down again with the same software. In nanoseconds.
    package static let interval: Int64 = 600_000_000_000
    /// Ours: bytes of a `User-Agent` that are kept.
    static let softwareLimit = 96

    private struct State {
        package var known: Set<AccountID> = []
        var noted: [AccountID: (agent: String, asked: Bool, until: Int64)] = [:]
    }

    private let state = Mutex(State())

    package init() {}

    /// Takes over what a process before this one has written down.
    package func adopt(_ rows: [EvidenceRow]) {
        state.withLock { state in
            for row in rows where row.verified { state.known.insert(.services(row.name)) }
        }
    }

    package func contains(_ account: AccountID) -> Bool { state.withLock { $0.known.contains(account) } }

    /// All of them, for reports.
    package var all: Set<AccountID> { state.withLock { $0.known } }

    package var count: Int { state.withLock { $0.known.count } }

    /// Notes that an account is here, and with what.
    ///
    /// - Parameter asked: whether it has shown that it can encrypt: by a subprotocol, a proven device, or an envelope.
    /// - Returns: what is to be written down; often nothing.
    package func note(_ account: AccountID, software: String?, asked: Bool = false, now: Moment) -> StoreChange? {
        let agent = software ?? ""
        let isNew = state.withLock { state in
            if let noted = state.noted[account], noted.agent == agent, noted.asked || !asked,
                noted.until > now.monotonic
            {
                return false
            }
            state.known.insert(account)
            if state.noted.count >= CredentialBook.limit { state.noted.removeAll() }
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

    /// The products of a `User-Agent` without comments, RFC 9110 section 10.1.5: what is in brackets names machines, not
    /// programs.
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
