// All limits of the HTTP proxy, with their reasons.

package import HTTPCodec
package import NIOCore

/// Sizes, counts and times. The defaults are ours unless a comment names a specification.
package struct HTTPLimits: Sendable {
    package var head = HeadLimits()
    /// Maximum idle time of a client's connection. The same as nginx.
    package var keepAlive = TimeAmount.seconds(75)
    /// From a request's first byte to the end of its head, so that a slow client does not hold a connection for ever.
    package var headTime = TimeAmount.seconds(30)
    /// Between two pieces of a request's body, and while a client reads nothing of its answer.
    package var stall = TimeAmount.seconds(60)
    /// For the backend's answer, and between two pieces of it. Longer than the long polls of clients.
    package var answer = TimeAmount.seconds(120)
    /// For one of the gateway's own requests.
    package var lookup = TimeAmount.seconds(15)
    /// Time to read on after an answer that was sent before the request's end, so that the client can read the answer.
    /// RFC 9112 section 9.6.
    package var linger = TimeAmount.seconds(5)
    /// Maximum bytes discarded in that time.
    package var lingerBytes = 1 << 20
    /// Connections to the backend for each event loop. Further requests wait.
    package var upstreamConnections = 8192
    /// Idle connections kept for each event loop: its share of a burst.
    package var idleUpstream = 256
    /// Maximum idle time of these. Some servers close them after five seconds, which the gateway notices at once.
    package var idleUpstreamTime = TimeAmount.seconds(30)
    /// Bytes written to one side and not accepted by the kernel, above which the gateway stops reading the other side.
    package var window = 64 << 10
    /// Pending replies of the vault above which the gateway stops reading a WebSocket.
    package var pendingJobs = 64
    /// Maximum size of a WebSocket message that is read, in bytes. A longer one closes the connection with code 1009, or
    /// passes in pieces while nothing is protected.
    package var message = 16 << 20
    /// Between the two close frames of a WebSocket. RFC 6455 section 7.1.1 demands a reasonable time.
    package var closeTime = TimeAmount.seconds(10)
    /// Concurrent streams of one HTTP/2 connection. RFC 9113 section 6.5.2 recommends at least 100.
    package var streams = 100
    /// Flow-control window of a connection for all its streams, in bytes. Each stream has ``window``.
    package var connectionWindow = 1 << 20
    /// In ``floodTime``: streams that the client opens and resets. Each makes the backend start work (CVE-2023-44487).
    /// The same as nghttp2.
    package var streamResets = 1000
    /// In ``floodTime``: PING, SETTINGS and PRIORITY frames (CVE-2019-9512, 9515). Browsers send a few, and one
    /// PRIORITY for each stream at most.
    package var controlFrames = 1000
    /// In ``floodTime``: malformed requests, after which the connection ends. A correct client sends none.
    package var streamErrors = 100
    package var floodTime = TimeAmount.seconds(30)
    /// CONTINUATION frames of one head: twice the number that ``head`` needs at the minimum frame size limit of 16 KB.
    package var continuations = 8
    /// Buffered frames other than DATA for a client that does not read: several for each stream, and PINGs.
    package var pendingControlFrames = 1000
    /// Answers that are read and longer than this are compressed for clients that accept it, in bytes; 0 for none. The
    /// configuration sets it.
    package var compressAbove = 0
    /// Time for requests in progress when the gateway stops.
    package var stopTime = TimeAmount.seconds(5)

    package init() {}
}
