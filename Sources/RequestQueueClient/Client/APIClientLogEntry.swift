// What the library has to say to an application's log.

public import RequestQueue

/// A step of a request, for the application's log.
///
/// It holds no header field, no body and no query, so it can be logged as it is. A path may hold remote identifiers.
public struct APIClientLogEntry: Hashable, Sendable, CustomStringConvertible {
    /// What happened to the request.
    public enum Step: Hashable, Sendable, CustomStringConvertible {
        /// It is stored, and waits for its turn.
        case appended
        /// An attempt begins.
        case sent
        /// The backend has answered with a successful status.
        case answered(status: Int)
        /// The attempt has failed. A queued request may be sent again.
        case failed(AttemptFailure)
        /// The queue has finished with it: done, dead or cancelled, with the cause of the last two.
        case ended(RequestState, cause: String?)

        /// For people.
        public var description: String {
            switch self {
            case .appended: "appended"
            case .sent: "sent"
            case .answered(let status): "answered with status \(status)"
            case .failed(let failure): "failed: \(failure.text)"
            case .ended(let state, let cause): state.name + (cause.map { ": \($0)" } ?? "")
            }
        }
    }

    /// The client's ``APIClient/identifier``.
    public var identifier: String
    /// The request's `APIRequestConfig.tag`.
    public var tag: String?
    /// Names the request; nil for one that is not queued.
    public var token: RequestToken?
    /// The method.
    public var method: HTTPMethod
    /// The path without its query. Entities are named by type and local identifier.
    public var path: String
    /// What happened to the request.
    public var step: Step

    init(_ client: any APIClient, _ config: APIRequestConfig, token: RequestToken?, _ step: Step) {
        identifier = client.identifier
        (tag, method, self.token, self.step) = (config.tag, config.method, token, step)
        path = String(config.path.description.prefix { $0 != "?" })
    }

    /// One line: the client, the request, its tag in parentheses, and the step.
    public var description: String {
        "\(identifier): \(method.name) \(path)\(tag.map { " (\($0))" } ?? ""): \(step)"
    }
}

extension APIClientLogEntry.Step {
    init(_ reply: AttemptReply) {
        switch reply {
        case .success(let status, _, _, _, _): self = .answered(status: status)
        case .failure(let failure, _, _, _): self = .failed(failure)
        }
    }
}
