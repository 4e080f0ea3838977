// Content keys of single messages, and the cache of those that were used last.
//
// The store keeps the key of each message and no past ratchet states. Rows are ordered by message id, which rises with
// time: a write changes the last page only, and a page of history is one range of the file.

import Crypto
import DoubleRatchet
package import Envelope
package import StorePort

/// The content key of one message. Wiped when the last reference is released.
package final class ContentKey: Sendable {
    package let message: MessageID
    package let digest: EnvelopeDigest
    /// In milliseconds since 1970.
    package let expiresAt: Int64
    /// `nonisolated(unsafe)` because only `deinit` changes it, when no other reference exists.
    private nonisolated(unsafe) var bytes: [UInt8]

    /// - Parameter bytes: the key; the caller must not keep a copy.
    package init(message: MessageID, digest: EnvelopeDigest, expiresAt: Int64, bytes: consuming [UInt8]) {
        (self.message, self.digest, self.expiresAt) = (message, digest, expiresAt)
        self.bytes = bytes
    }

    deinit { SecretBytes.wipe(&bytes) }

    /// Lends the key.
    package func withBytes<Result>(_ body: (borrowing [UInt8]) throws -> Result) rethrows -> Result { try body(bytes) }
}

/// A bounded cache of the keys that were used last. It holds no texts.
package struct RememberedKeys {
    /// Ours: keys in memory, some 200 bytes each, 6 MB in all: the last three hundred messages of a hundred
    /// conversations, which are read most often. Older keys cost one read of the store.
    package static let limit = 32_768

    /// At most half of the limit. When it is full it replaces `older`, and keys that were not used since are dropped.
    private var recent: [MessageID: ContentKey] = [:]
    private var older: [MessageID: ContentKey] = [:]

    package init() {}

    package var count: Int { recent.count + older.count }

    package mutating func remember(_ key: ContentKey) {
        guard recent[key.message] !== key else { return }
        if recent.count >= Self.limit / 2, recent[key.message] == nil {
            older = recent
            recent = [:]
        }
        older[key.message] = nil
        recent[key.message] = key
    }

    /// The cached key of a message. The caller compares the digest of the envelope.
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
