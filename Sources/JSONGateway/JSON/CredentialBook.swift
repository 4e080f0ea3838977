// Whose a credential is. The backend says so, in answer to a question of the gateway's own; what a client claims counts
// for nothing. Remembered by a digest, so that no credential lies in memory longer than its request.

import Crypto
package import HTTPCodec
import NIOCore
package import Protection
import Synchronization

/// The accounts of credentials that the backend has vouched for.
package final class CredentialBook: Sendable {
    /// Ours: how long an answer counts for what the backend itself answers, because that refuses a credential which has ended
    /// meanwhile. In nanoseconds.
    package static let memory: Int64 = 600_000_000_000
    /// Ours: the same for what the gateway keeps and sends later, with another login if it has to: as long as members count.
    package static let memoryForWrites = ConversationBook.memory
    /// Ours: the same for calls, which no backend sees: long enough for the calls of one moment.
    package static let memoryForCalls: Int64 = 5_000_000_000
    /// Ours: credentials remembered; with more, all of them are asked for again.
    package static let limit = 100_000

    /// What stands for a credential here.
    package struct Digest: Hashable, Sendable {
        fileprivate let value: SHA256.Digest

        package var bytes: [UInt8] { Array(value) }
    }

    /// Ours: how long the backend's no counts, so that a client which repeats itself costs one question. In nanoseconds.
    package static let memoryOfRefusals: Int64 = 10_000_000_000

    /// What is known of a credential.
    package enum Owner: Equatable, Sendable {
        case account(AccountID)
        /// The backend does not accept it.
        case nobody
        /// It has to be asked for.
        case unknown
    }

    private let accounts = Mutex<[Digest: (owner: Owner, at: Int64)]>([:])

    package init() {}

    /// - Parameter life: older answers do not count.
    package func owner(of credential: Digest, now: Int64, within life: Int64 = memory) -> Owner {
        accounts.withLock { accounts in
            guard let entry = accounts[credential] else { return .unknown }
            return now - entry.at < (entry.owner == .nobody ? Self.memoryOfRefusals : life) ? entry.owner : .unknown
        }
    }

    /// Takes the backend's answer, where it is one.
    package func remember(_ owner: Owner, of credential: Digest, now: Int64) {
        guard owner != .unknown else { return }
        accounts.withLock { accounts in
            if accounts.count >= Self.limit { accounts.removeAll() }
            accounts[credential] = (owner, now)
        }
    }

    /// The backend does not accept it any more.
    package func forget(_ credential: Digest) {
        accounts.withLock { $0[credential] = nil }
    }
}

/// What a client shows to be let in, found in the head of a request.
package struct Credential: Sendable, Equatable {
    /// The fields that carry it. A token of the query is one of a field as well, where the backend takes either: RFC 6750
    /// sections 2.1 and 2.3.
    package private(set) var fields = HeaderFields()
    /// The part of the query that carried it, percent-encoded, as it came: `access_token=...`.
    package private(set) var query: String?
    /// What names somebody else in whose name the request is, for questions: `user_id=...`. No secret, and left in the target.
    package private(set) var acting: String?
    /// What stands for it wherever it is remembered. Made once: every request asks for it more than once.
    package let digest: CredentialBook.Digest
    /// The same, where no field can carry it.
    package var neededQuery: String? { fields.fields.isEmpty ? query : nil }

    /// None, which every backend refuses.
    package init() { digest = Self.digest(of: HeaderFields(), nil, nil) }

    /// Finds the credential of a request; nothing where it shows none. Two of them are none: nobody could say which one the
    /// backend believes.
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
                    if places.contains(.header("Authorization")), case .says(let token) = RequestQuery(part)[name] {
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
            case .says(let other): acting = "\(name)=\(PercentCoding.segment(other))"
            // Nobody could say which one the backend believes.
            case .ambiguous where PercentCoding.lenient(query.utf8).firstRange(of: Array(name.utf8)) != nil: return nil
            case .absent, .ambiguous: break
            }
        }
        digest = Self.digest(of: fields, fields.fields.isEmpty ? query : nil, acting)
    }

    private static func digest(
        of fields: HeaderFields, _ neededQuery: String?, _ acting: String?
    ) -> CredentialBook.Digest {
        var hash = SHA256()
        for field in fields.fields {
            hash.update(data: Array("\(field.name.lowercased())\u{0}\(field.value)\u{0}".utf8))
        }
        hash.update(data: Array((neededQuery ?? "").utf8))
        if let acting { hash.update(data: Array("\u{0}\(acting)".utf8)) }
        return CredentialBook.Digest(value: hash.finalize())
    }

    /// A question to the backend in the client's name. Its `Host` is not the client's, which could choose a tenant of the
    /// backend by it: whoever sends it knows the one to use.
    package func question(_ target: String) -> RequestHead {
        var target = target
        for part in [neededQuery, acting].compactMap(\.self) { target += (target.contains("?") ? "&" : "?") + part }
        var headers: HeaderFields = ["Accept": "application/json"]
        headers.fields += fields.fields
        return RequestHead("GET", target, headers: headers)
    }
}
