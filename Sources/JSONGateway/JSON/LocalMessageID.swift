// What a client calls a message that the backend has given no name yet.

package import Envelope

/// Local ids as clients see them: `pawl-` and the message id in hexadecimal. They can be told from every id of a backend, so
/// that a request which names one is known to speak of a message of the queue, also after a restart.
package enum LocalMessageID {
    private static let prefix = "pawl-"
    /// Bytes of each.
    package static let length = 21

    package static func text(of message: MessageID) -> String {
        let digits = String(message.value, radix: 16)
        return prefix + String(repeating: "0", count: 16 - digits.count) + digits
    }

    package static func isOne(_ text: String) -> Bool {
        text.hasPrefix(prefix) && text.utf8.count == length
            && text.utf8.dropFirst(prefix.utf8.count).allSatisfy {
                UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || UInt8(ascii: "a")...UInt8(ascii: "f") ~= $0
            }
    }
}
