// Opened messages, kept so that other connections of the account, and copies of the same envelope, get the result.

import DoubleRatchet
import Envelope
import Protection

/// The last opened messages, by envelope and recipient.
struct OpenedCopies {
    struct Key: Hashable {
        let sender: DeviceID
        let message: MessageID
        let recipient: AccountID
    }

    /// Ours: messages that are always kept. Twice as many are kept at most; then the oldest half is removed.
    static let limit = 2048

    private var messages: [Key: OpenedMessage] = [:]
    /// Each key once, the oldest first.
    private var order: [Key] = []

    subscript(key: Key) -> OpenedMessage? { messages[key] }

    mutating func put(_ message: OpenedMessage, for key: Key) {
        if messages.updateValue(message, forKey: key) == nil { order.append(key) }
        guard order.count >= Self.limit * 2 else { return }
        for old in order.prefix(Self.limit) { messages[old] = nil }
        order.removeFirst(Self.limit)
    }

    /// Removes a message that was not committed. It is among the newest.
    mutating func remove(_ key: Key) {
        guard messages.removeValue(forKey: key) != nil, let place = order.lastIndex(of: key) else { return }
        order.remove(at: place)
    }
}
