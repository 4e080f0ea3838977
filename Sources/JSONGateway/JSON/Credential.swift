// The credential of a request. A backend may require several values together, or prefer one of several, so all values
// in the mapping's places are one login. Lookups and queued writes carry the same values in the same places: the backend
// applies its own precedence to each of them, and the gateway need not know it.

import Crypto
package import HTTPCodec
import NIOCore

/// The credential in the head of a request: its values in all places of the mapping.
package struct Credential: Sendable, Equatable {
    /// The fields that carry the credential.
    ///
    /// A token in the query is a field here if it is the only value and the backend accepts both. RFC 6750 sections 2.1
    /// and 2.3.
    package private(set) var fields = HeaderFields()
    /// The parts of the query that carry the credential, percent-encoded as received: `access_token=...`.
    private var queryParts: [Substring] = []
    /// The query part that names another user for whom the request acts: `user_id=...`. Added to lookups.
    ///
    /// Not secret, and left in the target.
    package private(set) var acting: String?
    /// The digest by which the credential is stored. Computed once, because each request uses it several times.
    package let digest: CredentialCache.Digest
    /// The part of the query that no field can carry; nil if there is none.
    package private(set) var neededQuery: String?

    /// Creates an empty credential, which every backend rejects.
    package init() { digest = Self.digest(of: HeaderFields(), nil, nil) }

    /// Finds the credential of a request; nil if it has none, or an ambiguous one.
    package init?(of head: RequestHead, at places: [AccountSource.Credential], actingAs: String? = nil) {
        let values = CredentialValues(in: head, at: places)
        guard values.ambiguous == nil, let first = values.places.first else { return nil }
        fields = values.fields
        queryParts = values.query
        neededQuery = queryParts.isEmpty ? nil : queryParts.joined(separator: "&")
        if case .query = first, values.places.count == 1, let token = values.queryToken,
            places.contains(.header("Authorization"))
        {
            fields.add("Authorization", "Bearer \(token)")
            neededQuery = nil
        }
        if let name = actingAs, let query = head.query {
            switch RequestQuery(query)[name] {
            case .single(let other): acting = "\(name)=\(PercentCoding.segment(other))"
            // It is undefined which of the values the backend uses.
            case .ambiguous where PercentCoding.mayContain(name, in: query): return nil
            case .absent, .ambiguous: break
            }
        }
        digest = Self.digest(of: fields, neededQuery, acting)
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
        return CredentialCache.Digest(hash.finalize())
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

    /// Whether browsers add a part of the credential to the requests of every page: a cookie, or a remembered password.
    var isAmbient: Bool {
        fields.fields.contains { field in
            switch field.name.lowercased() {
            case "cookie": true
            case "authorization": Self.rememberedSchemes.contains(field.value.prefix { $0 != " " }.lowercased())
            default: false
            }
        }
    }

    /// The schemes of RFC 7617, RFC 7616 and RFC 4559.
    private static let rememberedSchemes: Set<String> = ["basic", "digest", "negotiate", "ntlm"]

    /// Whether a part of a query belongs to the credential.
    func isQueryPart(_ part: Substring) -> Bool { queryParts.contains(part) }
}

/// The values of a request in the places of credentials.
package struct CredentialValues: Sendable {
    /// The places that the request fills, in the order of the mapping.
    package private(set) var places: [AccountSource.Credential] = []
    /// A place with several values, or one that backends could read differently; nil if there is none.
    package private(set) var ambiguous: AccountSource.Credential?
    fileprivate private(set) var fields = HeaderFields()
    fileprivate private(set) var query: [Substring] = []
    /// The decoded value of the last query part.
    fileprivate private(set) var queryToken: String?

    /// Whether the request fills no place and no header field that a backend could take for one.
    var isEmpty: Bool { places.isEmpty && ambiguous == nil }

    package init(in head: RequestHead, at places: [AccountSource.Credential]) {
        var found: [(index: Int, part: Substring)] = []
        var cookies: [(index: Int, cookie: Substring)] = []
        for place in places {
            let count: Int
            switch place {
            case .header(let name):
                let values = head.headers[name]
                for value in values { fields.add(name, value) }
                // A backend behind CGI reads `X_Token` as `X-Token` too.
                let alike = head.headers.fields.count { HeaderFields.areOneBehindCGI($0.name, name) }
                count = values.count == alike ? alike : 2
            case .query(let name):
                let parts = self.parts(named: name, of: head.query ?? "")
                found += parts
                count = parts.count
            case .cookie(let name):
                let named = Self.cookies(of: head).filter { Self.name(of: $0.cookie) == name }
                cookies += named
                count = named.count
            }
            if count > 0 { self.places.append(place) }
            if count > 1 { ambiguous = ambiguous ?? place }
        }
        // In the order of the request, because the backend may take the first.
        query = found.sorted { $0.index < $1.index }.map(\.part)
        if !cookies.isEmpty {
            // One line, as a client sends it. RFC 6265 section 5.4.
            fields.add("Cookie", cookies.sorted { $0.index < $1.index }.map(\.cookie).joined(separator: "; "))
        }
    }

    private mutating func parts(named name: String, of query: Substring) -> [(index: Int, part: Substring)] {
        var found: [(index: Int, part: Substring)] = []
        for (index, part) in query.split(separator: "&").enumerated() {
            switch RequestQuery(part)[name] {
            case .single(let value):
                queryToken = value
                found.append((index, part))
            // Counts twice, so that the place is ambiguous.
            case .ambiguous where PercentCoding.mayContain(name, in: part): found += [(index, part), (index, part)]
            case .absent, .ambiguous: break
            }
        }
        return found
    }

    private static func cookies(of head: RequestHead) -> [(index: Int, cookie: Substring)] {
        head.headers["Cookie"].flatMap { $0.split(separator: ";") }
            .map { $0.drop { $0 == " " || $0 == "\t" } }
            .enumerated().map { ($0.offset, $0.element) }
    }

    /// The name of a cookie, without white space, which parsers remove; empty if it has none.
    private static func name(of cookie: Substring) -> Substring {
        var name = cookie[..<(cookie.firstIndex(of: "=") ?? cookie.startIndex)]
        while let last = name.last, last == " " || last == "\t" { name.removeLast() }
        return name
    }
}

extension PercentCoding {
    /// Whether some decoder could find a name in a query.
    fileprivate static func mayContain(_ name: String, in query: Substring) -> Bool {
        lenient(query.utf8).firstRange(of: Array(name.utf8)) != nil
    }
}
