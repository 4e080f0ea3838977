// A cache of the owners of credentials. The gateway resolves a credential by a lookup at the backend, and ignores what
// the client claims. The key is a digest, so that the cache holds no credential.

import Crypto
package import HTTPCodec
import NIOCore
package import Protection
import Synchronization

/// The accounts of credentials, as confirmed by the backend.
package final class CredentialCache: Sendable {
    /// Ours: lifetime of an entry for requests that the backend answers itself, because it rejects an expired
    /// credential. In nanoseconds.
    package static let memory: Int64 = 600_000_000_000
    /// Ours: lifetime for writes, which the gateway stores and may send later with another login. The same as for
    /// members.
    package static let memoryForWrites = MemberCache.memory
    /// Ours: lifetime for calls, which never reach the backend: long enough for a series of calls. In nanoseconds.
    package static let memoryForCalls: Int64 = 5_000_000_000
    /// Ours: maximum cached credentials; beyond it the whole cache is dropped.
    package static let limit = 100_000

    /// The digest by which a credential is stored.
    package struct Digest: Hashable, Sendable {
        fileprivate let value: SHA256.Digest

        package var bytes: [UInt8] { Array(value) }
    }

    /// Ours: lifetime of a rejection, so that a client that repeats requests causes one lookup. In nanoseconds.
    package static let memoryOfRefusals: Int64 = 10_000_000_000

    /// The owner of a credential.
    package enum Owner: Equatable, Sendable {
        case account(AccountID)
        /// The backend rejects the credential.
        case nobody
        /// The backend has to be asked.
        case unknown
    }

    private let accounts = Mutex<[Digest: (owner: Owner, at: Int64)]>([:])

    package init() {}

    /// The owner of a credential.
    ///
    /// - Parameter life: maximum age of an entry with an account, in nanoseconds.
    package func owner(of credential: Digest, now: Int64, within life: Int64 = memory) -> Owner {
        accounts.withLock { accounts in
            guard let entry = accounts[credential] else { return .unknown }
            return now - entry.at < (entry.owner == .nobody ? Self.memoryOfRefusals : life) ? entry.owner : .unknown
        }
    }

    /// Stores the backend's answer, unless it is `unknown`.
    package func remember(_ owner: Owner, of credential: Digest, now: Int64) {
        guard owner != .unknown else { return }
        accounts.withLock { accounts in
            if accounts.count >= Self.limit { accounts.removeAll() }
            accounts[credential] = (owner, now)
        }
    }

    /// Drops a credential that the backend no longer accepts.
    package func forget(_ credential: Digest) {
        accounts.withLock { $0[credential] = nil }
    }
}

/// The credential in the head of a request.
package struct Credential: Sendable, Equatable {
    /// The fields that carry the credential.
    ///
    /// A token in the query is also a field here if the backend accepts both. RFC 6750 sections 2.1 and 2.3.
    package private(set) var fields = HeaderFields()
    /// The part of the query that carries the credential, percent-encoded as received: `access_token=...`.
    package private(set) var query: String?
    /// The query part that names another user for whom the request acts: `user_id=...`. Added to lookups.
    ///
    /// Not secret, and left in the target.
    package private(set) var acting: String?
    /// The digest by which the credential is stored. Computed once, because each request uses it several times.
    package let digest: CredentialCache.Digest
    /// ``query`` if no field can carry the credential, else nil.
    package var neededQuery: String? { fields.fields.isEmpty ? query : nil }

    /// Creates an empty credential, which every backend rejects.
    package init() { digest = Self.digest(of: HeaderFields(), nil, nil) }

    /// Finds the credential of a request; nil if it has none, or more than one.
    ///
    /// With several credentials it is undefined which one the backend uses.
    package init?(of head: RequestHead, at places: [AccountSource.Credential], actingAs: String? = nil) {
        var fields = HeaderFields()
        var query: String?
        var count = 0
        for place in places {
            switch place {
            case .header(let name):
                for value in head.headers[name] {
                    fields.add(name, value)
                    count += 1
                }
            case .query(let name):
                for part in (head.query ?? "").split(separator: "&") where part.hasPrefix(name + "=") {
                    query = String(part)
                    count += 1
                    if places.contains(.header("Authorization")), case .single(let token) = RequestQuery(part)[name] {
                        fields.add("Authorization", "Bearer \(token)")
                    }
                }
            case .cookie(let name):
                for cookie in head.headers["Cookie"].flatMap({ $0.split(separator: ";") }) {
                    let cookie = cookie.drop { $0 == " " }
                    guard cookie.hasPrefix(name + "=") else { continue }
                    fields.add("Cookie", String(cookie))
                    count += 1
                }
            }
        }
        guard count == 1 else { return nil }
        (self.fields, self.query) = (fields, query)
        if let name = actingAs, let query = head.query {
            switch RequestQuery(query)[name] {
            case .single(let other): acting = "\(name)=\(PercentCoding.segment(other))"
            // It is undefined which of the values the backend uses.
            case .ambiguous where PercentCoding.lenient(query.utf8).firstRange(of: Array(name.utf8)) != nil: return nil
            case .absent, .ambiguous: break
            }
        }
        digest = Self.digest(of: fields, fields.fields.isEmpty ? query : nil, acting)
    }

    private static func digest(
        of fields: HeaderFields, _ neededQuery: String?, _ acting: String?
    ) -> CredentialCache.Digest {
        var hash = SHA256()
        for field in fields.fields {
            hash.update(data: Array("\(field.name.lowercased())\u{0}\(field.value)\u{0}".utf8))
        }
        hash.update(data: Array((neededQuery ?? "").utf8))
        if let acting { hash.update(data: Array("\u{0}\(acting)".utf8)) }
        return CredentialCache.Digest(value: hash.finalize())
    }

    /// Creates a lookup at the backend with the client's credential.
    ///
    /// It has no `Host`: the client's could select a tenant of the backend. The sender of the lookup adds one.
    package func question(_ target: String) -> RequestHead {
        var target = target
        for part in [neededQuery, acting].compactMap(\.self) { target += (target.contains("?") ? "&" : "?") + part }
        var headers: HeaderFields = ["Accept": "application/json"]
        headers.fields += fields.fields
        return RequestHead("GET", target, headers: headers)
    }
}
