// What all requests to the backend need.

import HTTPCodec

extension RequestHead {
    /// Whether the request may be sent twice without a difference. RFC 9110 section 9.2.2.
    var isIdempotent: Bool { ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"].contains(method) }

    /// Adds `Host` if there is none. HTTP/1.1 requires it, and a request of HTTP/1.0 may lack it. RFC 9112 section 3.2.
    mutating func addHost(_ authority: @autoclosure () -> String) {
        guard headers.first("host") == nil else { return }
        headers.fields.insert(.init("Host", authority()), at: 0)
    }
}
