// The calls of the control plane over a Unix transport of document 004, for programs on the same machine. WIRE.md has the form.
//
// A request of the transport is an HTTP request, and its reply the answer. So a call passes through the same exchange as
// over HTTP, with the same limits, and with the login of a person: a program that may open the socket may do no more than
// one on the network.

import Foundation
import HTTPCodec
import JSONGateway
import NIOCore
import NIOPosix
import NIOSupport
import Synchronization
package import TransportsService

/// Where programs on the same machine make calls.
package struct ControlSocketOptions: Sendable {
    package var path: String
    /// Who may open it, as for `chmod`.
    package var mode: UInt16

    package init(path: String, mode: UInt16) { (self.path, self.mode) = (path, mode) }
}

/// Serves the calls of the control plane, and nothing else, on a Unix socket.
package final class ControlSocket: Sendable {
    /// The protocol of the calls.
    package static let proto: ProtocolID = "pawl.control/1"

    /// Ours: 8 MiB, which a page of fifty messages fits into; and at most 32 connections, each with 256 calls under way.
    /// A connection holds no more than one request that has not come as a whole.
    package static let limits: TransportLimits = {
        var limits = TransportLimits()
        (limits.message, limits.connections, limits.inFlight) = (8 << 20, 32, 256)
        return limits
    }()

    private struct State {
        var calls: [ObjectIdentifier: ControlCallStream] = [:]
        var isDraining = false
        var bound: (any BoundTransport)?
    }

    private let options: ControlSocketOptions
    private let services: HTTPServices
    private let pools: UpstreamPools
    private let connectionIDs: @Sendable () -> UInt64
    private let state = Mutex(State())

    init(
        _ options: ControlSocketOptions, services: HTTPServices, pools: UpstreamPools,
        connectionIDs: @escaping @Sendable () -> UInt64
    ) {
        (self.options, self.services, self.pools, self.connectionIDs) = (options, services, pools, connectionIDs)
    }

    /// Listens. It does so until ``stop()``.
    ///
    /// - Throws: `TesseractError` if it cannot.
    func start() async throws {
        let transport = UnixTransport(
            path: options.path, mode: options.mode, limits: Self.limits, group: pools.group)
        let bound = transport.bind(
            processor: TransportProcessor(supports: { $0 == Self.proto }, process: { await self.process($0) }))
        if case .failure(let error) = await bound.ready() { throw error }
        state.withLock { $0.bound = bound }
    }

    /// Ends the calls that wait for messages, and serves no others.
    func drain() {
        let calls = state.withLock { state in
            state.isDraining = true
            return Array(state.calls.values)
        }
        for call in calls { call.eventLoop.execute { call.endWaiting() } }
    }

    /// Ends all connections, after the calls that are under way.
    func stop() async {
        drain()
        let bound = state.withLock { state in
            defer { state.bound = nil }
            return state.bound
        }
        await bound?.close()
    }

    private func process(_ request: Data) async -> Result<Data, TesseractError> {
        let eventLoop = pools.group.next()
        guard let pool = pools[eventLoop] else { return .failure(.closed(reason: "the gateway has ended")) }
        let origin = ExchangeOrigin(
            eventLoop, peer: nil, services: services, pool: pool, isSecure: false, firstID: connectionIDs())
        let call = ControlCallStream(origin, request)
        let isDraining = state.withLock { state in
            state.calls[ObjectIdentifier(call)] = call
            return state.isDraining
        }
        defer { state.withLock { $0.calls[ObjectIdentifier(call)] = nil } }
        let reply = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                eventLoop.execute { call.begin(isRefused: isDraining) { continuation.resume(returning: $0) } }
            }
        } onCancel: {
            eventLoop.execute { call.cancel() }
        }
        // A gateway that may not act on what it knows holds its connections; this one has no place for that.
        guard services.downstream().gate?.isOpen != false else {
            return .failure(.closed(reason: "the gateway does not know whether another one has taken over"))
        }
        return reply
    }
}

/// One call: the client of one exchange. Confined to its event loop, hence `@unchecked Sendable`.
final class ControlCallStream: ExchangeClient, @unchecked Sendable {
    typealias Reply = Result<Data, TesseractError>

    let origin: ExchangeOrigin
    private let request: Data
    private var exchange: ExchangeRunner?
    /// The body, until the exchange takes it.
    private var body: ByteBuffer?
    private var room: ByteReservation?
    private var isToHead = false
    private var finish: ((Reply) -> Void)?
    private var isOver = false
    private var isProcessing = false
    private var deadline = NIODeadline.distantFuture
    private var timer = LazyTimer()

