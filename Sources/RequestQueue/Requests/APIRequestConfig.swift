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
    /// Milliseconds until an attempt is given up. Default: the client's.
    public var timeoutInterval: Int64?
    /// Whether equal requests that are in flight at the same time are sent once. Default: `true` for `GET` and `HEAD`,
    /// `false` for all others, because two equal messages are two messages.
    public var deduplicate: Bool
    /// The application's own mark, stored with the request. The queue does not read it.
    public var tag: String?
    /// Default: ``QueueingStrategy/standard(for:)``.
    public var queueingStrategy: QueueingStrategy
    /// Whether no user waits for the answer. Such requests are sent after those with a waiting user. Default: `false`
    /// for `GET` and `HEAD`, `true` for all others.
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
        self.deduplicate = deduplicate ?? method.isSafe
        self.tag = tag
        self.queueingStrategy = queueingStrategy ?? .standard(for: method)
        self.background = background ?? !method.isSafe
    }

    /// All entities that it names, each once, in their order. The backend may not have named them yet.
    public var references: [EntityReference] {
        let all = path.references + query.references + headers.references + (body?.references ?? [])
        guard all.count > 1 else { return all }
        var seen: Set<EntityReference> = []
        return all.filter { seen.insert($0).inserted }
    }
}
