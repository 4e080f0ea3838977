// The entry point of a service: services by protocol, and the transports that bring requests. Every request gets a reply,
// also one that cannot be read: a peer must not be able to end the service or to make it silent.

import Foundation
import Synchronization
public import TransportsCore

/// A service: what it does with each method.
public protocol Service: Sendable {
    /// The protocol. A ``Tesseract`` has one service for each.
    var proto: ProtocolID { get }

    /// Answers one request. It runs at the same time for several requests.
    ///
    /// - Throws: ``TesseractError``, which the client receives. ``TesseractError/custom(code:reason:)`` is for errors of
    ///   your protocol.
    func call(_ method: String, _ request: ServiceRequest) async throws(TesseractError) -> any Encodable & Sendable
}

/// A request whose type its service knows.
public struct ServiceRequest: Sendable {
    fileprivate let data: Data

    /// Reads the request.
    ///
    /// - Throws: ``TesseractError/serialization(reason:)`` if it has another form.
    public func decode<Request: Decodable & Sendable>(_ type: Request.Type = Request.self) throws(TesseractError)
        -> Request
    {
        try Serializer.value(RequestEnvelope<Request>.self, in: data).get().request
    }
}

/// The service's side: services, and the transports on which clients reach them.
///
/// Its end stops all transports. All of it may be used on every thread.
public final class Tesseract: Sendable {
    private let registry: Registry
    private let bound = Mutex<[any BoundTransport]>([])

    /// A service's side without services and transports.
    ///
    /// - Parameter limits: ``TransportLimits/message`` bounds requests and replies; transports have limits of their own.
    public init(limits: TransportLimits = TransportLimits()) { registry = Registry(limits: limits) }

    /// Adds a service. It replaces one with the same protocol.
    @discardableResult
    public func service(_ service: some Service) -> Tesseract {
        registry.add(service)
        return self
    }

    /// Binds a transport. Requests for services that are added later are answered from then on.
    @discardableResult
    public func transport(_ transport: some Transport) -> Tesseract {
        let registry = registry
        let processor = TransportProcessor(
            supports: { registry.service($0) != nil }, process: { .success(await registry.reply(to: $0)) })
        let new = transport.bind(processor: processor)
        bound.withLock { $0.append(new) }
        return self
    }

    /// Waits until all transports listen.
    ///
    /// - Returns: the first error of a transport that does not.
    public func ready() async -> Result<(), TesseractError> {
        for bound in bound.withLock({ $0 }) {
            if case .failure(let error) = await bound.ready() { return .failure(error) }
        }
        return .success(())
    }

    /// Closes all transports after the requests that are under way.
    public func close() async {
        let bound = bound.withLock { bound in
            defer { bound = [] }
            return bound
        }
        await withTaskGroup(of: Void.self) { group in
            for bound in bound { group.addTask { await bound.close() } }
        }
    }
}

/// The services by protocol.
private final class Registry: Sendable {
    private let services = Mutex<[ProtocolID: any Service]>([:])
    private let limits: TransportLimits

    init(limits: TransportLimits) { self.limits = limits }

    func add(_ service: any Service) { services.withLock { $0[service.proto] = service } }

    func service(_ proto: ProtocolID) -> (any Service)? { services.withLock { $0[proto] } }

    /// The reply to a request of any bytes. It is in the form of the request, or in JSON if that is not known.
    func reply(to data: Data) async -> Data {
        let serializer = (try? Serializer.serializer(of: data).get()) ?? .json
        guard data.count <= limits.message else {
            return Self.failure(nil, .tooLarge(reason: "a request has \(data.count) bytes"), serializer)
        }
        let head: RequestHead
        switch Serializer.value(RequestHead.self, in: data) {
        case .failure(let error): return Self.failure(nil, error, serializer)
        case .success(let read): head = read
        }
        guard let service = service(head.proto) else {
            return Self.failure(head.id, .unavailable(reason: "there is no service '\(head.proto)'"), serializer)
        }
        do throws(TesseractError) {
            return try await Self.write(head.id, service.call(head.method, ServiceRequest(data: data)), serializer)
        } catch {
            return Self.failure(head.id, error, serializer)
        }
    }

    private static func write(
        _ id: UInt64, _ value: some Encodable, _ serializer: Serializer
    ) throws(TesseractError) -> Data { try serializer.data(ReplyEnvelope(id: id, result: .success(value))).get() }

    private struct NoValue: Encodable {}

    private static func failure(_ id: UInt64?, _ error: TesseractError, _ serializer: Serializer) -> Data {
        let envelope = ReplyEnvelope<NoValue>(id: id, result: .failure(error))
        // Numbers and text can always be written.
        return (try? serializer.data(envelope).get()) ?? Data()
    }
}
