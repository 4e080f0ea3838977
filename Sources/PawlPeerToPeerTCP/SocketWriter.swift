// A change of thread costs about as much as a packet over loopback. So a packet is written by the thread that has it, and
// the socket's thread is needed only for what the socket does not take.

import NIOCore

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// Writes to the socket of a channel on any thread.
///
/// It owns a second descriptor, so the channel may close its own at any time. The connection ends when both are closed.
/// Bytes that the channel has not written yet would be overtaken: the caller excludes that.
final class SocketWriter: Sendable {
    private let descriptor: CInt

    /// A writer for a channel without TLS. Called on its event loop.
    ///
    /// - Returns: nil if the channel has no open socket, or if there are no more descriptors.
    init?(_ channel: any Channel) {
        let operations = channel.pipeline.syncOperations
        let copy = try? operations.withUnsafeTransportIfAvailable(of: NIOBSDSocket.Handle.self) {
            fcntl($0, F_DUPFD_CLOEXEC, 0)
        }
        guard let copy, copy >= 0 else { return nil }
        descriptor = copy
    }

    deinit { close(descriptor) }

    /// Writes without waiting.
    ///
    /// - Returns: how many bytes the socket has taken. 0 also after a failure, which the channel finds as well.
    func write(_ bytes: [UInt8]) -> Int {
        // The channel has set the same for its socket on Apple's systems, which have no flag for one call.
        #if canImport(Darwin)
            let flags = CInt(MSG_DONTWAIT)
        #else
            let flags = CInt(MSG_DONTWAIT) | CInt(MSG_NOSIGNAL)
        #endif
        while true {
            let count = bytes.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, flags) }
            if count >= 0 { return count }
            guard errno == EINTR else { return 0 }
        }
    }
}
