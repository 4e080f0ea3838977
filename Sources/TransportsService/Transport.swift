public import Foundation
public import TransportsCore

/// A way on which clients reach services.
public protocol Transport: AnyObject, Sendable, CoreConvertible<ServiceTransport> {
    /// Starts listening. Every request goes to the processor, and its reply back to the client.
    ///
    /// - Returns: an object whose end stops the transport.
    func bind(processor: TransportProcessor) -> any BoundTransport
}

/// A transport that listens. It stops in its `deinit` and drops the processor.
public protocol BoundTransport: AnyObject, Sendable, CoreConvertible<ServiceBoundTransport> {
    /// Waits until the transport listens, or returns why it does not. The default is success.
    func ready() async -> Result<(), TesseractError>

    /// Accepts no more requests, waits for those under way up to ``TransportLimits/drain``, and stops.
    ///
    /// The default returns at once; the transport then stops with its `deinit`.
    func close() async
}

extension BoundTransport {
    /// Success.
    public func ready() async -> Result<(), TesseractError> { .success(()) }

    /// Does nothing.
    public func close() async {}
}

/// Processes the requests that transports receive.
public final class TransportProcessor: Sendable {
    /// What transports of this package use.
    package let processing: Processing

    /// - Parameters:
    ///   - supports: Whether there is a service with this protocol. It is asked when a client connects.
    ///   - process: Returns the reply to a request. It runs at the same time for several requests, and its task is
    ///     cancelled if the client does not wait any more.
    public init(
        supports: @escaping @Sendable (ProtocolID) -> Bool = { _ in true },
        process: @escaping @Sendable (Data) async -> Result<Data, TesseractError>
    ) {
        processing = Processing(supports: supports, process: process)
    }

    /// Processes one request.
    public func process(data: Data) async -> Result<Data, TesseractError> { await processing.process(data) }

    /// Whether there is a service with this protocol.
    public func supports(proto: ProtocolID) -> Bool { processing.supports(proto) }
}
