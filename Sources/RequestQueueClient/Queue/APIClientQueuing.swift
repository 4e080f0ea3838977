// What an application sees of the queue.

public import Foundation
public import RequestQueue

/// Picks the time to send requests, and sends them again.
public protocol APIClientQueuing: AnyObject, Sendable {
    /// Returns when the request is stored; when it is sent is the queue's business.
    ///
    /// - Throws: ``QueueError``; then it will never be sent.
    func append(_ request: NewRequest) async throws(QueueError) -> RequestToken

    /// Adds a handler behind those that there are.
    func register(_ handler: any APIClientQueueResponseHandler)
    /// Takes a handler away. It is not called again, except for an outcome that it has in hand.
    func unregister(_ handler: any APIClientQueueResponseHandler)

    /// Tells requests that wait what the backend calls an entity; stored when this returns.
    ///
    /// - Throws: ``MergeConflict`` where it is known under another name, ``QueueError`` where it could not be stored.
    func merge(with identifier: EntityIdentifier, tenant: String) async throws
}

extension APIClientQueuing {
    /// The same for the tenant without a name, which an application has that is used by one person.
    public func merge(with identifier: EntityIdentifier) async throws { try await merge(with: identifier, tenant: "") }
}

/// Is told how requests ended, also those that a process before this one had appended.
public protocol APIClientQueueResponseHandler: AnyObject, Sendable {
    /// Called once for each request, in the order in which they ended. Where the process ends before this returns, it is called
    /// again by the next one, three times at most.
    func clientQueue(
        _ clientQueue: any APIClientQueuing, didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async
}

/// How a request ended.
public enum APIClientQueueResult<Payload: Sendable, Failure: Error>: Sendable {
    /// The backend has done it.
    case success(APIClientResponse<Payload>)
    /// It was cancelled, or another one took its place.
    case aborted
    /// It will not be done.
    case failure(Failure)
}

/// A request, as handlers see it.
public struct APIClientQueueRequest: Sendable {
    /// What was asked for.
    public struct Wrapped: Sendable {
        /// The request, as its sender described it.
        public var config: APIRequestConfig
    }

    private let request: QueuedRequest

    init(_ request: QueuedRequest) { self.request = request }

    /// What was asked for.
    public var wrapped: Wrapped { Wrapped(config: request.config) }
    /// Its name.
    public var token: RequestToken { request.token }
    /// Whose request it is.
    public var tenant: String { request.tenant }
    /// The entity that it is about.
    public var lane: String? { request.lane }
    /// What its sender wanted handlers to know.
    public var identifiers: Data? { request.identifiers.map { Data($0) } }
    /// The entities that it brings into being.
    public var creates: [EntityReference] { request.creates }
    /// When it was accepted, in milliseconds since 1970.
    public var timestamp: Int64 { request.timestamp }
    /// How often its sending was begun.
    public var attempts: Int { request.attempts }
    /// How many attempts ended without an answer: the backend may have done each of them as well.
    public var doubts: Int { request.doubts }
}
