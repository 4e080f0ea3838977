// Requests that are not queued: reads with a waiting user.

public import Foundation
public import RequestQueue

extension APIClient {
    /// Sends a request at once and waits for the answer. Nothing is stored or repeated.
    ///
    /// Equal requests at the same time are sent once if `APIRequestConfig.deduplicate` is set.
    ///
    /// - Parameters:
    ///   - config: the request.
    ///   - session: attached if `APIRequestConfig.includeSessionKey` is set.
    ///   - names: remote identifiers of the entities that the request names.
    /// - Throws: ``APIError``.
    public func send(
        _ config: APIRequestConfig, session: SessionKey? = nil, names: [EntityReference: String] = [:]
    ) async throws(APIError) -> APIClientResponse<Data> {
        if config.includeSessionKey, session == nil { throw .noSession }
        let config = await prepareRequest(config)
        let log = logHandler
        func note(_ step: APIClientLogEntry.Step) { log?(APIClientLogEntry(self, config, token: nil, step)) }
        let request: NetworkRequest
        do throws(UnresolvedReference) {
            request = try networkRequest(config, names: names, session: session)
        } catch {
            throw .queue("The backend has not named \(error.reference) yet.")
        }
        let response: NetworkResponse
        note(.sent)
        do throws(NetworkFailure) {
            response = try await send(request, once: config.deduplicate)
        } catch {
            note(.failed(.network(error)))
            throw .network(error)
        }
        note(
            RetryTable.isSuccess(response.status)
                ? .answered(status: response.status) : .failed(.status(response.status)))
        guard RetryTable.isSuccess(response.status) else {
            throw .api(status: response.status, errorPayload(from: Data(response.body)))
        }
        return APIClientResponse(
            data: Data(response.body), status: response.status, headers: response.headers,
            jsonCoderConfig: jsonCoderConfig)
    }

    /// Sends a request; with `once`, waits for the answer to an equal one in flight instead.
    func send(_ request: NetworkRequest, once: Bool) async throws(NetworkFailure) -> NetworkResponse {
        let network = networkClient
        guard once else { return try await network.send(request) }
        return try await deduplicator.send(request) { (request) throws(NetworkFailure) in
            try await network.send(request)
        }
    }

    /// Whether a session key may go with this request: to the client's own host, or to one that it allows.
    func sendsSession(with config: APIRequestConfig) -> Bool {
        guard let other = config.host else { return true }
        return Self.origin(of: other).map { $0 == Self.origin(of: host) } == true || sendsSession(to: other)
    }

    /// Scheme and authority of a base URL, without the default port (RFC 6454 section 4); nil if it has none, or has
    /// user information.
    private static func origin(of url: String) -> String? {
        guard let separator = url.range(of: "://") else { return nil }
        let scheme = url[..<separator.lowerBound].lowercased()
        var authority = url[separator.upperBound...].prefix { !"/?#".contains($0) }.lowercased()
        guard !authority.isEmpty, authority.utf8.allSatisfy({ isHostByte($0) }) else { return nil }
        let port = ["http": ":80", "https": ":443"][scheme]
        if let port, authority.hasSuffix(port) { authority.removeLast(port.count) }
        return scheme + "://" + authority
    }

    /// Letters, digits and the separators of an address. Libraries may read other bytes in different ways.
    private static func isHostByte(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
            || "-._:[]".utf8.contains(byte)
    }

    /// The request with everything that is attached at sending.
    func networkRequest(
        _ config: APIRequestConfig, names: [EntityReference: String], session: SessionKey?
    ) throws(UnresolvedReference) -> NetworkRequest {
        let resolved = try config.resolved { names[$0] }
        var headers = resolved.headers
        let base = resolved.host ?? host
        var url = (base.hasSuffix("/") ? String(base.dropLast()) : base) + resolved.target
        if config.includeSessionKey, let session, sendsSession(with: config) {
            headers += session.headers
            if let query = session.query { url += (url.contains("?") ? "&" : "?") + query }
        }
        return NetworkRequest(
            method: resolved.method, url: url, headers: headers, body: resolved.body,
            timeoutInterval: resolved.timeoutInterval ?? timeoutInterval)
    }
}

/// Authenticates a request to the backend. Its parts never appear in logs.
public struct SessionKey: Hashable, Sendable, CustomStringConvertible, CustomDebugStringConvertible,
    CustomReflectable
{
    /// Header fields that are attached to each request.
    public var headers: [ResolvedRequest.Header]
    /// A part of the query that is attached to each request, percent-encoded, such as `access_token=...`; nil for none.
    public var query: String?

    /// A key of any header fields, and of a part of the query.
    public init(headers: [ResolvedRequest.Header] = [], query: String? = nil) {
        (self.headers, self.query) = (headers, query)
    }

    /// A bearer token (RFC 6750 section 2.1).
    public init(bearer token: String) { headers = [.init("Authorization", "Bearer \(token)")] }

    /// Hides the contents.
    public var description: String { "SessionKey(hidden)" }
    /// Hides the contents.
    public var debugDescription: String { description }
    /// Hides the contents.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
