/// A request, as the application describes it.
public struct APIRequestConfig: Hashable, Sendable {
    /// Default: `.get`.
    public var method: HTTPMethod
    /// Appended to the host.
    public var path: APIRequestPath
    /// The base URL; nil for the client's.
    public var host: String?
    /// Appended to the path.
    public var query: Parameters
    /// Header fields. They are stored, so they must not hold secrets; those are attached when the request is sent, see
    /// ``includeSessionKey``.
    public var headers: Parameters
    /// The body.
    public var body: RequestBody?
    /// Whether the session key of the request's tenant is attached when it is sent. Default: `true`. Without a session key the
    /// request waits for the next login. A key does not go to another ``host`` unless the client allows it.
    public var includeSessionKey: Bool
    /// Milliseconds until an attempt is cancelled. Default: the client's.
    public var timeoutInterval: Int64?
    /// Whether equal requests that are in flight at the same time are sent once. Default: `true`.
    ///
    /// Queued writes differ in their idempotency keys, so two equal messages stay two messages. A write that is sent
    /// without the queue has no key: two that are equal in everything, at the same time, are one unless this is `false`.
    public var deduplicate: Bool
    /// A mark for logs, stored with the request and never sent. See `APIClient.logHandler`.
    public var tag: String?
    /// Default: ``QueueingStrategy/standard(for:)``.
    public var queueingStrategy: QueueingStrategy
    /// Whether the request is to be finished while the application is in the background. Default: `true`.
    ///
    /// While such requests are in flight, the client holds a background task of the system, if the application gave it
    /// the means. Writes with `true` are sent after reads and after writes with `false`, for which a user waits.
    public var background: Bool

    /// A request; arguments that are left out have the defaults of the method.
    public init(
        method: HTTPMethod = .get, path: APIRequestPath, host: String? = nil, query: Parameters = [:],
        headers: Parameters = [:], body: RequestBody? = nil, includeSessionKey: Bool = true,
        timeoutInterval: Int64? = nil, deduplicate: Bool? = nil, tag: String? = nil,
        queueingStrategy: QueueingStrategy? = nil, background: Bool? = nil
    ) {
        self.method = method
        self.path = path
        self.host = host
        self.query = query
        self.headers = headers
        self.body = body
        self.includeSessionKey = includeSessionKey
        self.timeoutInterval = timeoutInterval
        self.deduplicate = deduplicate ?? true
        self.tag = tag
        self.queueingStrategy = queueingStrategy ?? .standard(for: method)
        self.background = background ?? true
    }

    /// All entities that it names, each once, in their order. The backend may not have named them yet.
    public var references: [EntityReference] {
        let all = path.references + query.references + headers.references + (body?.references ?? [])
        guard all.count > 1 else { return all }
        var seen: Set<EntityReference> = []
        return all.filter { seen.insert($0).inserted }
    }
}
