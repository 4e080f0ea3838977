// Which policy applies to whom, now. Read by every connection, changed by the operator.

import Synchronization

/// A value that can be read at once; connections keep one and renew it when ``PolicyTable/version`` has moved.
package struct PolicySnapshot: Sendable, Equatable {
    package var everyone: Policy
    package var accounts: [AccountID: Policy]

    package init(everyone: Policy, accounts: [AccountID: Policy] = [:]) {
        (self.everyone, self.accounts) = (everyone, accounts)
    }

    /// The policy of an account: its own where it has one, else everyone's.
    package func policy(of account: AccountID?) -> Policy {
        guard let account, !accounts.isEmpty else { return everyone }
        return accounts[account] ?? everyone
    }

    /// The strictest policy that anybody has. Below it nothing can be demanded of anyone.
    package var strictest: Policy { accounts.values.reduce(everyone, max) }

    /// The strictest policy that a room has of its own.
    package var strictestRoom: Policy {
        accounts.reduce(.off) { strictest, entry in
            entry.key.roomName == nil ? strictest : max(strictest, entry.value)
        }
    }
}

/// The table that all connections share.
package final class PolicyTable: Sendable {
    private let state: Mutex<PolicySnapshot>
    private let counter = Atomic<UInt64>(0)
    private let highest: Atomic<UInt8>
    let listeners = ChangeListeners()

    package init(_ snapshot: PolicySnapshot) {
        state = Mutex(snapshot)
        highest = Atomic(snapshot.strictest.rawValue)
    }

    /// Moves with every change.
    package var version: UInt64 { counter.load(ordering: .acquiring) }

    package var snapshot: PolicySnapshot { state.withLock { $0 } }

    /// The strictest policy that anybody has; costs one load.
    package var strictest: Policy { Policy(rawValue: highest.load(ordering: .acquiring)) ?? .required }

    package func update(_ change: (inout PolicySnapshot) -> Void) {
        state.withLock { snapshot in
            change(&snapshot)
            highest.store(snapshot.strictest.rawValue, ordering: .releasing)
        }
        counter.wrappingAdd(1, ordering: .acquiringAndReleasing)
        listeners.tell()
    }
}
