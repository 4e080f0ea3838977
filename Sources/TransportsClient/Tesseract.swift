// The entry point of an application: transports, the delegate that selects one of them, and the services.

import Foundation
import Synchronization
public import TransportsCore

/// Selects the transport for a service.
public protocol TesseractDelegate: AnyObject, Sendable {
    /// Selects one of the transports, usually by asking a person.
    ///
    /// - Parameter transports: All transports by id, each with its status. One that did not answer within
    ///   ``TransportLimits/status`` has an error.
    /// - Returns: an id, or nil for none: the requests that wait then fail with ``TesseractError/cancelled``.
    func select(transports: [String: Status]) async -> String?
}

/// Selects the only transport that is ready.
public final class SingleTransportDelegate: TesseractDelegate {
    /// A delegate.
    public init() {}

    /// Returns the id of the only transport that is ready, or nil if there is none or more than one.
    public func select(transports: [String: Status]) async -> String? {
        let ready = transports.filter { $0.value.isReady }
        return ready.count == 1 ? ready.first?.key : nil
    }
}

/// A service as its clients see it: a type of yours with a method for each request.
public protocol Service: Sendable {
    /// The protocol, which has to be the service's.
    static var proto: ProtocolID { get }

    /// Keeps the channel; every method of the service calls it.
    init(channel: ServiceChannel)
}

/// The client's side: transports, and services over the transport that the delegate selects.
///
/// It does not change: ``transport(_:)`` returns a new one. All of it may be used on every thread.
public final class Tesseract: Sendable {
    private let delegate: any TesseractDelegate
    private let serializer: Serializer
    private let limits: TransportLimits
    private let transports: [String: any Transport]

    /// - Parameters:
    ///   - delegate: Selects a transport for each service. It is held strongly.
    ///   - serializer: How requests are written; replies may be in the other form.
    public convenience init(
        delegate: any TesseractDelegate, serializer: Serializer = .cbor, limits: TransportLimits = TransportLimits()
    ) {
        self.init(delegate, serializer, limits, [:])
    }

    private init(
        _ delegate: any TesseractDelegate, _ serializer: Serializer, _ limits: TransportLimits,
        _ transports: [String: any Transport]
    ) {
        (self.delegate, self.serializer, self.limits, self.transports) = (delegate, serializer, limits, transports)
    }

    /// Adds a transport. It replaces one with the same id.
    public func transport(_ transport: some Transport) -> Tesseract {
        var transports = transports
        transports[transport.id] = transport
        return Tesseract(delegate, serializer, limits, transports)
    }

    /// Makes a service. The delegate selects its transport when the first request is sent.
    public func service<S: Service>(_ type: S.Type) -> S {
        S(
            channel: ServiceChannel(
                selection: Selection(transports: transports, delegate: delegate, proto: S.proto, limits: limits),
                serializer: serializer))
    }
}

/// Sends the requests of one service.
///
/// The delegate selects a transport for the first request. The connection is kept until it fails; then the next request
/// asks all transports and the delegate again. A request that failed is not repeated: the service may have processed it.
public final class ServiceChannel: Sendable {
    /// Ours: replies to requests that nothing waits for any more, which one call skips. A connection that gives more is
    /// not kept.
    private static let staleLimit = 1024

    private let selection: Selection
    private let serializer: Serializer
    private let lastID = Mutex<UInt64>(0)

    init(selection: Selection, serializer: Serializer) { (self.selection, self.serializer) = (selection, serializer) }

    /// Calls a method of the service.
    ///
    /// - Returns: the value, the service's error, or why the service could not be asked.
    public func call<Request: Encodable & Sendable, Value: Decodable & Sendable>(
        _ method: String, _ request: Request, returning type: Value.Type = Value.self
    ) async -> Result<Value, TesseractError> {
        let id = lastID.withLock { last in
            last += 1
            return last
        }
        let head = RequestHead(proto: selection.proto, method: method, id: id)
        switch serializer.data(RequestEnvelope(head: head, request: request)) {
        case .failure(let error): return .failure(error)
        case .success(let data): return await call(data, id)
        }
    }

    private func call<Value: Decodable & Sendable>(_ data: Data, _ id: UInt64) async -> Result<Value, TesseractError> {
        let link: Selection.Link
        switch await selection.link() {
        case .failure(let error): return .failure(error)
        case .success(let selected): link = selected
        }
        let result = await exchange(data, id, link)
        if case .failure(let error) = result, error.endsConnection { selection.drop(link) }
        switch result {
        case .failure(let error): return .failure(error)
        case .success(let reply):
            switch Serializer.value(ReplyEnvelope<Value>.self, in: reply) {
            case .failure(let error): return .failure(error)
            case .success(let envelope): return envelope.result
            }
        }
    }

    /// One exchange whose reply has the id of the request, or no id because the service could not read the request.
    private func exchange(_ data: Data, _ id: UInt64, _ link: Selection.Link) async -> Result<Data, TesseractError> {
        guard !link.connection.isConcurrent else {
            return Self.check(await link.connection.exchange(request: data), id)
        }
        // One exchange at a time; replies to earlier requests, which were cancelled, are skipped.
        guard await link.turn.take() else { return .failure(.cancelled) }
        defer { link.turn.give() }
        var reply = await link.connection.exchange(request: data)
        for _ in 0..<Self.staleLimit {
            guard case .success(let bytes) = reply, let other = Self.id(bytes), other < id else {
                return Self.check(reply, id)
            }
            reply = await link.connection.receive()
        }
        return .failure(.weird(reason: "the connection gives replies to other requests"))
    }

    private static func id(_ reply: Data) -> UInt64? {
        (try? Serializer.value(ReplyHead.self, in: reply).get())?.id
    }

    private static func check(_ reply: Result<Data, TesseractError>, _ id: UInt64) -> Result<Data, TesseractError> {
        guard case .success(let bytes) = reply else { return reply }
        switch Serializer.value(ReplyHead.self, in: bytes) {
        case .failure(let error): return .failure(.weird(reason: "the reply cannot be read: \(error.reason)"))
        case .success(let head):
            guard let other = head.id, other != id else { return reply }
            return .failure(.weird(reason: "the reply is for request \(other) and not \(id)"))
        }
    }
}
