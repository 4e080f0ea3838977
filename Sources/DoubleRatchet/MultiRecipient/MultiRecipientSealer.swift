/// Seals one body for several devices: the body first, then its key for one device after another.
///
/// It cannot be copied, and ``pendingMessage()`` consumes it: its key never seals a second body.
public struct MultiRecipientSealer: ~Copyable, Sendable {
    private let contentKey: SecretBytes
    private let sealedBody: [UInt8]
    private var keys: [MultiRecipientMessage.WrappedKey] = []
    /// The marks of the sessions that have wrapped the key.
    private var marks: [StateMark] = []

    /// Seals the body under a content key from 32 bytes of `random`.
    ///
    /// - Parameters:
    ///   - body: the body for all recipients, of any length.
    ///   - associatedData: data that all recipients know and that is not sent: sender, conversation, message id.
    ///   - random: 32 bytes are taken.
    public init(_ body: Span<UInt8>, associatedData: [UInt8], random: inout some RandomSource) {
        let key = SecretBytes(count: MultiRecipientMessage.contentKeySize, random: &random)
        var sealed: [UInt8] = []
        body.withUnsafeBytes { Primitives.seal($0, key: key, authenticating: associatedData, into: &sealed) }
        (contentKey, sealedBody) = (key, sealed)
    }

    /// Wraps the key for one more device. The caller stores its session before the message is sent.
    ///
    /// - Parameters:
    ///   - recipient: the caller's number for the device.
    ///   - sessions: the sessions with it.
    ///   - associatedData: the data bound to this recipient's copy of the key; the body's hash is appended to it.
    ///   - random: up to 96 bytes are taken, as for a message of a session.
    /// - Throws: ``RatchetError/exhausted``, ``RatchetError/invalidKey``; then nothing has changed, and the message can
    ///   be sent to the others. ``RatchetError/malformed`` after ``MultiRecipientMessage/recipientLimit`` recipients.
    public mutating func add(
        _ recipient: UInt64, _ sessions: inout SessionRecord, associatedData: [UInt8],
        random: inout some RandomSource
    ) throws(RatchetError) {
        guard keys.count < MultiRecipientMessage.recipientLimit else { throw .malformed }
        let data = MultiRecipientMessage.authenticated(associatedData, sealedBody)
        var plaintext: [UInt8] = []
        contentKey.append(to: &plaintext)
        defer { SecretBytes.wipe(&plaintext) }
        var message: [UInt8] = []
        // 32 bytes with a prekey part are far below the format's limit of 65,535.
        try sessions.encrypt(plaintext.span, associatedData: data.span, random: &random, into: &message)
        keys.append(.init(recipient: recipient, message: message))
        marks.append(sessions.currentMark)
    }

    /// The message for all recipients, in the form of ``MultiRecipientMessage``.
    ///
    /// It can be sent after the states of all sessions are stored; see ``PendingMessage``.
    public consuming func pendingMessage() -> PendingMessage {
        let marks = marks
        var bytes: [UInt8] = []
        finish().serialize(into: &bytes)
        return PendingMessage(bytes, marks)
    }

    /// For callers that keep the order of encrypting, storing and sending themselves: the message for all recipients.
    package consuming func finish() -> MultiRecipientMessage {
        MultiRecipientMessage(checked: keys, sealedBody: sealedBody)
    }
}
