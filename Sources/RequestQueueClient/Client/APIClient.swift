// An application's description of its backend.

public import Foundation
public import RequestQueue

/// Describes a backend to the queue.
public protocol APIClient: Sendable {
    /// The interface to the network.
    var networkClient: any NetworkClient { get }
    /// A name for logs, which ``logHandler`` gets with each entry.
    var identifier: String { get }
    /// Receives an entry for each step of each request. It must be quick. Default: nil; nothing is logged.
    var logHandler: (@Sendable (APIClientLogEntry) -> Void)? { get }
    /// The base URL of the backend's endpoints, such as `https://my_server.example/api/v1`.
    var host: String { get }
    /// Combines equal requests that are sent at the same time.
    var deduplicator: any APIRequestDeduplicating { get }
    /// How bodies are read and written. Default: JSON with the coders' own settings.
    var jsonCoderConfig: APIJSONCoderConfig { get }
    /// Timeout of requests without one of their own, in milliseconds. Default: a minute.
    var timeoutInterval: Int64 { get }

    /// Called before each attempt, to add what all requests share. The additions are not stored.
    ///
    /// It must await long work and never block, as in ``NetworkClient/send(_:)``.
    func prepareRequest(_ requestConfig: APIRequestConfig) async -> APIRequestConfig

    /// The session key of one request, which is attached in place of its tenant's. Default: nil, for the tenant's.
    func session(for request: APIClientQueueRequest) -> SessionKey?

    /// Whether a session key may go to a host other than ``host``, which a request names in `APIRequestConfig.host`.
    /// Default: no; the request is then sent without it. Called if scheme, name or port differ.
    func sendsSession(to host: String) -> Bool

    /// Whether a header field of an answer may be stored with the outcome. Default: all. Other fields, such as a
    /// cookie, reach the queue's watcher only.
    func keepsHeader(_ name: String) -> Bool

    /// Whether a request whose session key the backend refused with 401 waits for its tenant's next login. Default:
    /// yes. If not, it has failed, and other requests of the tenant continue.
    ///
    /// - Parameters:
    ///   - request: the request.
    ///   - key: the key that was sent.
    func waitsForLogin(_ request: APIClientQueueRequest, refused key: SessionKey) -> Bool

    /// Parses the body of an answer with a failing status. Nil for 403, 404 and 407 means that the backend did not give
    /// this answer: the request waits, see `AttemptFailure.unexpected(_:)`. Default: any JSON object is the
    /// backend's.
    func errorPayload(from body: Data) -> APIErrorPayload?

    /// The remote identifiers of the entities that a request created. They are stored with the completion of the
    /// request, in one transaction. Default: none; a response handler may merge them later.
    func identifiers(in response: APIClientResponse<Data>, for request: APIClientQueueRequest) -> [EntityIdentifier]
}

extension APIClient {
    /// JSON with the coders' own settings.
    public var jsonCoderConfig: APIJSONCoderConfig { APIJSONCoderConfig() }
    /// A minute.
    public var timeoutInterval: Int64 { 60_000 }
    /// Nothing is logged.
    public var logHandler: (@Sendable (APIClientLogEntry) -> Void)? { nil }
    /// The tenant's.
    public func session(for request: APIClientQueueRequest) -> SessionKey? { nil }
    /// No.
    public func sendsSession(to host: String) -> Bool { false }
    /// All.
    public func keepsHeader(_ name: String) -> Bool { true }
    /// Yes.
    public func waitsForLogin(_ request: APIClientQueueRequest, refused key: SessionKey) -> Bool { true }
    /// The request as it is.
    public func prepareRequest(_ requestConfig: APIRequestConfig) async -> APIRequestConfig { requestConfig }
    /// Any JSON object, with its member `message` or `error` if that is a string.
    public func errorPayload(from body: Data) -> APIErrorPayload? {
        guard let members = (try? JSONSerialization.jsonObject(with: body)) as? [String: Any] else { return nil }
        return APIErrorPayload(message: members["message"] as? String ?? members["error"] as? String ?? "")
    }
    /// None.
    public func identifiers(
        in response: APIClientResponse<Data>, for request: APIClientQueueRequest
    ) -> [EntityIdentifier] { [] }
}

/// How bodies are read and written.
public struct APIJSONCoderConfig: Sendable {
    private let makeDecoder: @Sendable () -> JSONDecoder
    private let makeEncoder: @Sendable () -> JSONEncoder

    /// A configuration that makes a coder for each use, since coders cannot be shared between threads.
    public init(
        decoder: @escaping @Sendable () -> JSONDecoder = { JSONDecoder() },
        encoder: @escaping @Sendable () -> JSONEncoder = { JSONEncoder() }
    ) {
        (makeDecoder, makeEncoder) = (decoder, encoder)
    }

    /// Reads bodies.
    public var decoder: JSONDecoder { makeDecoder() }
    /// Writes bodies.
    public var encoder: JSONEncoder { makeEncoder() }
}

/// The backend's description of a failure.
public struct APIErrorPayload: Hashable, Sendable {
    /// The backend's own code.
    public var code: String?
    /// The message for people.
    public var message: String

    /// A message, with a code if there is one.
    public init(code: String? = nil, message: String) { (self.code, self.message) = (code, message) }
}

/// Why a request was not done.
public enum APIError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The backend answered with a failure.
    case api(status: Int, APIErrorPayload?)
    /// There was no answer.
    case network(NetworkFailure)
    /// The queue has given it up, for this reason.
    case queue(String)
    /// It needs a session key, and there is none.
    case noSession

    /// For people and logs.
    public var description: String {
        switch self {
        case .api(let status, let payload):
            "The host answered with status \(status)"
                + (payload.flatMap { $0.message.isEmpty ? nil : ": \($0.message)" } ?? ".")
        case .network(let failure): "\(failure.text.prefix(1).uppercased())\(failure.text.dropFirst())."
        case .queue(let cause): cause
        case .noSession: "The request needs a login, and there is none at present."
        }
    }
}

/// What the backend answered.
public struct APIClientResponse<Payload: Sendable>: Sendable {
    /// The body.
    public var data: Payload
    /// The HTTP status.
    public var status: Int
    /// The header fields, in their order.
    public var headers: [ResolvedRequest.Header]
    /// How the body is to be read.
    public var jsonCoderConfig: APIJSONCoderConfig

    /// An answer.
    public init(data: Payload, status: Int, headers: [ResolvedRequest.Header], jsonCoderConfig: APIJSONCoderConfig) {
        (self.data, self.status, self.headers) = (data, status, headers)
        self.jsonCoderConfig = jsonCoderConfig
    }
}
