// The credentials that clients have shown with their writes, in memory only.
//
// A write is sent with the credential that came with it: the backend may recognise a repeated request by its device,
// and no write may go out under another user's login. If the backend rejects the credential at the first attempt, the
// write has failed. A write that has waited until its credential was rejected is sent with another one of its account.

import JSONGateway
import RequestQueue
import RequestQueueClient
import Synchronization

/// Credentials by their mark, which stands for them in the store.
final class KnownCredentials: Sendable {
    /// Ours: credentials of one account. Beyond that the oldest is forgotten; its writes are sent with the most recent one.
    static let limitPerAccount = 16
    /// Ours: accounts. Beyond that the credentials of all accounts are forgotten.
    static let limit = 100_000

    private struct Entry {
        let mark: String
        let digest: CredentialCache.Digest
        let key: SessionKey
        var isRefused = false
    }

    private struct State {
        var entries: [ExactText: [Entry]] = [:]
        var accounts: [String: ExactText] = [:]
        /// The credential of each account that the backend has refused last.
        var refused: [ExactText: CredentialCache.Digest] = [:]

        func entry(_ mark: String) -> Entry? {
            accounts[mark].flatMap { entries[$0]?.first { $0.mark == mark } }
        }

        /// Marks a credential of the account as refused.
        mutating func refuse(_ digest: CredentialCache.Digest?, of account: ExactText) {
            for place in entries[account]?.indices ?? 0..<0 where entries[account]?[place].digest == digest {
                entries[account]?[place].isRefused = true
            }
        }
    }

    private let state = Mutex(State())
    /// The cache of credentials and their accounts. A refused credential is removed from it, and so is looked up again.
    private let cache: CredentialCache

    init(_ cache: CredentialCache) { self.cache = cache }

    func remember(_ mark: String, of account: String, _ digest: CredentialCache.Digest, _ key: SessionKey) {
        let account = ExactText(account)
        state.withLock { state in
            if state.entries.count >= Self.limit, state.entries[account] == nil { state = State() }
            var entries = state.entries[account] ?? []
            entries.removeAll { $0.mark == mark }
            entries.append(Entry(mark: mark, digest: digest, key: key))
            if entries.count > Self.limitPerAccount { state.accounts[entries.removeFirst().mark] = nil }
            state.entries[account] = entries
            state.accounts[mark] = account
        }
    }

    /// Returns the credential; nil if it is not known or was refused.
    func key(_ mark: String) -> SessionKey? {
        state.withLock { state in
            guard let entry = state.entry(mark), !entry.isRefused else { return nil }
            return entry.key
        }
    }

    /// Handles a refusal by the backend: whether the write waits for the next login of its account.
    ///
    /// A write that is refused at its first attempt, with its own credential, would have been refused without a gateway as
    /// well. A write that has waited may have outlived its credential.
    ///
    /// - Parameters:
    ///   - mark: the mark of the credential that came with the write.
    ///   - key: the credential that was sent, which may be another one of the account.
    ///   - attempts: the number of attempts of the write, this one included.
    func waits(for mark: String, refused key: SessionKey, attempts: Int) -> Bool {
        if self.key(mark) == key { refuse(mark) }
        return attempts > 1 || !isRefused(mark)
    }

    private func isRefused(_ mark: String) -> Bool {
        state.withLock { $0.entry(mark)?.isRefused ?? false }
    }

    /// Marks a credential as refused.
    private func refuse(_ mark: String) {
        let digest = state.withLock { state -> CredentialCache.Digest? in
            guard let account = state.accounts[mark], let digest = state.entry(mark)?.digest else { return nil }
            state.refuse(digest, of: account)
            state.refused[account] = digest
            return digest
        }
        if let digest { cache.forget(digest) }
    }

    /// Finds another credential of an account after the backend has refused one.
    ///
    /// - Parameter shown: the account's most recent credential; taken as the refused one if the write's own is unknown.
    /// - Returns: a credential that the backend has not refused; nil if there is none.
    func another(of account: String, than shown: CredentialCache.Digest?) -> (CredentialCache.Digest, SessionKey)? {
        let account = ExactText(account)
        let (refused, other) = state.withLock { state in
            let refused = state.refused.removeValue(forKey: account) ?? shown
            state.refuse(refused, of: account)
            return (refused, state.entries[account]?.last { !$0.isRefused }.map { ($0.digest, $0.key) })
        }
        if let refused { cache.forget(refused) }
        return other
    }
}
