// A connection over a stream of bytes: it connects with its first request, agrees on version and protocol, and lives
// until it is closed once. A new connection is a new object.

package import Foundation
package import NIOCore
import Synchronization
import TransportCodec
package import TransportsCore

/// Opens a channel to the service.
package struct Dialer: Sendable {
    /// Connects and adds the handler at the end of the pipeline, behind TLS and whatever else is needed. If the task is
    /// cancelled, it ends soon: it throws, or its channel is closed by the caller.
    package let connect:
        @Sendable (_ addHandler: @escaping @Sendable (any Channel) throws -> Void) async throws ->
            any Channel
}

package final class StreamLine: Line {
    private enum State: Sendable {
        case fresh
        case opening(Once<Result<FrameOutbox, TesseractError>>)
        case closed
    }

    private let dialer: Dialer
    private let proto: ProtocolID
    private let table: ExchangeTable
    private let limits: TransportLimits
    private let state = Mutex(State.fresh)

    package init(dialer: Dialer, proto: ProtocolID, table: ExchangeTable, limits: TransportLimits) {
        (self.dialer, self.proto, self.table, self.limits) = (dialer, proto, table, limits)
    }

    package func open() async -> Result<Void, TesseractError> { await outbox().map { _ in } }

    package func write(_ id: UInt64, _ request: Data) async -> Result<Void, TesseractError> {
        switch await outbox() {
        case .failure(let error): return .failure(error)
        case .success(let outbox):
            do {
                try await outbox.send(.request(id: id, ByteBuffer(bytes: request)))
                return .success(())
            } catch {
                return .failure(.closed(reason: "the connection was lost: \(error)"))
            }
        }
    }

    package func cancel(_ id: UInt64) {
        if case .opening(let once) = state.withLock({ $0 }), case .success(let outbox) = once.current {
            outbox.append(.cancel(id: id))
        }
    }

    package func close() {
        let last = state.withLock { state in
            defer { state = .closed }
            return state
        }
        table.end(.closed(reason: "the connection is closed"))
        guard case .opening(let once) = last else { return }
        if !once.fulfil(.failure(.closed(reason: "the connection is closed"))), case .success(let outbox) = once.current
        {
            outbox.close()
        }
    }

    private func outbox() async -> Result<FrameOutbox, TesseractError> {
        let (once, isNew): (Once<Result<FrameOutbox, TesseractError>>?, Bool) = state.withLock { state in
            switch state {
            case .fresh:
                let once = Once<Result<FrameOutbox, TesseractError>>()
                state = .opening(once)
                return (once, true)
            case .opening(let once): return (once, false)
            case .closed: return (nil, false)
            }
        }
        guard let once else { return .failure(.closed(reason: "the connection is closed")) }
        if let result = once.current { return result }
        if isNew { dial(once) }
        // Every caller may give up; the others go on waiting for the same connection.
        let own = Once<Result<FrameOutbox, TesseractError>>()
        let waiting = Task { own.fulfil(await once.value()) }
        defer { waiting.cancel() }
        return await own.value { own.fulfil(.failure(.cancelled)) }
    }

    private func dial(_ once: Once<Result<FrameOutbox, TesseractError>>) {
        let (dialer, proto, table, limits) = (dialer, proto, table, limits)
        Task {
            let result: Result<Void, TesseractError> = await within(
                limits.handshake,
                late: .failure(.timedOut(reason: "the service did not answer within \(limits.handshake)")),
                cancelled: .failure(.cancelled)
            ) {
                let result = await Self.connect(dialer, proto, table, limits)
                // Closed meanwhile, or too late.
                if !once.fulfil(result), case .success(let outbox) = result { outbox.channel.close(promise: nil) }
                return result.map { _ in }
            }
            guard case .failure(let error) = result else { return }
            once.fulfil(.failure(error))
            if case .failure(let error)? = once.current { table.end(error) }
        }
    }

    /// Connects and greets. If the task is cancelled, nobody waits for the service any more, and the channel is closed.
    private static func connect(
        _ dialer: Dialer, _ proto: ProtocolID, _ table: ExchangeTable, _ limits: TransportLimits
    ) async -> Result<FrameOutbox, TesseractError> {
        guard proto.isAllowed else {
            return .failure(.unavailable(reason: "a protocol's name has 1 to \(ProtocolID.sizeLimit) bytes"))
        }
        let welcome = Once<Result<Void, TesseractError>>()
        do {
            let channel = try await dialer.connect { channel in
                try channel.pipeline.syncOperations.addHandler(
                    ClientFrameHandler(table: table, limits: limits, welcome: welcome))
            }
            // Not in the handler: while a pipeline is upgraded to WebSocket, it drops what is written.
            let outbox = FrameOutbox(channel: channel)
            outbox.append(.hello(version: Frame.version, proto: ByteBuffer(string: proto.name)))
            let result = await welcome.value { welcome.fulfil(.failure(.cancelled)) }
            if case .failure = result { channel.close(promise: nil) }
            return result.map { outbox }
        } catch let error as TesseractError {
            return .failure(error)
        } catch {
            return .failure(.unavailable(reason: "cannot connect: \(error)"))
        }
    }
}

/// Reads the service's frames and gives replies to their requests.
private final class ClientFrameHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let table: ExchangeTable
    private let welcome: Once<Result<Void, TesseractError>>
    private var reader: FrameReader
    private var isWelcome = false

    init(table: ExchangeTable, limits: TransportLimits, welcome: Once<Result<Void, TesseractError>>) {
        (self.table, self.welcome) = (table, welcome)
        reader = FrameReader(limit: Frame.lengthLimit(message: limits.message))
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        reader.append(unwrapInboundIn(data))
        do {
            while let frame = try reader.next() {
                guard handle(frame) else {
                    return end(.weird(reason: "the service sent a frame that it may not send now"), context)
                }
            }
        } catch {
            end(.weird(reason: "the service sent bytes that are no frames: \(error)"), context)
        }
    }

    /// - Returns: whether the service may send the frame now.
    private func handle(_ frame: Frame) -> Bool {
        switch frame {
        case .welcome(let version):
            guard !isWelcome, version == Frame.version else { return false }
            isWelcome = true
            welcome.fulfil(.success(()))
        case .unavailable(let reason):
            guard !isWelcome else { return false }
            let error = TesseractError.unavailable(reason: String(buffer: reason))
            welcome.fulfil(.failure(error))
            table.end(error)
        case .reply(let id, let payload):
            return isWelcome && table.arrived(id, .success(Data(payload.readableBytesView)))
        case .failure(let id, let code, let reason):
            let error = TesseractError(code: code, reason: String(buffer: reason))
            return isWelcome && table.arrived(id, .failure(error))
        case .drain: table.drain()
        case .hello, .request, .cancel: return false
        }
        return true
    }

    private func end(_ error: TesseractError, _ context: ChannelHandlerContext) {
        welcome.fulfil(.failure(error))
        table.end(error)
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        let isWhole = (try? reader.finish()) != nil
        end(
            .closed(reason: isWhole ? "the service closed the connection" : "the connection ended in a message"),
            context)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        end(.closed(reason: "the connection failed: \(error)"), context)
    }
}
