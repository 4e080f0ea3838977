public import Foundation
public import TransportsCore

/// A way to reach services.
public protocol Transport: AnyObject, Sendable, CoreConvertible<ClientTransport> {
    /// A name that no other transport of the same `Tesseract` has, such as `ipc`.
    var id: String { get }

    /// Returns whether services of this protocol can be reached now.
    func status(proto: ProtocolID) async -> Status

    /// Makes a connection. It may connect when the first request is sent.
    func connect(proto: ProtocolID) -> any Connection
}

/// A connection to one service.
///
/// The transports of this package allow any number of requests at once, up to ``TransportLimits/inFlight``. `receive`
/// gives the replies in the order of the `send` calls, even if they arrive in another order. Use
/// ``exchange(request:)`` where several tasks share a connection: it gives each task its own reply.
public protocol Connection: AnyObject, Sendable, CoreConvertible<ClientConnection> {
    /// Sends a request. Success means that the connection took it, not that the service received it.
    func send(request: Data) async -> Result<(), TesseractError>

    /// Receives the reply to the oldest request that has no receiver yet.
    ///
    /// If the task is cancelled, the reply of that request is dropped when it comes; no later call receives it.
    func receive() async -> Result<Data, TesseractError>

    /// Sends a request and receives its reply.
    ///
    /// The default calls `send` and `receive`.
    func exchange(request: Data) async -> Result<Data, TesseractError>

    /// Whether several exchanges may be under way at once. The default is false.
    var isConcurrent: Bool { get }
}

extension Connection {
    /// Sends, and receives once if that succeeded: also in a cancelled task, so that the reply has a receiver.
    public func exchange(request: Data) async -> Result<Data, TesseractError> {
        switch await send(request: request) {
        case .success: await receive()
        case .failure(let error): .failure(error)
        }
    }

    /// One exchange at a time.
    public var isConcurrent: Bool { false }
}

/// Whether a transport can be used now.
public enum Status: Sendable, Hashable {
    /// It can be used.
    case ready
    /// It cannot be used now; the reason is for people.
    case unavailable(String)
    /// It failed.
    case error(TesseractError)

    /// Whether the transport can be used.
    public var isReady: Bool { self == .ready }

    package init(_ reply: Result<Void, TesseractError>) {
        switch reply {
        case .success: self = .ready
        case .failure(.unavailable(let reason)): self = .unavailable(reason)
        case .failure(let error): self = .error(error)
        }
    }
}
