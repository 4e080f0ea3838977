// Every bound of the HTTP proxy, with its reason.

package import HTTPCodec
package import NIOCore

/// How much, how many and how long. The defaults are ours where no specification is named.
package struct HTTPLimits: Sendable {
    package var head = HeadLimits()
    /// A kept connection without a request. As long as nginx's.
    package var keepAlive = TimeAmount.seconds(75)
    /// From a request's first byte to the end of its head, so that a slow client does not hold a connection for ever.
    package var headTime = TimeAmount.seconds(30)
    /// Between two pieces of a request's body, and while a client takes nothing of its answer.
    package var stall = TimeAmount.seconds(60)
    /// For the backend's answer, and between two pieces of it. Longer than clients let long polls wait.
    package var answer = TimeAmount.seconds(120)
    /// For a request of the gateway's own.
    package var lookup = TimeAmount.seconds(15)
    /// How long is read on after an answer that did not wait for the end of its request, so that the client gets to see it:
    /// RFC 9112 section 9.6.
    package var linger = TimeAmount.seconds(5)
    /// How much is thrown away meanwhile, in bytes.
    package var lingerBytes = 1 << 20
    /// Connections to the backend, for each event loop; what comes then waits for one.
    package var upstreamConnections = 8192
    /// Those of them that nobody uses are kept: as many as one event loop's share of a burst.
    package var idleUpstream = 256
    /// How long they are kept. Some servers close them after five seconds; that is seen at once.
    package var idleUpstreamTime = TimeAmount.seconds(30)
    /// Bytes written and not yet taken by the kernel from which on the other side is not read.
    package var window = 64 << 10
    /// Answers of the vault that a WebSocket waits for before it is not read any more.
    package var pendingJobs = 64
    /// Between the two close frames of a WebSocket. RFC 6455 section 7.1.1 asks for a reasonable time.
    package var closeTime = TimeAmount.seconds(10)
    /// Streams of one connection of HTTP/2 at one time. RFC 9113 section 6.5.2 recommends not fewer.
    package var streams = 100
    /// Bytes that all streams of a connection together may have under way to the gateway; each alone has ``window``.
    package var connectionWindow = 1 << 20
    /// In ``floodTime``: streams that the client begins and takes back, each of which makes the backend begin something
    /// (CVE-2023-44487). As many as nghttp2 allows.
    package var streamResets = 1000
    /// In ``floodTime``: PING, SETTINGS and PRIORITY frames (CVE-2019-9512, 9515). Browsers send a few, and one PRIORITY
    /// for each stream at most.
    package var controlFrames = 1000
    /// In ``floodTime``: malformed requests, after which the connection ends. A client of good will sends none.
    package var streamErrors = 100
    package var floodTime = TimeAmount.seconds(30)
    /// Frames that go on with a head: twice what ``head`` takes in frames of the smallest allowed limit, 16 KB each.
    package var continuations = 8
    /// Frames other than DATA that a client does not take from its socket: several for each stream, and PINGs.
    package var pendingControlFrames = 1000
    /// What is under way may end when the gateway is stopped.
    package var stopTime = TimeAmount.seconds(5)

    package init() {}
}