    var eventLoop: any EventLoop { origin.eventLoop }
    var upgradable: HTTPConnection? { nil }
    var servesCallsOnly: Bool { true }
    var isWritable: Bool { true }

    init(_ origin: ExchangeOrigin, _ request: Data) { (self.origin, self.request) = (origin, request) }

    /// - Parameters:
    ///   - isRefused: whether the gateway is being shut down.
    ///   - finish: receives the reply, once.
    func begin(isRefused: Bool, _ finish: @escaping (Reply) -> Void) {
        guard !isOver else { return finish(.failure(.cancelled)) }
        self.finish = finish
        guard !isRefused else { return refuse(.unavailable("The gateway is being shut down. Try again later.")) }
        do throws(HTTPFault) {
            let (received, body) = try read()
            isToHead = received.head.method == "HEAD"
            let room = origin.services.budget.reservation()
            guard room.resize(to: body.readableBytes, for: .request) else { return refuse(.noRoom) }
            (self.body, self.room) = (body, room)
            let exchange = ExchangeRunner(received, client: self)
            self.exchange = exchange
            touch()
            exchange.start()
            process()
        } catch {
            refuse(.message(error))
        }
    }

    /// Reads the head, and the body, which has the length that the head states.
    private func read() throws(HTTPFault) -> (ReceivedRequest, ByteBuffer) {
        var bytes = ByteBuffer(bytes: request)
        var reader = HeadReader(limits: origin.limits.head)
        guard var received = try reader.request(&bytes) else { throw .malformed }
        switch received.framing {
        case .none where bytes.readableBytes == 0, .length(bytes.readableBytes): break
        case .none, .length, .chunked, .untilClose: throw .malformed
        }
        // Nothing here becomes another protocol.
        received.head.headers.remove("upgrade")
        return (received, bytes)
    }

    func process() {
        guard !isProcessing, let exchange, exchange.readsRequest, let body else { return }
        isProcessing = true
        defer { isProcessing = false }
        self.body = nil
        // The exchange counts what it collects.
        releaseRoom()
        exchange.request(body)
        if exchange.readsRequest { exchange.requestEnded(HeaderFields()) }
    }

    private func releaseRoom() {
        room?.release()
        room = nil
    }

    // MARK: The answer

    /// Answers a request that did not become an exchange.
    private func refuse(_ fault: GatewayFault) {
        let (head, body) = fault.answer(origin.services.environment.mapping, to: nil)
        respond(head, body, room: nil)
    }

    func respond(_ head: ResponseHead, _ body: ByteBuffer, room: ByteReservation?) {
        origin.services.meters.answered(head.status)
        let head = head.complete(with: body)
        var bytes = ByteBuffer()
        bytes.write(head)
        if !head.hasNoBody, !isToHead { bytes.writeImmutableBuffer(body) }
        room?.release()
        end(.success(Data(bytes.readableBytesView)))
    }

    func inform(_ head: ResponseHead) {}

    // No request goes to the backend, so none of its answers comes.
    func begin(_ head: ResponseHead, framing: BodyFraming) { abort() }
    func send(_ bytes: ByteBuffer, room: ByteReservation?) { room?.release() }
    func end(_ trailers: HeaderFields) {}
    func endAfterThis() {}
    func settle() {}

    private func end(_ reply: Reply) {
        isOver = true
        timer.cancel()
        releaseRoom()
        body = nil
        finish.take()?(reply)
    }

    // MARK: Ends

    func exchangeEnded(_ ended: ExchangeRunner) { exchange = nil }

    func abort() {
        exchange?.cancel()
        exchange = nil
        end(.failure(.closed(reason: "the call has ended without an answer")))
    }

    /// The client does not wait any more.
    func cancel() {
        exchange?.cancel()
        exchange = nil
        end(.failure(.cancelled))
    }

    func endWaiting() { exchange?.endWaiting() }

    // MARK: Deadlines

    func touch() {
        guard let exchange, !isOver else { return }
        deadline = .now() + exchange.patience
        setTimer()
    }

    private func setTimer() { timer.arm(deadline, on: eventLoop) { [weak self] in self?.fired() } }

    private func fired() {
        timer.hasFired()
        guard !isOver else { return }
        if deadline > .now() { return setTimer() }
        exchange?.expired()
    }
}
