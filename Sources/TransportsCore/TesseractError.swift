// Errors cross a C interface, a socket and an envelope. Code and reason stay separate fields everywhere, so a reason may
// contain any text.

import CTransports

/// Why an operation of a transport, a connection or a service failed.
public enum TesseractError: Error, Hashable, Sendable {
    /// The caller, the person who selects a transport, or the other side ended it early.
    case cancelled
    /// The connection or transport is closed or was lost. Another connection may work.
    case closed(reason: String)
    /// The other side cannot be used now; the reason is for people.
    case unavailable(reason: String)
    /// Not within a deadline of ``TransportLimits``.
    case timedOut(reason: String)
    /// A message is larger than a limit of ``TransportLimits``.
    case tooLarge(reason: String)
    /// As many requests as allowed are under way.
    case busy
    /// Bytes are no envelope, or a value does not have the form of its type.
    case serialization(reason: String)
    /// A transport in another language was built for another version of the interface, or is not complete.
    case incompatible(reason: String)
    /// The delegate selected an id that no transport has.
    case unknownTransport(id: String)
    /// Code in another language panicked. The transport caught it.
    case panic(reason: String)
    /// A peer or plug-in does what its protocol does not allow.
    case weird(reason: String)
    /// An error of a service or transport of yours. Codes from 0.
    case custom(code: Int32, reason: String)

    /// Lowest code of ``custom(code:reason:)`` where codes share one number.
    package static let firstCustom = Int32(PAWL_CUSTOM)

    /// The code of `pawl_transports.h`.
    package var code: Int32 {
        switch self {
        case .cancelled: Int32(PAWL_CANCELLED)
        case .closed: Int32(PAWL_CLOSED)
        case .unavailable: Int32(PAWL_UNAVAILABLE)
        case .timedOut: Int32(PAWL_TIMED_OUT)
        case .tooLarge: Int32(PAWL_TOO_LARGE)
        case .busy: Int32(PAWL_BUSY)
        case .serialization: Int32(PAWL_SERIALIZATION)
        case .incompatible: Int32(PAWL_INCOMPATIBLE)
        case .unknownTransport: Int32(PAWL_UNKNOWN_TRANSPORT)
        case .panic: Int32(PAWL_PANIC)
        case .weird: Int32(PAWL_WEIRD)
        // A negative or very large code of an app does not collide with the others.
        case .custom(let code, _): Self.firstCustom + max(0, min(code, Int32.max - Self.firstCustom))
        }
    }

    /// The text beside the code; empty if the code is enough.
    public var reason: String {
        switch self {
        case .cancelled, .busy: ""
        case .closed(let reason), .unavailable(let reason), .timedOut(let reason), .tooLarge(let reason),
            .serialization(let reason), .incompatible(let reason), .panic(let reason), .weird(let reason),
            .custom(_, let reason):
            reason
        case .unknownTransport(let id): id
        }
    }

    /// Whether the connection may be lost, so that the next request needs a new one.
    package var endsConnection: Bool {
        switch self {
        case .closed, .unavailable, .timedOut, .incompatible, .panic, .weird, .unknownTransport: true
        case .cancelled, .tooLarge, .busy, .serialization, .custom: false
        }
    }
}

/// An error that can be made from the code and reason of another language.
public protocol CoreErrorConvertible: Error {
    /// - Parameters:
    ///   - code: A code of `pawl_transports.h`, not `PAWL_OK`.
    ///   - reason: Text for people; may be empty.
    init(code: Int32, reason: String)
}

extension TesseractError: CoreErrorConvertible {
    /// The error with this code of `pawl_transports.h`; unknown codes are ``weird(reason:)``.
    public init(code: Int32, reason: String) {
        switch code {
        case Int32(PAWL_CANCELLED): self = .cancelled
        case Int32(PAWL_CLOSED): self = .closed(reason: reason)
        case Int32(PAWL_UNAVAILABLE): self = .unavailable(reason: reason)
        case Int32(PAWL_TIMED_OUT): self = .timedOut(reason: reason)
        case Int32(PAWL_TOO_LARGE): self = .tooLarge(reason: reason)
        case Int32(PAWL_BUSY): self = .busy
        case Int32(PAWL_SERIALIZATION): self = .serialization(reason: reason)
        case Int32(PAWL_INCOMPATIBLE): self = .incompatible(reason: reason)
        case Int32(PAWL_UNKNOWN_TRANSPORT): self = .unknownTransport(id: reason)
        case Int32(PAWL_PANIC): self = .panic(reason: reason)
        case Self.firstCustom...: self = .custom(code: code - Self.firstCustom, reason: reason)
        default: self = .weird(reason: reason)
        }
    }
}
