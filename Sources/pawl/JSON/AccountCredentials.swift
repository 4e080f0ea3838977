// The credentials of accounts, for the queue of writes.
//
// A write is sent with the credential that came with it: the backend may recognise a repeated request by its device,
// and no write may go out under another user's login. If the backend rejects the credential at the first attempt, while
// the client waits, the write has failed. A write that has waited until its credential was rejected is sent with another
// one of its account, or waits for the next. So is one that an operator or its client sends again after it has failed.
//
// An account has a credential for each of its devices. They are stored together, so that devices that write in turn
// change nothing that is stored.

import Envelope
import JSONGateway
import NIOCore
import Protection
import RequestQueue
import RequestQueueClient
import Synchronization

/// The credentials that clients have shown, by account and by their mark, which stands for them in the store.
final class AccountCredentials: CredentialStore {
    /// Ours: credentials of one account. Beyond that the one that was not shown for the longest time is forgotten; its
    /// writes are sent with the most recent one.
    static let limitPerAccount = 16
    /// Ours: accounts. Beyond that the one that came first is forgotten; its writes wait for its next login.
    static let limit = 100_000

    private struct Entry {
        /// nil if an earlier version has stored the credential.
        let mark: String?
        /// nil if it was not shown in this process.
        let digest: CredentialCache.Digest?
        /// The cookies of the request that it came with.
        let cookies: [String]
        /// The credential with these cookies, for its own writes.
        let key: SessionKey
        /// The credential alone, for other writes of its account, and for the store.
        let bareKey: SessionKey
        var isRefused = false

        init(_ credential: Credential, _ mark: String, cookies: [String]) {
            (self.mark, digest, self.cookies) = (mark, credential.digest, cookies)
            key = SessionKey(credential, cookies: cookies)
            bareKey = SessionKey(credential)
        }

        init(_ stored: StoredCredentials.Entry) {
            (mark, digest, cookies) = (stored.mark, nil, [])
            (key, bareKey) = (stored.key, stored.key)
        }

        func isShownAgain(_ mark: String, _ cookies: [String]?) -> Bool {
            !isRefused && self.mark == mark && (cookies == nil || self.cookies == cookies)
        }
    }

    private struct State {
        /// The credentials of each account, the most recent last.
        var accounts: [ExactText: [Entry]] = [:]
        /// The accounts in the order in which they came.
        var order = CircularBuffer<ExactText>()

        mutating func set(_ entries: [Entry], of account: ExactText) {
            if accounts.updateValue(entries, forKey: account) == nil { order.append(account) }
            while order.count > limit, let first = order.popFirst() { accounts[first] = nil }
        }
    }

    /// Ours: a write that was accepted longer ago has waited, in milliseconds. Its client no longer waits for the answer.
    static let waited = HTTPExchange.patience / 1_000_000

    private let state = Mutex(State())
    /// Milliseconds since 1970.
    private let clock: @Sendable () -> Int64
    /// Whether this process has accepted a write, and it has not ended since.
    private let isNew: @Sendable (RequestToken) -> Bool
    /// The cache of credentials and their accounts. A refused credential is removed from it, and so is looked up again.
    private let cache: CredentialCache
    /// Seals credentials for the store; nil if they are in memory only.
    private let sealer: (any SessionSealing)?

    /// - Parameters:
    ///   - stored: what an earlier process has stored. What cannot be opened is left out.
    ///   - clock: milliseconds since 1970.
    ///   - isNew: whether this process has accepted a write, and it has not ended since; false for one that is sent again.
    init(
        _ cache: CredentialCache, sealer: (any SessionSealing)? = nil, stored: [ExactText: [UInt8]] = [:],
        clock: @escaping @Sendable () -> Int64 = { SystemClock.now().wall },
        isNew: @escaping @Sendable (RequestToken) -> Bool = { _ in true }
    ) {
        (self.cache, self.sealer, self.clock, self.isNew) = (cache, sealer, clock, isNew)
        guard let sealer else { return }
        state.withLock { state in
            for (account, bytes) in stored {
                guard let opened = try? sealer.open(bytes, tenant: account.text) else { continue }
                let entries = StoredCredentials(bytes: opened).entries.suffix(Self.limitPerAccount)
                if !entries.isEmpty { state.set(entries.map { Entry($0) }, of: account) }
            }
        }
    }

    /// The accounts with a credential.
    var accounts: [String] { state.withLock { $0.accounts.keys.map(\.text) } }

    /// Notes a credential that a client has shown.
    ///
    /// - Parameters:
    ///   - mark: its mark, see ``WriteKeys/mark(of:)``.
    ///   - cookies: all cookies of the write that it came with; nil if it came with a login, which has none for writes:
    ///     the cookies of waiting writes stay.
    /// - Returns: whether it is new, or was refused before.
    func show(_ credential: Credential, _ mark: String, cookies: [String]? = nil, by account: String) -> Bool {
        let account = ExactText(account)
        return state.withLock { state in
            var entries = state.accounts[account] ?? []
            guard entries.last?.isShownAgain(mark, cookies) != true else { return false }
            let bareKey = SessionKey(credential)
            let known = entries.firstIndex { $0.mark == mark || $0.mark == nil && $0.bareKey == bareKey }
            let old = known.map { entries.remove(at: $0) }
            entries.append(Entry(credential, mark, cookies: cookies ?? old?.cookies ?? []))
            if entries.count > Self.limitPerAccount { entries.removeFirst() }
            state.set(entries, of: account)
            return old?.mark == nil || old?.isRefused == true
        }
    }

