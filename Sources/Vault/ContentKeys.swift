// Keys of single messages: what names them, what holds them, and those that memory has at hand.
//
// The store keeps the key of each message and no past states of ratchets. Rows are ordered by message id, which rises
// with time: a write changes the last page only, and a page of history is one range of the file.

import Crypto
import DoubleRatchet
package import Envelope
package import StorePort

/// The content key of one message. Wiped when nobody holds it any more.
package final class ContentKey: Sendable {
    package let message: MessageID
    package let digest: EnvelopeDigest
    /// In milliseconds since 1970.
    package let expiresAt: Int64
    /// Unsafe only to the compiler: nobody changes it but `deinit`, which is alone with it.
    private nonisolated(unsafe) var bytes: [UInt8]

    /// - Parameter bytes: not to be kept anywhere else.
    package init(message: MessageID, digest: EnvelopeDigest, expiresAt: Int64, bytes: consuming [UInt8]) {
        (self.message, self.digest, self.expiresAt) = (message, digest, expiresAt)
        self.bytes = bytes
    }

    deinit { SecretBytes.wipe(&bytes) }

    /// Lends the key.
    package func withBytes<Result>(_ body: (borrowing [UInt8]) throws -> Result) rethrows -> Result { try body(bytes) }
}

/// The keys that were used last, bounded. Keys only: no text is remembered.
package struct RememberedKeys {
    /// Ours: keys in memory, some 200 bytes each, 6 MB in all: the last three hundred messages of a hundred
    /// conversations, which is where people look again and again. Older ones are one read of the store away.
    package static let limit = 32_768

    /// Half of the limit; what has not been asked for while it filled up goes with the next change.
    private var recent: [MessageID: ContentKey] = [:]
    private var older: [MessageID: ContentKey] = [:]

    package init() {}

    package var count: Int { recent.count + older.count }

    package mutating func remember(_ key: ContentKey) {
        if recent.count >= Self.limit / 2, recent[key.message] == nil {
            older = recent
            recent = [:]
        }
        older[key.message] = nil
        recent[key.message] = key
    }

    /// The key of a message, whatever envelope it is of.
    package mutating func key(of message: MessageID) -> ContentKey? {
        if let key = recent[message] { return key }
        guard let key = older[message] else { return nil }
        remember(key)
        return key
    }

    package mutating func forget(_ message: MessageID) {
        recent[message] = nil
        older[message] = nil
    }
}
