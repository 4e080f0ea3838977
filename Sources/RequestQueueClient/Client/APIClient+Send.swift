// Requests that are not queued: reads, whose answer somebody waits for.

public import Foundation
public import RequestQueue

extension APIClient {
    /// Sends a request at once and waits for the answer. Nothing is stored and nothing is repeated; equal requests at the same time
    /// are one where ``APIRequestConfig/deduplicate`` says so.
    ///
    /// - Parameters:
    ///   - session: what is attached where ``APIRequestConfig/includeSessionKey`` says so.
    ///   - names: what the backend calls the entities that the request names.
    /// - Throws: ``APIError``.
    public func send(
        _ config: APIRequestConfig, session: SessionKey? = nil, names: [EntityReference: String] = [:]
    ) async throws(APIError) -> APIClientResponse<Data> {
        if config.includeSessionKey, session == nil { throw .noSession }
        let config = await prepareRequest(config)
        let request: NetworkRequest
        do throws(UnresolvedReference) {
            request = try networkRequest(config, names: names, session: session)
        } catch {
            throw .queue("The backend has not named \(error.reference) yet.")
        }
        let response: NetworkResponse
        do throws(NetworkFailure) {
            if config.deduplicate {
                let network = networkClient
                response = try await deduplicator.send(request) { (request) throws(NetworkFailure) in
                    try await network.send(request)
                }
            } else {
                response = try await networkClient.send(request)
            }
        } catch {
            throw .network(error)
        }
        guard RetryTable.isSuccess(response.status) else {
            throw .api(status: response.status, errorPayload(from: Data(response.body)))
        }
        return APIClientResponse(
            data: Data(response.body), status: response.status, headers: response.headers,
            jsonCoderConfig: jsonCoderConfig)
    }

    /// The request with everything that is attached when it is sent.
    func networkRequest(
        _ config: APIRequestConfig, names: [EntityReference: String], session: SessionKey?
    ) throws(UnresolvedReference) -> NetworkRequest {
        let resolved = try config.resolved { names[$0] }
        var headers = resolved.headers
        if config.includeSessionKey, let session { headers += session.headers }
        let base = resolved.host ?? host
        return NetworkRequest(
            method: resolved.method, url: (base.hasSuffix("/") ? String(base.dropLast()) : base) + resolved.target,
            headers: headers, body: resolved.body, timeoutInterval: resolved.timeoutInterval ?? timeoutInterval)
    }
}

/// What proves to the backend who sends a request. Its parts never appear in logs.
public struct SessionKey: Hashable, Sendable, CustomStringConvertible, CustomDebugStringConvertible,
    CustomReflectable
{
    /// What is attached to each request.
    public var headers: [ResolvedRequest.Header]

    /// Any fields.
    public init(headers: [ResolvedRequest.Header]) { self.headers = headers }

    /// A bearer token (RFC 6750 section 2.1).
    public init(bearer token: String) { headers = [.init("Authorization", "Bearer \(token)")] }

    /// Says nothing of what is in it.
    public var description: String { "SessionKey(hidden)" }
    /// Says nothing of what is in it.
    public var debugDescription: String { description }
    /// Shows nothing of what is in it.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
