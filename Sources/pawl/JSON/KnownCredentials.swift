// The credentials that clients have shown with their writes, in memory only.

import JSONGateway
import RequestQueue
import RequestQueueClient
import Synchronization

/// Credentials by what stands for them in the queue's file.
final class KnownCredentials: Sendable {
    /// Ours: credentials of one account; more are the oldest's end, whose writes are then sent with the last one shown.
    static let limitPerAccount = 16
    /// Ours: accounts; with more, all are forgotten, likewise.
    static let limit = 100_000

    private struct Entry {
        let mark: String
        let digest: CredentialBook.Digest
        let key: SessionKey
        var isRefused = false
    }

    private struct State {
        var entries: [ExactText: [Entry]] = [:]
        var accounts: [String: ExactText] = [:]
        /// What the backend has refused last, of each account.
        var refused: [ExactText: CredentialBook.Digest] = [:]

        func entry(_ mark: String) -> Entry? {
            accounts[mark].flatMap { entries[$0]?.first { $0.mark == mark } }
        }

        /// The backend does not accept a credential of the account.
        mutating func refuse(_ digest: CredentialBook.Digest?, of account: ExactText) {
            for place in entries[account]?.indices ?? 0..<0 where entries[account]?[place].digest == digest {
                entries[account]?[place].isRefused = true
            }
        }
    }

    private let state = Mutex(State())
    /// Where is remembered whose credentials are: what the backend refuses is asked for again.
    private let book: CredentialBook

    init(_ book: CredentialBook) { self.book = book }

    func remember(_ mark: String, of account: String, _ digest: CredentialBook.Digest, _ key: SessionKey) {
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

    /// The credential itself; nothing where it is not known, or not accepted any more.
    func key(_ mark: String) -> SessionKey? {
        state.withLock { state in
            guard let entry = state.entry(mark), !entry.isRefused else { return nil }
            return entry.key
        }
    }

    func isRefused(_ mark: String?) -> Bool {
        state.withLock { state in mark.flatMap { state.entry($0) }?.isRefused ?? false }
    }

    /// The backend does not accept it.
    func refuse(_ mark: String) {
        let digest = state.withLock { state -> CredentialBook.Digest? in
            guard let account = state.accounts[mark], let digest = state.entry(mark)?.digest else { return nil }
            state.refuse(digest, of: account)
            state.refused[account] = digest
            return digest
        }
        if let digest { book.forget(digest) }
    }

    /// The backend does not accept a credential that a write of an account was sent with.
    ///
    /// - Parameter shown: the one that the account showed last, which it was if it was not the write's own.
    /// - Returns: another one of the account's, which the backend has not refused yet.
    func another(of account: String, than shown: CredentialBook.Digest?) -> (CredentialBook.Digest, SessionKey)? {
        let account = ExactText(account)
        let (refused, other) = state.withLock { state in
            let refused = state.refused.removeValue(forKey: account) ?? shown
            state.refuse(refused, of: account)
            return (refused, state.entries[account]?.last { !$0.isRefused }.map { ($0.digest, $0.key) })
        }
        if let refused { book.forget(refused) }
        return other
    }
}
