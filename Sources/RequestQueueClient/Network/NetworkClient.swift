// The interface to the network.

public import RequestQueue

/// A request to a host, fully resolved.
public struct NetworkRequest: Hashable, Sendable {
    /// The method.
    public var method: RequestQueue.HTTPMethod
    /// An absolute URL, percent-encoded.
    public var url: String
    /// The header fields, in their order.
    public var headers: [ResolvedRequest.Header]
    /// The body.
    public var body: [UInt8]
    /// Timeout in milliseconds.
    public var timeoutInterval: Int64

    /// A request to a URL.
    public init(
        method: RequestQueue.HTTPMethod, url: String, headers: [ResolvedRequest.Header] = [], body: [UInt8] = [],
        timeoutInterval: Int64
    ) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeoutInterval = timeoutInterval
    }

    /// The first field of a name, compared without case.
    public func header(_ name: String) -> String? { headers.first(name) }
}

/// The answer of a host.
public struct NetworkResponse: Hashable, Sendable {
    /// The HTTP status.
    public var status: Int
    /// The header fields, in their order.
    public var headers: [ResolvedRequest.Header]
    /// The body.
    public var body: [UInt8]
    /// Whether the body was larger than the client keeps, so that only its beginning is here.
    public var isCut: Bool

    /// An answer with a status.
    public init(status: Int, headers: [ResolvedRequest.Header] = [], body: [UInt8] = [], isCut: Bool = false) {
        (self.status, self.headers, self.body) = (status, headers, body)
        self.isCut = isCut
    }

    /// The first field of a name, compared without case.
    public func header(_ name: String) -> String? { headers.first(name) }
}

extension [ResolvedRequest.Header] {
    fileprivate func first(_ name: String) -> String? {
        first { $0.name.utf8.count == name.utf8.count && $0.name.lowercased() == name.lowercased() }?.value
    }
}

/// Sends requests and returns answers. Redirections are answers like others.
public protocol NetworkClient: Sendable {
    /// Sends one request and waits for the whole answer. Ends soon after its task is cancelled.
    ///
    /// It begins on a thread of the queue, so it must await long work and never block.
    ///
    /// - Throws: `NetworkFailure` if there is no answer.
    func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse
}

/// The in-memory twin of the network, for tests: a closure answers.
public struct InMemoryNetworkClient: NetworkClient {
    private let answer: @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse

    /// - Parameter answer: the host's answer to a request.
    public init(_ answer: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse) {
        self.answer = answer
    }

    /// See ``NetworkClient/send(_:)``.
    public func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        try await answer(request)
    }
}