    /// The credential that came with the request. If that is unknown or was refused, the most recent one of the account
    /// that was not. If all were refused, its own again, because the backend's answer is for its client.
    func key(for request: APIClientQueueRequest) -> SessionKey? {
        let mark = request.queued.mark
        return state.withLock { state in
            guard let entries = state.accounts[ExactText(request.tenant)] else { return nil }
            let own = entries.last { $0.mark != nil && $0.mark == mark }
            if let own, !own.isRefused { return own.key }
            return entries.last { !$0.isRefused }?.bareKey ?? own?.key ?? entries.last?.bareKey
        }
    }

    /// A write that is refused at its first attempt, with its own credential, would have been refused without a gateway
    /// as well. A write that has waited may have outlived its credential. One waits without an attempt while another
    /// request of its lane does not succeed, while its host cannot be reached, or while an operator holds it. One that was
    /// accepted by an earlier process, or has failed and is sent again, has waited: its age counts from then.
    func refused(_ key: SessionKey, for request: APIClientQueueRequest) -> AfterRefusal {
        let (mark, account) = (request.queued.mark, ExactText(request.tenant))
        let hasWaited =
            request.attempts > 1 || clock() - request.timestamp > Self.waited || !isNew(request.token)
        let (next, digest) = state.withLock { state -> (AfterRefusal, CredentialCache.Digest?) in
            guard var entries = state.accounts[account] else { return (.waits, nil) }
            var digest: CredentialCache.Digest?
            if let place = entries.lastIndex(where: { $0.key == key || $0.bareKey == key }) {
                entries[place].isRefused = true
                digest = entries[place].digest
                state.accounts[account] = entries
            }
            let own = entries.last { $0.mark != nil && $0.mark == mark }
            if !hasWaited, own?.isRefused == true { return (.fails, digest) }
            return (entries.allSatisfy(\.isRefused) ? .waits : .isSentAgain, digest)
        }
        if let digest { cache.forget(digest) }
        return next
    }

    /// The mark of the credential that a write was done with, so that this credential's client finds the write again.
    func metadata(of request: APIClientQueueRequest, sentWith key: SessionKey) -> [UInt8]? {
        let mark = state.withLock { state in
            state.accounts[ExactText(request.tenant)]?.last { $0.key == key || $0.bareKey == key }?.mark
        }
        guard let mark, mark != request.queued.mark else { return nil }
        return Array(mark.utf8)
    }

    func hasKey(_ account: String) -> Bool {
        state.withLock { $0.accounts[ExactText(account)]?.contains { !$0.isRefused } == true }
    }

    var isStored: Bool { sealer != nil }

    func sealed(of account: String) -> [UInt8]? {
        guard let sealer else { return nil }
        let entries = state.withLock { $0.accounts[ExactText(account)]?.filter { !$0.isRefused } ?? [] }
        guard !entries.isEmpty else { return nil }
        let stored = StoredCredentials(entries: entries.map { .init(mark: $0.mark, key: $0.bareKey) })
        return try? sealer.seal(stored.bytes, tenant: account)
    }
}

/// The stored form of an account's credentials, before it is sealed.
///
///     FF FF FF FF 01 | for each: length of the mark (1) | mark | length of the key (4) | key
///
/// Earlier versions stored one key without a mark. Its first four bytes are the number of its header fields.
struct StoredCredentials: Equatable {
    struct Entry: Equatable {
        /// nil if an earlier version has stored the key; then the mark is empty in the stored form.
        var mark: String?
        var key: SessionKey
    }

    /// The most recent last.
    var entries: [Entry]

    private static let beginning: [UInt8] = [0xFF, 0xFF, 0xFF, 0xFF, 1]

    init(entries: [Entry]) { self.entries = entries }

    /// Reads the stored form. Any bytes are safe to pass; what is damaged is left out.
    init(bytes: [UInt8]) {
        entries = []
        guard bytes.starts(with: Self.beginning) else {
            if let key = SessionKey(bytes: bytes) { entries = [Entry(mark: nil, key: SessionKey(stored: key))] }
            return
        }
        var cursor = ByteCursor(Array(bytes.dropFirst(Self.beginning.count)))
        while let entry = try? Self.entry(&cursor) { entries.append(entry) }
    }

    private static func entry(_ cursor: inout ByteCursor) throws(EnvelopeError) -> Entry {
        let mark = try cursor.take(Int(try cursor.byte()))
        guard let key = SessionKey(bytes: try cursor.take(Int(try cursor.uint32()))) else { throw .malformed }
        return Entry(mark: mark.isEmpty ? nil : String(decoding: mark, as: UTF8.self), key: key)
    }

    var bytes: [UInt8] {
        var bytes = Self.beginning
        for entry in entries {
            let (mark, key) = (Array((entry.mark ?? "").utf8.prefix(255)), entry.key.bytes)
            bytes.append(UInt8(mark.count))
            bytes += mark
            bytes.append(bigEndian: UInt32(key.count))
            bytes += key
        }
        return bytes
    }
}
