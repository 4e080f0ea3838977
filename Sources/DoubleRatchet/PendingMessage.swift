import Synchronization

/// A message that is encrypted and must not leave yet: the state that encrypted it has to be stored first. Otherwise a restart would
/// go back to the state before, and use the same key for another message.
///
/// It gives its bytes only against the ``CommittedState`` of the session or sender key that encrypted it, so the order is always
/// encrypt, store, send:
///
/// ```swift
/// let message = try record.encrypt(text.span, associatedData: data.span, random: &random)
/// let state = record.uncommittedState()
/// try state.withBytes { try database.store($0) }
/// try connection.send(message.bytes(after: state.committed()))
/// ```
public struct PendingMessage: ~Copyable, Sendable {
    private let message: [UInt8]
    private let marks: [StateMark]

    init(_ message: [UInt8], _ marks: [StateMark]) { (self.message, self.marks) = (message, marks) }

    /// Bytes of the message.
    public var count: Int { message.count }

    /// Lends the message to the transaction that stores the state, for a queue that sends it again after a restart. Nothing of it
    /// leaves before that transaction is committed.
    public borrowing func withBytesToStore<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result { try body(message.span) }

    /// The message, to be sent.
    ///
    /// - Parameter states: of all sessions or sender keys that took part; those of others do no harm.
    /// - Throws: ``RatchetError/notCommitted`` if the state of one of them is missing, or is of before this message. The message is
    ///   lost then: encrypt the plaintext again.
    public consuming func bytes(after states: CommittedState...) throws(RatchetError) -> [UInt8] {
        try bytes(after: states)
    }

    /// The message, to be sent; the same for a list of states.
    ///
    /// - Throws: ``RatchetError/notCommitted``.
    public consuming func bytes(after states: [CommittedState]) throws(RatchetError) -> [UInt8] {
        for mark in marks {
            guard states.contains(where: { $0.covers(mark) }) else { throw .notCommitted }
        }
        return message
    }
}

/// A state that is to be stored. Its bytes are secrets: seal them with ``StateSealer``.
public struct UncommittedState: ~Copyable, Sendable {
    private var bytes: [UInt8] = []
    private let marks: [StateMark]

    init(_ marks: [StateMark], _ serialize: (inout [UInt8]) -> Void) {
        self.marks = marks
        serialize(&bytes)
    }

    deinit {
        var bytes = bytes
        SecretBytes.wipe(&bytes)
    }

    /// Lends the state. What `body` copies it has to wipe with ``SecretBytes/wipe(_:)``.
    public borrowing func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result { try body(bytes.span) }

    /// Says that the transaction with this state is committed and synced. The caller answers for it.
    public consuming func committed() -> CommittedState { CommittedState(marks) }
}

/// A state that the caller has stored. It opens each ``PendingMessage`` that was encrypted before it was taken.
public struct CommittedState: Sendable {
    private let marks: [StateMark]

    init(_ marks: [StateMark]) { self.marks = marks }

    func covers(_ mark: StateMark) -> Bool {
        marks.contains { $0.incarnation == mark.incarnation && $0.step >= mark.step }
    }
}

/// How far a session or sender key has come in this process.
struct StateMark: Sendable {
    /// The same for all states that follow from each other in memory; another one after a state was read.
    let incarnation: UInt64
    /// Messages encrypted.
    private(set) var step: UInt64 = 0

    private static let last = Atomic<UInt64>(0)

    init() { incarnation = Self.last.wrappingAdd(1, ordering: .relaxed).newValue }

    mutating func advance() { step += 1 }
}
