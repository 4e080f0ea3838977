// The policy that applies to a connection, by its account, and the settings that are read with it.

import IRCCodec
import Protection
import RequestQueue

/// The policies and settings as one connection last read them.
struct EffectivePolicy {
    private(set) var settings: IRCSettings
    private(set) var snapshot: PolicySnapshot
    /// The policy of the connection's account.
    private(set) var policy: Policy
    private var version: UInt64
    /// Verbs whose text was removed, of which the client has had the notice.
    private var strippedVerbs: Set<VerbKey> = []
    /// Folded unprotected rooms for which a protected person has had the notice.
    private var plainRooms: Set<ExactText> = []

    init(_ environment: IRCEnvironment) {
        // Before the policies: if they change meanwhile, they are read again.
        version = environment.policies.version
        settings = environment.settings
        snapshot = environment.policies.snapshot
        policy = snapshot.policy(of: nil)
    }

    /// Reads policies and settings again if they have changed.
    ///
    /// - Returns: whether they have; then ``apply(to:)`` is due.
    mutating func renew(_ environment: IRCEnvironment) -> Bool {
        guard environment.policies.version != version else { return false }
        version = environment.policies.version
        snapshot = environment.policies.snapshot
        settings = environment.settings
        return true
    }

    /// Applies the policy of an account.
    ///
    /// - Returns: the earlier policy if it was another one, else nil.
    mutating func apply(to account: AccountID) -> Policy? {
        let before = policy
        policy = snapshot.policy(of: account)
        return before == policy ? nil : before
    }

    /// Whether the notice that the text of a verb was removed is due; true once for each verb.
    mutating func isNoticeDue(stripped verb: VerbKey) -> Bool { strippedVerbs.insert(verb).inserted }

    /// Whether the notice that a room is not protected is due; true once for each room.
    mutating func isNoticeDue(plainRoom room: String) -> Bool { plainRooms.insert(room) }
}
