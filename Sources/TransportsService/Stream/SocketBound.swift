package import NIOCore
import Synchronization
package import TransportsCore

/// A transport that listens on a socket.
package final class SocketBound: BoundTransport {
    private let service: StreamService
    private let listening = Once<Result<any Channel, TesseractError>>()
    private let cleanUp: @Sendable () -> Void

    /// - Parameters:
    ///   - listen: Opens the listening channel.
    ///   - cleanUp: Runs after the channel is closed, once it was open.
    package init(
        _ service: StreamService, listen: @escaping @Sendable () async throws -> any Channel,
        cleanUp: @escaping @Sendable () -> Void = {}
    ) {
        (self.service, self.cleanUp) = (service, cleanUp)
        let listening = listening
        Task {
            do {
                let channel = try await listen()
                if !listening.fulfil(.success(channel)) { Self.close(channel, cleanUp) }
            } catch let error as TesseractError {
                listening.fulfil(.failure(error))
            } catch {
                listening.fulfil(.failure(.unavailable(reason: "cannot listen: \(error)")))
            }
        }
    }

    deinit {
        service.stop()
        if !listening.fulfil(.failure(Self.closed)), case .success(let channel) = listening.current {
            Self.close(channel, cleanUp)
        }
    }

    private static let closed = TesseractError.closed(reason: "the transport is closed")

    private static func close(_ channel: any Channel, _ cleanUp: @escaping @Sendable () -> Void) {
        guard channel.isActive else { return }
        // Before the descriptor is closed: afterwards another process may have the same path.
        cleanUp()
        channel.close(promise: nil)
    }

    package func ready() async -> Result<(), TesseractError> { await listening.value().map { _ in } }

    /// The port, or nil if the transport does not listen on one.
    package func port() async -> Int? { try? await listening.value().get().localAddress?.port }

    package func close() async {
        if listening.fulfil(.failure(Self.closed)) { return service.stop() }
        guard case .success(let channel) = listening.current else { return service.stop() }
        Self.close(channel, cleanUp)
        try? await channel.closeFuture.get()
        let service = service
        await within(service.limits.drain, late: (), cancelled: ()) { await service.drain() }
        service.stop()
    }
}
