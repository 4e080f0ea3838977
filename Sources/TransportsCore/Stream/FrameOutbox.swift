// Writing frames from any thread. Frames that are appended before the event loop runs leave with one write and one
// change of thread, which is what many requests at once need.

package import NIOCore
import Synchronization
package import TransportCodec

/// Collects frames for one channel.
package final class FrameOutbox: Sendable {
    /// Ours: bytes that wait for the event loop, 1 MiB. Above it a sender waits until they are written.
    private static let highWater = 1 << 20

    private struct State: Sendable {
        var buffer = ByteBuffer()
        var isScheduled = false
        var promise: EventLoopPromise<Void>?
        var isClosing = false
    }

    package let channel: any Channel
    private let state = Mutex(State())

    package init(channel: any Channel) { self.channel = channel }

    /// Appends a frame; it is written soon.
    package func append(_ frame: Frame) {
        if state.withLock({ Self.append(frame, &$0) }) { schedule() }
    }

    /// Appends a frame, and waits until it is written if the peer does not read fast enough.
    package func send(_ frame: Frame) async throws {
        let isWritable = channel.isWritable
        let (isFirst, written) = state.withLock { state in
            let isFirst = Self.append(frame, &state)
            guard !isWritable || state.buffer.readableBytes > Self.highWater else {
                return (isFirst, nil as EventLoopFuture<Void>?)
            }
            let promise = state.promise ?? channel.eventLoop.makePromise()
            state.promise = promise
            return (isFirst, promise.futureResult)
        }
        if isFirst { schedule() }
        try await written?.get()
    }

    /// Closes the channel when everything before is written.
    package func close() {
        let isFirst = state.withLock { state in
            state.isClosing = true
            defer { state.isScheduled = true }
            return !state.isScheduled
        }
        if isFirst { schedule() }
    }

    /// - Returns: whether a flush has to be scheduled.
    private static func append(_ frame: Frame, _ state: inout State) -> Bool {
        guard !state.isClosing else { return false }
        frame.write(to: &state.buffer)
        defer { state.isScheduled = true }
        return !state.isScheduled
    }

    private func schedule() { channel.eventLoop.execute { [self] in flush() } }

    private func flush() {
        let (buffer, promise, isClosing) = state.withLock { state in
            defer { (state.buffer, state.isScheduled, state.promise) = (ByteBuffer(), false, nil) }
            return (state.buffer, state.promise, state.isClosing)
        }
        guard isClosing else { return channel.writeAndFlush(buffer, promise: promise) }
        channel.writeAndFlush(buffer).whenComplete { [channel] _ in
            promise?.succeed(())
            channel.close(promise: nil)
        }
    }
}
