// The queue's interface for an application.

public import Foundation
public import RequestQueue

/// Sends requests when they can be sent, and retries them.
public protocol APIClientQueuing: AnyObject, Sendable {
    /// Appends a request, and returns when it is stored. The queue decides when to send it.
    ///
    /// - Throws: `QueueError`; the request will never be sent then.
    func append(_ request: NewRequest) async throws(QueueError) -> RequestToken

    /// Adds a handler after the existing ones.
    func register(_ handler: any APIClientQueueResponseHandler)
    /// Removes a handler. It is not called again, except for an outcome that is being delivered.
    func unregister(_ handler: any APIClientQueueResponseHandler)

    /// Merges the remote identifier of an entity, for requests that wait for it. It is stored when this returns.
    ///
    /// - Throws: `MergeConflict` if the entity has another one, `QueueError` if it could not be stored.
    func merge(with identifier: EntityIdentifier, tenant: String) async throws

    /// The remote identifier of an entity; nil if it is unknown or forgotten.
    func remoteIdentifier(of reference: EntityReference, tenant: String) async -> String?

    /// Cancels a request that waits or is in flight. Handlers get ``APIClientQueueResult/aborted``. The backend may still
    /// do one that is in flight; its connection is closed.
    ///
    /// - Parameters:
    ///   - token: the request.
    ///   - cause: in words; nil if its sender cancels it.
    /// - Throws: `QueueActError` if it has ended or is unknown, `QueueError.unavailable(_:)`.
    func cancel(_ token: RequestToken, cause: String?) async throws
}

extension APIClientQueuing {
    /// The same for the unnamed tenant, of an application that one person uses.
    public func merge(with identifier: EntityIdentifier) async throws { try await merge(with: identifier, tenant: "") }

    /// The same for the unnamed tenant, of an application that one person uses.
    public func remoteIdentifier(of reference: EntityReference) async -> String? {
        await remoteIdentifier(of: reference, tenant: "")
    }

    /// Cancels a request for its sender.
    public func cancel(_ token: RequestToken) async throws { try await cancel(token, cause: nil) }
}

/// Receives the outcomes of requests, including those that an earlier process appended.
public protocol APIClientQueueResponseHandler: AnyObject, Sendable {
    /// Called once for each request, in the order in which they ended. If the process ends before this returns, the
    /// next process calls it again, three times at most.
    func clientQueue(
        _ clientQueue: any APIClientQueuing, didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async
}

/// How a request ended.
public enum APIClientQueueResult<Payload: Sendable, Failure: Error>: Sendable {
    /// The backend has done it.
    case success(APIClientResponse<Payload>)
    /// It was cancelled, or replaced by another request.
    case aborted
    /// It will not be done.
    case failure(Failure)
}

/// A request, as handlers see it.
public struct APIClientQueueRequest: Sendable {
    /// The request that was appended.
    public struct Wrapped: Sendable {
        /// The request, as the application described it.
        public var config: APIRequestConfig
    }

    private let request: QueuedRequest

    package init(_ request: QueuedRequest) { self.request = request }

    /// The request as the queue stores it.
    package var queued: QueuedRequest { request }

    /// The request that was appended.
    public var wrapped: Wrapped { Wrapped(config: request.config) }
    /// The token that ``APIClientQueuing/append(_:)`` returned.
    public var token: RequestToken { request.token }
    /// The owner of the request.
    public var tenant: String { request.tenant }
    /// The entity that the request is about.
    public var lane: String? { request.lane }
    /// The sender's data for handlers.
    public var identifiers: Data? { request.identifiers.map { Data($0) } }
    /// The sender's data that is stored with the request and never sent.
    public var metadata: Data? { request.metadata.map { Data($0) } }
    /// The entities that the request creates.
    public var creates: [EntityReference] { request.creates }
    /// When it was accepted, in milliseconds since 1970.
    public var timestamp: Int64 { request.timestamp }
    /// Number of attempts that have begun.
    public var attempts: Int { request.attempts }
    /// Number of attempts that ended without an answer: the backend may have done each of them as well.
    public var doubts: Int { request.doubts }
}
