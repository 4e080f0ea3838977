/// All sessions with one device: the current one, which speaks, and a few earlier ones, which listen on.
///
/// Sessions are replaced: both ends begin at the same time, a device has lost its state, or somebody begins anew. What was
/// sealed in the session before is still on its way, and the two ends have to come to speak in the same one again without
/// beginning more. Two rules do that:
/// - Where both begin at the same time, the session of the lower identity key is the current one at both ends. What the
///   other end has said in its own is opened all the same.
/// - The end of the higher key speaks in the session in which it hears the other. The end of the lower key stays where it is,
///   unless it has heard nothing in it yet.
///
/// So one end leads and the other follows, whatever was lost or overtaken, and no end answers a beginning with another.
/// It is stored as one: see ``serialize(into:)``. What throws changes nothing.
public struct SessionRecord: ~Copyable, Sendable {
    /// Ours: earlier sessions that are kept; the oldest go. Two, because each is up to 2.5 KB of state, and beginnings
    /// come one or two at a time.
    public static let earlierLimit = 2
    /// Ours: messages that the current session opens before the earlier ones go, and the keys of what never came in them.
    /// Whatever is overtaken by so many was lost.
    public static let earlierLife: UInt16 = 1000

    private(set) var current: Session
    private(set) var earlier = SessionList(capacity: SessionRecord.earlierLimit)
    /// Messages that the current session has opened since there are earlier ones.
    private(set) var heard: UInt16 = 0

    /// A record with one session.
    public init(_ session: consuming Session) {
        current = session
    }

    init(_ session: consuming Session, earlier: consuming SessionList, heard: UInt16) {
        current = session
        self.earlier = earlier
        self.heard = heard
    }

    /// The device at the other end.
    public var peerIdentity: IdentityKey { current.peerIdentity }

    /// The name of the current session at both ends.
    public var id: [UInt8] { current.id }

    /// Whether the peer is known to have the current session.
    public var isEstablished: Bool { current.isEstablished }

    /// How many earlier sessions still listen, at most ``earlierLimit``.
    public var earlierCount: Int { earlier.count }

    /// How many keys of messages that have not come are kept, over all sessions.
    public var skippedCount: Int {
        var count = current.skippedCount
        for index in 0..<earlier.count { count += earlier[index].skippedCount }
        return count
    }

    /// Whether the peer's key is the lower one, so that it leads.
    private var follows: Bool { current.peerIdentity.bytes.lexicographicallyPrecedes(current.ownIdentity.bytes) }

    // MARK: Sessions

    /// Whether a session that `identity` begins is to be left aside, because ours was begun at the same time and stays.
    public func keepsCurrent(against identity: IdentityKey) -> Bool {
        !current.isEstablished && identity == current.peerIdentity && !follows
    }

    /// Takes a session that we have begun: it speaks from now on.
    public mutating func begin(_ session: consuming Session) {
        replace(by: session)
    }

    /// Takes a session that the peer has begun, after a message of it was opened.
    ///
    /// - Returns: whether it speaks from now on; it does not where ``keepsCurrent(against:)``.
    @discardableResult public mutating func accept(_ session: consuming Session) -> Bool {
        if keepsCurrent(against: session.peerIdentity) {
            earlier.insert(session)
            return false
        }
        replace(by: session)
        return true
    }

    /// Drops the current session, and goes on in the one before it.
    ///
    /// - Returns: false where there is none; then nothing has changed.
    public mutating func abandon() -> Bool {
        guard earlier.count > 0 else { return false }
        current = earlier.remove(at: 0)
        heard = 0
        return true
    }

    /// The current session becomes an earlier one. Of another identity nothing is kept.
    private mutating func replace(by session: consuming Session) {
        var session = session
        swap(&current, &session)
        if session.peerIdentity == current.peerIdentity, session.ownIdentity == current.ownIdentity {
            earlier.insert(session)
        } else {
            earlier.removeAll()
        }
        heard = 0
    }

    private mutating func promote(_ index: Int) {
        var session = earlier.remove(at: index)
        swap(&current, &session)
        earlier.insert(session)
        heard = 0
    }

    // MARK: Messages

    /// Encrypts a message in the current session; see ``Session/encrypt(_:associatedData:random:)``.
    public mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource
    ) throws(RatchetError) -> PendingMessage {
        try current.encrypt(plaintext, associatedData: associatedData, random: &random)
    }

    /// The state as it is now, to be stored. ``serialize(into:)`` says what it looks like.
    public borrowing func uncommittedState() -> UncommittedState { UncommittedState(marks) { serialize(into: &$0) } }

    /// How far its sessions have come in this process.
    private var marks: [StateMark] {
        var marks = [current.mark]
        for index in 0..<earlier.count { marks.append(earlier[index].mark) }
        return marks
    }

    /// The mark of the session that speaks.
    var currentMark: StateMark { current.mark }

    /// For callers that keep the order of encrypting, storing and sending themselves.
    package mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource,
        into output: inout [UInt8]
    ) throws(RatchetError) {
        try current.encrypt(plaintext, associatedData: associatedData, random: &random, into: &output)
    }

    /// Opens a message in whichever session it belongs to; see ``Session/decrypt(_:associatedData:into:)-(_,_,[UInt8])``.
    ///
    /// A message costs as much as its own session asks for, and trying the header keys of those before it.
    ///
    /// - Throws: ``RatchetError/differentSession`` where it begins a session that is not here: ``PreKeyStore`` opens it, and
    ///   ``accept(_:)`` takes it. Else what the session throws that the message belongs to.
    public mutating func decrypt(
        _ message: Span<UInt8>, associatedData: Span<UInt8>, into output: inout [UInt8]
    ) throws(RatchetError) -> Session.Received {
        var failure: RatchetError
        do throws(RatchetError) {
            let received = try current.decrypt(message, associatedData: associatedData, into: &output)
            hear()
            return received
        } catch {
            failure = error
        }
        var index = 0
        while index < earlier.count, Self.isForeign(failure) {
            do throws(RatchetError) {
                let keys = earlier[index].skippedCount
                let received = try earlier[index].decrypt(message, associatedData: associatedData, into: &output)
                // Whoever said something late has not said it now.
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

    /// Whether a message may belong to another session. Everything else is thrown only where it has this one's name, or a
    /// header under this one's keys.
    private static func isForeign(_ failure: RatchetError) -> Bool {
        failure == .differentSession || failure == .authenticationFailed
    }

    private mutating func hear() {
        guard earlier.count > 0 else { return }
        heard += 1
        if heard >= Self.earlierLife {
            earlier.removeAll()
            heard = 0
        }
    }
}
