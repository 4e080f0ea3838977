// One owner of the session keys of a queue.
//
// The queue's machine knows only whether a tenant has a key. Which key an attempt is sent with, what a refusal means, and
// what is stored for the next process is decided here, in one place.

import RequestQueue
import Synchronization

/// Owns session keys: chooses the key of each attempt, and decides what follows if the backend refuses it.
///
/// Called on the driver's threads, so it must be quick.
package protocol CredentialStore: Sendable {
    /// The key to send a request with; nil if there is none, so that the request waits for the next login of its tenant.
    func key(for request: APIClientQueueRequest) -> SessionKey?

    /// Notes that the backend has refused a key with 401.
    ///
    /// - Parameters:
    ///   - key: the key that was sent.
    ///   - request: the request, with the attempt that was refused.
    /// - Returns: what becomes of the request.
    func refused(_ key: SessionKey, for request: APIClientQueueRequest) -> AfterRefusal

    /// The metadata to store with a request that was done with a key; nil if the request's own stays.
    func metadata(of request: APIClientQueueRequest, sentWith key: SessionKey) -> [UInt8]?

    /// Whether a tenant has a key that the backend has not refused.
    func hasKey(_ tenant: String) -> Bool

    /// Whether keys are stored for the next process.
    var isStored: Bool { get }

    /// The keys of a tenant that the backend has not refused, sealed for the next process; nil if there is none to store.
    func sealed(of tenant: String) -> [UInt8]?
}

/// What becomes of a request whose session key was refused.
package enum AfterRefusal: Sendable, Equatable {
    /// It has failed.
    case fails
    /// It is sent again with another key of its tenant.
    case isSentAgain
    /// It waits for the next login of its tenant.
    case waits
}

/// One key for each tenant, that of its last login. The client may name another for a single request.
final class TenantSessions: CredentialStore {
    private struct Session {
        var key: SessionKey
        /// Whether the tenant has to log in again.
        var isRefused = false
    }

    private let client: any APIClient
    private let storage: SessionCredentials
    private let sessions: Mutex<[ExactText: Session]>

    /// - Parameters:
    ///   - stored: sealed keys that an earlier process has left. Those that cannot be opened are left out.
    ///   - sessions: further keys; they count more.
    init(
        _ client: any APIClient, _ storage: SessionCredentials, stored: [ExactText: [UInt8]],
        sessions: [ExactText: SessionKey]
    ) {
        (self.client, self.storage) = (client, storage)
        let keys = storage.keys(in: stored).merging(sessions) { $1 }
        self.sessions = Mutex(keys.mapValues { Session(key: $0) })
    }

    /// The tenants with a key.
    var tenants: [String] { sessions.withLock { $0.keys.map(\.text) } }

    /// Sets the key of a tenant after a login; nil after a logout.
    ///
    /// - Returns: whether this changes anything.
    func set(_ key: SessionKey?, for tenant: String) -> Bool {
        sessions.withLock { sessions in
            let name = ExactText(tenant)
            if let key, let known = sessions[name], known.key == key, !known.isRefused { return false }
            sessions[name] = key.map { Session(key: $0) }
            return true
        }
    }

    private func session(of tenant: String) -> Session? {
        sessions.withLock { $0[ExactText(tenant)] }.flatMap { $0.isRefused ? nil : $0 }
    }

    /// The key of a tenant; nil if it has none that the backend accepts.
    func key(of tenant: String) -> SessionKey? { session(of: tenant)?.key }

    func key(for request: APIClientQueueRequest) -> SessionKey? {
        client.session(for: request) ?? session(of: request.tenant)?.key
    }

    func refused(_ key: SessionKey, for request: APIClientQueueRequest) -> AfterRefusal {
        guard client.waitsForLogin(request, refused: key) else { return .fails }
        let isOwn = client.session(for: request) == key
        return sessions.withLock { sessions in
            let name = ExactText(request.tenant)
            guard let session = sessions[name], !session.isRefused else { return .waits }
            // The tenant has logged in since the attempt began.
            guard isOwn || session.key == key else { return .isSentAgain }
            sessions[name]?.isRefused = true
            return .waits
        }
    }

    func metadata(of _: APIClientQueueRequest, sentWith _: SessionKey) -> [UInt8]? { nil }

    func hasKey(_ tenant: String) -> Bool { session(of: tenant) != nil }

    var isStored: Bool { storage.isStored }

    func sealed(of tenant: String) -> [UInt8]? { storage.sealed(session(of: tenant)?.key, tenant: tenant) }
}
