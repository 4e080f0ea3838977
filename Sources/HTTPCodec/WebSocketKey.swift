// The key of a WebSocket's handshake. RFC 6455 section 1.3.

import Crypto
import Envelope

/// Shows that a server has read a request for a WebSocket. No secret.
package enum WebSocketKey {
    private static let constant = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

    /// Bytes of a key.
    package static let size = 16

    /// The value of `Sec-WebSocket-Key` for ``size`` random bytes.
    package static func key(_ bytes: [UInt8]) -> String { padded(bytes) }

    /// The value of `Sec-WebSocket-Accept` for a key.
    package static func accept(_ key: String) -> String {
        padded(Array(Insecure.SHA1.hash(data: Array((key + constant).utf8))))
    }

    private static func padded(_ bytes: [UInt8]) -> String {
        let text = Base64.text(bytes)
        return text + String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
    }
}
