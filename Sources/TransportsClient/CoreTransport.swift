// A transport of another language as a Swift object.

public import CTransports
import Foundation
public import TransportsCore

/// Base class of transports that are written in another language.
///
/// A subclass passes its constructor, which fills either the value or the error:
///
/// ```swift
/// public final class MyTransport: CoreTransport {
///     public init() throws {
///         try super.init(TesseractError.self) { value, error in
///             tesseract_client_my_transport_new(value, error)
///         }
///     }
/// }
/// ```
open class CoreTransport: Transport, @unchecked Sendable {
    // Unchecked: subclasses cannot be checked here; this class has constants only.
    private let core: ClientTransport
    private let limits: TransportLimits

    /// The name that the transport gave when it was made.
    public let id: String

    /// Calls a constructor of the C interface.
    ///
    /// - Parameters:
    ///   - error: The type of errors that the constructor reports.
    ///   - initializer: Fills the first argument and returns true, or the second and returns false.
    /// - Throws: the constructor's error, or ``TesseractError/incompatible(reason:)`` if the transport is for another
    ///   version of the interface.
    public init<Failure: CoreErrorConvertible>(
        _ error: Failure.Type, limits: TransportLimits = TransportLimits(),
        _ initializer: (
            _ value: UnsafeMutablePointer<pawl_client_transport>, _ error: UnsafeMutablePointer<pawl_error>
        ) throws -> Bool
    ) throws {
        var value = pawl_client_transport()
        var failure = pawl_error.none
        guard try initializer(&value, &failure) else {
            let (code, reason) = failure.take(limit: limits.message)
            throw Failure(code: code, reason: reason)
        }
        core = try ClientTransport(taking: value)
        id = try Self.id(core, limits)
        self.limits = limits
    }

    /// Wraps an object of the C interface.
    public init(_ core: ClientTransport, limits: TransportLimits = TransportLimits()) throws(TesseractError) {
        self.core = core
        id = try Self.id(core, limits)
        self.limits = limits
    }

    private static func id(_ core: ClientTransport, _ limits: TransportLimits) throws(TesseractError) -> String {
        var value = pawl_buffer.empty
        var failure = pawl_error.none
        guard core.handle.table.pointee.id(core.handle.object, &value, &failure) else {
            let (code, reason) = failure.take(limit: limits.message)
            throw TesseractError(code: code, reason: reason)
        }
        guard let data = value.take(limit: ProtocolID.sizeLimit), !data.isEmpty,
            let id = String(validating: data, as: UTF8.self)
        else {
            throw .incompatible(reason: "the transport's id is no text of 1 to \(ProtocolID.sizeLimit) bytes")
        }
        return id
    }

    /// Asks the transport. Cancellation of the task cancels the operation.
    open func status(proto: ProtocolID) async -> Status {
        let handle = core.handle
        let reply = await CoreOperation.run(limit: limits.message) { completion in
            proto.name.lend { handle.table.pointee.status(handle.object, $0, completion) }
        }
        return Status(reply.map { _ in })
    }

    /// A connection of the transport. If the transport cannot make one, every request fails with its error.
    open func connect(proto: ProtocolID) -> any Connection {
        let handle = core.handle
        var value = pawl_client_connection()
        var failure = pawl_error.none
        let isMade = proto.name.lend { handle.table.pointee.connect(handle.object, $0, &value, &failure) }
        guard isMade else {
            let (code, reason) = failure.take(limit: limits.message)
            return FailedConnection(TesseractError(code: code, reason: reason))
        }
        do {
            return CoreConnection(try ClientConnection(taking: value), limits: limits)
        } catch {
            return FailedConnection(error)
        }
    }

    /// The object of the other language itself.
    open func toCore() -> ClientTransport { core }
}

/// A connection that another language made. It has one exchange at a time.
final class CoreConnection: Connection {
    private let core: ClientConnection
    private let limits: TransportLimits

    init(_ core: ClientConnection, limits: TransportLimits) { (self.core, self.limits) = (core, limits) }

    func send(request: Data) async -> Result<(), TesseractError> {
        guard !Task.isCancelled else { return .failure(.cancelled) }
        guard request.count <= limits.message else {
            return .failure(.tooLarge(reason: "a request has \(request.count) bytes; the limit is \(limits.message)"))
        }
        let handle = core.handle
        return await CoreOperation.run(limit: limits.message) { completion in
            request.lend { handle.table.pointee.send(handle.object, $0, completion) }
        }.map { _ in }
    }

    func receive() async -> Result<Data, TesseractError> {
        let (handle, wasCancelled) = (core.handle, Task.isCancelled)
        let reply = await CoreOperation.run(limit: limits.message) { completion in
            handle.table.pointee.receive(handle.object, completion)
        }
        // A reply that had arrived before may come in spite of the cancellation. It is dropped, as in other transports.
        return wasCancelled ? .failure(.cancelled) : reply
    }

    func toCore() -> ClientConnection { core }
}

/// A connection that could not be made.
private final class FailedConnection: Connection {
    private let error: TesseractError

    init(_ error: TesseractError) { self.error = error }

    func send(request: Data) async -> Result<(), TesseractError> { .failure(error) }

    func receive() async -> Result<Data, TesseractError> { .failure(error) }
}
