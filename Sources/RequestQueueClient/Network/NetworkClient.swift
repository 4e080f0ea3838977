// The interface to the network.

public import RequestQueue

/// A request as it goes to a host.
public struct NetworkRequest: Hashable, Sendable {
    /// The method.
    public var method: RequestQueue.HTTPMethod
    /// An absolute URL, percent-encoded.
    public var url: String
    /// The header fields, in their order.
    public var headers: [ResolvedRequest.Header]
    /// Its bytes.
    public var body: [UInt8]
    /// Milliseconds until it is given up.
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

    /// The first field of a name, whatever its case.
    public func header(_ name: String) -> String? { headers.first(name) }
}

/// What a host has answered.
public struct NetworkResponse: Hashable, Sendable {
    /// The HTTP status.
    public var status: Int
    /// The header fields, in their order.
    public var headers: [ResolvedRequest.Header]
    /// Its bytes.
    public var body: [UInt8]
    /// Whether the body was larger than the client keeps, so that only its beginning is here.
    public var isCut: Bool

    /// An answer with a status.
    public init(status: Int, headers: [ResolvedRequest.Header] = [], body: [UInt8] = [], isCut: Bool = false) {
        (self.status, self.headers, self.body) = (status, headers, body)
        self.isCut = isCut
    }

    /// The first field of a name, whatever its case.
    public func header(_ name: String) -> String? { headers.first(name) }
}

extension [ResolvedRequest.Header] {
    fileprivate func first(_ name: String) -> String? {
        first { $0.name.utf8.count == name.utf8.count && $0.name.lowercased() == name.lowercased() }?.value
    }
}

/// Sends requests and brings answers. Redirections are answers like others.
public protocol NetworkClient: Sendable {
    /// Sends one request and waits for the whole answer. Ends soon when its task is cancelled. It is begun on a thread of the queue,
    /// so that whatever takes long in it is to be awaited and must not block.
    ///
    /// - Throws: ``NetworkFailure`` where there was no answer.
    func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse
}

/// The twin of the network, for tests: a closure answers.
public struct InMemoryNetworkClient: NetworkClient {
    private let answer: @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse

    /// - Parameter answer: what the host says to a request.
    public init(_ answer: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse) {
        self.answer = answer
    }

    /// See ``NetworkClient/send(_:)``.
    public func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        try await answer(request)
    }
}
