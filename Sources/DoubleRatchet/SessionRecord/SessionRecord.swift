/// All sessions with one device: the current one, which sends, and a few earlier ones, which only receive.
///
/// Sessions are replaced if both ends start one at the same time, if a device has lost its state, or if one end starts
/// again. Messages sealed in the earlier session are then still in transit, and both ends must return to the same
/// session without starting more. Two rules ensure that:
/// - If both ends start a session at the same time, the session of the lower identity key becomes the current one at
///   both ends. Messages in the other session are opened all the same.
/// - The end with the higher key sends in the session in which it receives. The end with the lower key keeps its
///   session, unless it has received nothing in it yet.
///
/// So one end leads and the other follows, even if messages are lost or reordered, and no end answers a first message
/// with another. The record is stored as a whole: see ``serialize(into:)``. A function that throws changes nothing.
public struct SessionRecord: ~Copyable, Sendable {
    /// Ours: earlier sessions that are kept; the oldest are dropped. Two, because each has up to 2.5 KB of state, and
    /// sessions are replaced once or twice in a row.
    public static let earlierLimit = 2
    /// Ours: messages that the current session opens before the earlier ones are dropped, with the keys of messages
    /// that never came. A message overtaken by so many is lost.
    public static let earlierLife: UInt16 = 1000

    private(set) var current: Session
    private(set) var earlier = SessionList(capacity: SessionRecord.earlierLimit)
    /// Messages that the current session has opened since there are earlier sessions.
    private(set) var receivedCount: UInt16 = 0

    /// Makes a record with one session.
    public init(_ session: consuming Session) {
        current = session
    }

    init(_ session: consuming Session, earlier: consuming SessionList, receivedCount: UInt16) {
        current = session
        self.earlier = earlier
        self.receivedCount = receivedCount
    }

    /// The device at the other end.
    public var peerIdentity: IdentityKey { current.peerIdentity }

    /// The current session's id, the same at both ends.
    public var id: [UInt8] { current.id }

    /// Whether the peer is known to have the current session.
    public var isEstablished: Bool { current.isEstablished }

    /// The number of earlier sessions, at most ``earlierLimit``.
    public var earlierCount: Int { earlier.count }

    /// The number of stored keys of skipped messages, over all sessions.
    public var skippedCount: Int {
        var count = current.skippedCount
        for index in 0..<earlier.count { count += earlier[index].skippedCount }
        return count
    }

    /// Whether the peer's key is the lower one, so that the peer leads.
    private var follows: Bool { current.peerIdentity.bytes.lexicographicallyPrecedes(current.ownIdentity.bytes) }

    // MARK: Sessions

    /// Whether a session that `identity` starts becomes an earlier one, because ours was started at the same time and
    /// stays current.
    public func keepsCurrent(against identity: IdentityKey) -> Bool {
        !current.isEstablished && identity == current.peerIdentity && !follows
    }

    /// Adds a session that we have started: it is used for sending from now on.
    public mutating func begin(_ session: consuming Session) {
        replace(by: session)
    }

    /// Adds a session that the peer has started, after a message of it was opened.
    ///
    /// - Returns: whether it is used for sending from now on; false if ``keepsCurrent(against:)`` is true for it.
    @discardableResult public mutating func accept(_ session: consuming Session) -> Bool {
        if keepsCurrent(against: session.peerIdentity) {
            earlier.insert(session)
            return false
        }
        replace(by: session)
        return true
    }

    /// Undoes ``accept(_:)`` that has returned false, before anything else was opened or added.
    package mutating func withdrawEarlier() {
        if earlier.count > 0 { _ = earlier.remove(at: 0) }
    }

    /// Drops the current session and makes the newest earlier one current.
    ///
    /// - Returns: false if there is none; then nothing has changed.
    public mutating func abandon() -> Bool {
        guard earlier.count > 0 else { return false }
        current = earlier.remove(at: 0)
        receivedCount = 0
        return true
    }

    /// The current session becomes an earlier one. If the identity is another one, all earlier sessions are dropped.
    private mutating func replace(by session: consuming Session) {
        var session = session
        swap(&current, &session)
        if session.peerIdentity == current.peerIdentity, session.ownIdentity == current.ownIdentity {
            earlier.insert(session)
        } else {
            earlier.removeAll()
        }
        receivedCount = 0
    }

    private mutating func promote(_ index: Int) {
        var session = earlier.remove(at: index)
        swap(&current, &session)
        earlier.insert(session)
        receivedCount = 0
    }

    /// Has all sessions go on in version 3; see ``Session/padHeaders()``.
    package mutating func padHeaders() {
        current.padHeaders()
        for index in 0..<earlier.count { earlier[index].padHeaders() }
    }

    // MARK: Messages

    /// Encrypts a message in the current session; see ``Session/encrypt(_:associatedData:random:)``.
    public mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource
    ) throws(RatchetError) -> PendingMessage {
        try current.encrypt(plaintext, associatedData: associatedData, random: &random)
    }

    /// The current state, to be stored, in the form of ``serialize(into:)``.
    public borrowing func uncommittedState() -> UncommittedState { UncommittedState(marks) { serialize(into: &$0) } }

    /// The number of steps of its sessions in this process.
    private var marks: [StateMark] {
        var marks = [current.mark]
        for index in 0..<earlier.count { marks.append(earlier[index].mark) }
        return marks
    }

    /// The mark of the current session.
    var currentMark: StateMark { current.mark }

    /// For callers that keep the order of encrypting, storing and sending themselves.
    package mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource,
        into output: inout [UInt8]
    ) throws(RatchetError) {
        try current.encrypt(plaintext, associatedData: associatedData, random: &random, into: &output)
    }

    /// Opens a message in the session that it belongs to; see
    /// ``Session/decrypt(_:associatedData:into:)-(_,_,[UInt8])``.
    ///
    /// The cost is that of its own session, plus trying the header keys of the sessions before it.
    ///
    /// - Throws: ``RatchetError/differentSession`` if the message starts a session that is not in this record:
    ///   ``PreKeyStore`` opens it, and ``accept(_:)`` adds it. Else the error of the session that the message belongs
    ///   to.
    public mutating func decrypt(
        _ message: Span<UInt8>, associatedData: Span<UInt8>, into output: inout [UInt8]
    ) throws(RatchetError) -> Session.Received {
        var failure: RatchetError
        do throws(RatchetError) {
            let received = try current.decrypt(message, associatedData: associatedData, into: &output)
            countReceived()
            return received
        } catch {
            failure = error
        }
        var index = 0
        while index < earlier.count, Self.isForeign(failure) {
            do throws(RatchetError) {
                let keys = earlier[index].skippedCount
                let received = try earlier[index].decrypt(message, associatedData: associatedData, into: &output)
                // A late message does not show that the peer sends in this session now.
                let isLate = received.skipped == 0 && earlier[index].skippedCount < keys
                if !isLate, follows || !current.isEstablished { promote(index) }
                return received
            } catch {
                if failure == .differentSession || error != .differentSession { failure = error }
            }
            index += 1
        }
        throw failure
    }

    /// Whether a message may belong to another session. A session throws every other error only for a message with its
    /// own id, or with a header under its own keys.
    private static func isForeign(_ failure: RatchetError) -> Bool {
        failure == .differentSession || failure == .authenticationFailed
    }

    private mutating func countReceived() {
        guard earlier.count > 0 else { return }
        receivedCount += 1
        if receivedCount >= Self.earlierLife {
            earlier.removeAll()
            receivedCount = 0
        }
    }
}
