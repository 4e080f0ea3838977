// A service's transport of another language as a Swift object, and the processor for it.

public import CTransports
import Foundation
public import TransportsCore

/// Base class of service transports that are written in another language.
///
/// A subclass passes its constructor, which fills either the value or the error:
///
/// ```swift
/// public final class MyTransport: CoreTransport {
///     public init() throws {
///         try super.init(TesseractError.self) { value, error in
///             tesseract_service_my_transport_new(value, error)
///         }
///     }
/// }
/// ```
open class CoreTransport: Transport, @unchecked Sendable {
    // Unchecked: subclasses cannot be checked here; this class has constants only.
    private let core: ServiceTransport
    private let limits: TransportLimits

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
            _ value: UnsafeMutablePointer<pawl_service_transport>, _ error: UnsafeMutablePointer<pawl_error>
        ) throws -> Bool
    ) throws {
        var value = pawl_service_transport()
        var failure = pawl_error.none
        guard try initializer(&value, &failure) else {
            let (code, reason) = failure.take(limit: limits.message)
            throw Failure(code: code, reason: reason)
        }
        core = try ServiceTransport(taking: value)
        self.limits = limits
    }

    /// Wraps an object of the C interface.
    public init(_ core: ServiceTransport, limits: TransportLimits = TransportLimits()) {
        (self.core, self.limits) = (core, limits)
    }

    /// Starts listening; `ready()` of the bound transport returns why it does not.
    open func bind(processor: TransportProcessor) -> any BoundTransport {
        var value = pawl_service_bound()
        var failure = pawl_error.none
        let handle = core.handle
        guard handle.table.pointee.bind(handle.object, processor.retainedCore(), &value, &failure) else {
            let (code, reason) = failure.take(limit: limits.message)
            return FailedBound(TesseractError(code: code, reason: reason))
        }
        do {
            return CoreBound(try ServiceBoundTransport(taking: value), limits)
        } catch {
            return FailedBound(error)
        }
    }

    /// The object of the other language itself.
    open func toCore() -> ServiceTransport { core }
}

/// A bound transport of another language. Its deinit releases the object, which stops.
private final class CoreBound: BoundTransport {
    private let core: ServiceBoundTransport
    private let limits: TransportLimits

    init(_ core: ServiceBoundTransport, _ limits: TransportLimits) { (self.core, self.limits) = (core, limits) }

    func ready() async -> Result<(), TesseractError> {
        let handle = core.handle
        return await CoreOperation.run(limit: limits.message) { completion in
            handle.table.pointee.ready(handle.object, completion)
        }.map { _ in }
    }

    func close() async {
        let (handle, limits) = (core.handle, limits)
        _ = await CoreOperation.run(limit: limits.message) { completion in
            handle.table.pointee.close(handle.object, completion)
        }
    }

    func toCore() -> ServiceBoundTransport { core }
}

/// A transport that could not be bound.
private final class FailedBound: BoundTransport {
    private let error: TesseractError

    init(_ error: TesseractError) { self.error = error }

    func ready() async -> Result<(), TesseractError> { .failure(error) }
}

extension TransportProcessor {
    /// The processor for code in another language, with one reference.
    fileprivate func retainedCore() -> pawl_processor {
        pawl_processor(object: SwiftObject<TransportProcessor>.retained(self), table: processorTable.pointer)
    }

    /// A processor that another language gave to a transport of Swift.
    fileprivate convenience init(_ core: CoreObject<pawl_processor>, _ limits: TransportLimits) {
        self.init(
            supports: { proto in
                proto.name.lend { core.handle.table.pointee.supports(core.handle.object, $0) }
            },
            process: { data in
                await CoreOperation.run(limit: limits.message) { completion in
                    data.lend { core.handle.table.pointee.process(core.handle.object, $0, completion) }
                }
            })
    }
}

extension Transport {
    /// The transport for code in another language. It keeps the Swift object alive.
    public func toCore() -> ServiceTransport {
        ServiceTransport(
            trusting: pawl_service_transport(
                object: SwiftObject<any Transport>.retained(self), table: transportTable.pointer))
    }
}

extension BoundTransport {
    /// The bound transport for code in another language. It keeps the Swift object alive.
    public func toCore() -> ServiceBoundTransport {
        ServiceBoundTransport(
            trusting: pawl_service_bound(
                object: SwiftObject<any BoundTransport>.retained(self), table: boundTable.pointer))
    }
}

private let processorTable = StaticTable(
    pawl_processor_table(
        table: pawl_table(
            abi: UInt32(PAWL_TRANSPORTS_ABI), size: UInt32(MemoryLayout<pawl_processor_table>.size),
            retain: { SwiftObject<TransportProcessor>.retain($0) },
            release: { SwiftObject<TransportProcessor>.release($0) }),
        supports: { object, proto in
            guard let processor = SwiftObject<TransportProcessor>.value(object), let data = proto.copy,
                let name = String(validating: data, as: UTF8.self)
            else { return false }
            return processor.supports(proto: ProtocolID(name))
        },
        process: { object, request, completion in
            let processor = SwiftObject<TransportProcessor>.value(object)
            let data = request.copy
            return SwiftOperation.start(completion) {
                guard let processor, let data else { return .failure(.weird(reason: "no request")) }
                return await processor.process(data: data)
            }
        }))

private let transportTable = StaticTable(
    pawl_service_transport_table(
        table: pawl_table(
            abi: UInt32(PAWL_TRANSPORTS_ABI), size: UInt32(MemoryLayout<pawl_service_transport_table>.size),
            retain: { SwiftObject<any Transport>.retain($0) }, release: { SwiftObject<any Transport>.release($0) }),
        bind: { object, processor, value, error in
            do throws(TesseractError) {
                let core = try CoreObject<pawl_processor>(taking: processor)
                guard let transport = SwiftObject<any Transport>.value(object) else {
                    throw .weird(reason: "no transport")
                }
                let bound = transport.bind(processor: TransportProcessor(core, TransportLimits()))
                value?.pointee = bound.toCore().retained()
                return true
            } catch let failure {
                error?.pointee = pawl_error(failure)
                return false
            }
        }))

private let boundTable = StaticTable(
    pawl_service_bound_table(
        table: pawl_table(
            abi: UInt32(PAWL_TRANSPORTS_ABI), size: UInt32(MemoryLayout<pawl_service_bound_table>.size),
            retain: { SwiftObject<any BoundTransport>.retain($0) },
            release: { SwiftObject<any BoundTransport>.release($0) }),
        ready: { object, completion in
            let bound = SwiftObject<any BoundTransport>.value(object)
            return SwiftOperation.start(completion) {
                guard let bound else { return .failure(.weird(reason: "no bound transport")) }
                return await bound.ready().map { Data() }
            }
        },
        close: { object, completion in
            let bound = SwiftObject<any BoundTransport>.value(object)
            return SwiftOperation.start(completion) {
                await bound?.close()
                return .success(Data())
            }
        }))
