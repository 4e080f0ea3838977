import Synchronization

/// An encrypted message that must not be sent before the state that encrypted it is stored.
///
/// Otherwise a restart would go back to the earlier state and use the same key for another message.
///
/// It returns its bytes only for the ``CommittedState`` of the session or sender key that encrypted it, so the order is
/// always encrypt, store, send:
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

    /// The length of the message in bytes.
    public var count: Int { message.count }

    /// Calls `body` with the message, for the transaction that stores the state, so that a queue can send it again
    /// after a restart. It must not be sent before that transaction is committed.
    public borrowing func withBytesToStore<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result { try body(message.span) }

    /// The message, to be sent.
    ///
    /// - Parameter states: the states of all sessions or sender keys that took part; others are ignored.
    /// - Throws: ``RatchetError/notCommitted`` if the state of one of them is missing, or older than this message. The
    ///   message is then lost: encrypt the plaintext again.
    public consuming func bytes(after states: CommittedState...) throws(RatchetError) -> [UInt8] {
        try bytes(after: states)
    }

    /// The message, to be sent, for a list of states.
    ///
    /// - Throws: ``RatchetError/notCommitted``.
    public consuming func bytes(after states: [CommittedState]) throws(RatchetError) -> [UInt8] {
        for mark in marks {
            guard states.contains(where: { $0.covers(mark) }) else { throw .notCommitted }
        }
        return message
    }
}

/// A state to be stored. Its bytes are secrets: seal them with ``StateSealer``.
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

    /// Calls `body` with the state. `body` must wipe its copies with ``SecretBytes/wipe(_:)``.
    public borrowing func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result { try body(bytes.span) }

    /// Asserts that the transaction with this state is committed and synced. The caller is responsible for that.
    public consuming func committed() -> CommittedState { CommittedState(marks) }
}

/// A state that the caller has stored. It releases each ``PendingMessage`` that was encrypted before the state was
/// taken.
public struct CommittedState: Sendable {
    private let marks: [StateMark]

    init(_ marks: [StateMark]) { self.marks = marks }

    func covers(_ mark: StateMark) -> Bool {
        marks.contains { $0.incarnation == mark.incarnation && $0.step >= mark.step }
    }
}

/// The number of steps of a session or sender key in this process.
struct StateMark: Sendable {
    /// Equal for all states that follow from each other in memory; a state read from storage gets a new one.
    let incarnation: UInt64
    /// Messages encrypted.
    private(set) var step: UInt64 = 0

    private static let last = Atomic<UInt64>(0)

    init() { incarnation = Self.last.wrappingAdd(1, ordering: .relaxed).newValue }

    mutating func advance() { step += 1 }
}
