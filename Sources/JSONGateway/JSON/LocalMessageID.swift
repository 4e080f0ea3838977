// Ids of messages to which the backend has not assigned an id yet.

package import Envelope

/// Local ids as clients see them: `pawl-` and the message id in hexadecimal.
///
/// They differ from all ids of a backend, so that a request with one refers to a queued message, also after a restart.
package enum LocalMessageID {
    private static let prefix = "pawl-"
    /// Length of an id, in bytes.
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
