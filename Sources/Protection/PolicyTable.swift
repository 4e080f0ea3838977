// The policies in force: read by every connection, changed by the operator.

import Synchronization

/// A copy of all policies. A connection keeps one and renews it when ``PolicyTable/version`` changes.
package struct PolicySnapshot: Sendable, Equatable {
    package var everyone: Policy
    package var accounts: [AccountID: Policy]
    /// Accounts whose own policy counts in rooms too: a message of such an account can protect a room for good.
    package var withRooms: Set<AccountID>

    package init(everyone: Policy, accounts: [AccountID: Policy] = [:], withRooms: Set<AccountID> = []) {
        (self.everyone, self.accounts, self.withRooms) = (everyone, accounts, withRooms)
    }

    /// The policy of an account: its own if it has one, else everyone's.
    package func policy(of account: AccountID?) -> Policy {
        guard let account, !accounts.isEmpty else { return everyone }
        return accounts[account] ?? everyone
    }

    /// The policy for a message to a room: the stricter of everyone's and the room's own.
    ///
    /// The sender's own policy does not count, because the first sealed message protects a room for good, for all its
    /// members. Three exceptions: an account in ``withRooms``; `required`, which refuses and so raises no latch; and
    /// `off`, to which everyone's policy does not apply.
    ///
    /// - Parameter speaker: the sender; nil if it is not known.
    package func policy(inRoom room: AccountID, by speaker: AccountID?) -> Policy {
        let own = accounts[room] ?? .off
        guard let speaker, let entry = accounts[speaker] else { return max(everyone, own) }
        guard entry.takesPart else { return own }
        if entry.demandsDevices { return entry }
        return withRooms.contains(speaker) ? max(everyone, own, entry) : max(everyone, own)
    }

    /// Changes the policy of an account or a room; nil removes it.
    package mutating func set(_ policy: Policy?, for scope: AccountID, withRooms countsInRooms: Bool = false) {
        accounts[scope] = policy
        if countsInRooms, policy != nil { withRooms.insert(scope) } else { withRooms.remove(scope) }
    }

    /// The strictest policy of all. No account or room has a stricter one.
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

    /// Changes with every update.
    package var version: UInt64 { counter.load(ordering: .acquiring) }

    package var snapshot: PolicySnapshot { state.withLock { $0 } }

    /// The strictest policy of all; costs one atomic load.
    package var strictest: Policy { Policy(rawValue: highest.load(ordering: .acquiring)) ?? .required }

    package func update(_ change: (inout PolicySnapshot) -> Void) {
        state.withLock { snapshot in
            change(&snapshot)
            highest.store(snapshot.strictest.rawValue, ordering: .releasing)
        }
        counter.wrappingAdd(1, ordering: .acquiringAndReleasing)
        listeners.notify()
    }
}
