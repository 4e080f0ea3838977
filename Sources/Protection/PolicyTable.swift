// Which policy applies to whom, now. Read by every connection, changed by the operator.

import Synchronization

/// A value that can be read at once; connections keep one and renew it when ``PolicyTable/version`` has moved.
package struct PolicySnapshot: Sendable, Equatable {
    package var everyone: Policy
    package var accounts: [AccountID: Policy]
    /// Accounts whose own policy counts in rooms too: whatever such an account writes in a room is sealed for good.
    package var withRooms: Set<AccountID>

    package init(everyone: Policy, accounts: [AccountID: Policy] = [:], withRooms: Set<AccountID> = []) {
        (self.everyone, self.accounts, self.withRooms) = (everyone, accounts, withRooms)
    }

    /// The policy of an account: its own where it has one, else everyone's.
    package func policy(of account: AccountID?) -> Policy {
        guard let account, !accounts.isEmpty else { return everyone }
        return accounts[account] ?? everyone
    }

    /// The policy for a message to a room: the stricter of everyone's and the room's own.
    ///
    /// A speaker's own policy does not count, because the first sealed message protects a room for good, for all its members. Three
    /// exceptions: an account in ``withRooms``; `required`, which refuses and so protects nothing for good; and `off`, which takes
    /// no part in what everyone has.
    ///
    /// - Parameter speaker: nil if it is not known.
    package func policy(inRoom room: AccountID, by speaker: AccountID?) -> Policy {
        let own = accounts[room] ?? .off
        guard let speaker, let entry = accounts[speaker] else { return max(everyone, own) }
        switch entry {
        case .off: return own
        case .observe, .opportunistic, .hosted:
            return withRooms.contains(speaker) ? max(everyone, own, entry) : max(everyone, own)
        case .required: return .required
        }
    }

    /// Changes the policy of an account or a room; nil removes it.
    package mutating func set(_ policy: Policy?, for scope: AccountID, withRooms countsInRooms: Bool = false) {
        accounts[scope] = policy
        if countsInRooms, policy != nil { withRooms.insert(scope) } else { withRooms.remove(scope) }
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
    package let listeners = ChangeListeners()

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
