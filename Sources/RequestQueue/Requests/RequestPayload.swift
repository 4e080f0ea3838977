/// The content of a request.
public enum RequestPayload: Sendable, Equatable {
    /// An HTTP request, which the queue's client sends.
    case http(APIRequestConfig)
    /// A message of another protocol, which the owner of a carried queue sends.
    case message(CarriedMessage)

    /// The HTTP request; for a message, the settings under which it is scheduled.
    var config: APIRequestConfig {
        switch self {
        case .http(let config): config
        case .message: CarriedMessage.schedule
        }
    }
}

/// A message that the queue stores and hands out as it is. See ``QueueMachine/Settings/isCarried``.
public struct CarriedMessage: Sendable, Equatable {
    /// What its sender calls it, such as the verb of a protocol.
    public var kind: String
    /// The name of its recipient.
    public var target: String
    /// Its bytes, in the parts in which they are sent.
    public var parts: [[UInt8]]

    /// A message.
    public init(kind: String, target: String, parts: [[UInt8]]) {
        (self.kind, self.target, self.parts) = (kind, target, parts)
    }

    /// Its sender keeps the order and decides what is sent again, so a whole lane may be in flight at once.
    static let schedule = APIRequestConfig(
        method: .post, path: "", includeSessionKey: false,
        queueingStrategy: QueueingStrategy(synchronization: .concurrent, retryPolicy: []), background: false)
}
