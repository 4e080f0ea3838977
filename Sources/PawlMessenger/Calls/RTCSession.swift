// What the app's RTC code calls, and what it implements. Names and labels are those of the document.

import CallSignalling
public import Foundation

/// What RTC code sends. ``CypherMessenger`` implements it.
///
/// All calls throw ``CallError``, or ``CypherMessengerError/storage(_:)``. A return means that the message is stored; it
/// is sent as soon as the server can be reached, unless its lifetime ends before.
public protocol RTCTransportEvents: Sendable {
    /// Sends the offer in `call.metadata`: to the other person, or to the server of the group call.
    func sendOffer(call: Call) async throws
    /// Sends the answer in `call.metadata` to the device that has made the offer.
    func sendAnswer(call: Call, metadata: SDPNegotiationMetadata) async throws
    /// Sends a candidate. One from before the offer is kept and sent after it.
    func sendCandidate(_ candidate: IceCandidate, call: Call) async throws
    /// Sends bytes that mean nothing to the transport.
    ///
    /// - Parameters:
    ///   - recipient: the `secretName` of a person.
    ///   - connectionId: handed over with the ciphertext, byte for byte. At most 1,024 bytes.
    ///   - ciphertext: at most 65,536 bytes. More than 32,768 are sent in two messages.
    ///   - call: the call.
    func sendCiphertext(recipient: String, connectionId: String, ciphertext: Data, call: Call) async throws
    /// Ends the call for all. Nothing happens if it has ended before.
    ///
    /// - Parameters:
    ///   - call: the call.
    ///   - endState: as this person sees it.
    func didEnd(call: Call, endState: CallEndState) async throws
}

/// The app's RTC code, as the messenger calls it.
///
/// Calls of one call come one after the other and in their order; those of several calls at the same time. Errors end
/// nothing; they are counted in ``CallStatistics``.
public protocol RTCSession: AnyObject, Sendable {
    /// Takes an offer. The first one of a call makes the device ring.
    ///
    /// - Parameters:
    ///   - call: the call, with the caller as its sender.
    ///   - sdp: the offer.
    ///   - metadata: pass it on to ``RTCTransportEvents/sendAnswer(call:metadata:)``.
    func handleOffer(call: Call, sdp: SessionDescription, metadata: SDPNegotiationMetadata) async throws
    /// Takes the answer of the other person.
    func handleAnswer(call: Call, sdp: SessionDescription) async throws
    /// Takes a candidate of the other person. It never comes before the offer; it may come before the answer.
    func handleCandidate(call: Call, candidate: IceCandidate) async throws
    /// Takes a ciphertext of a call of two. It may come before the offer.
    ///
    /// - Parameters:
    ///   - participant: whose messenger has sent it, with the device.
    ///   - connectionId: byte for byte as it was sent.
    ///   - ciphertext: the bytes.
    ///   - call: the call.
    func handleCiphertext(
        from participant: Call.Participant, connectionId: String, ciphertext: Data, call: Call
    ) async throws
    /// Takes the end of a call that was not ended by this device. Called once a call, and nothing comes after it.
    func handleEnd(call: Call, endState: CallEndState) async
    /// The group call that a message belongs to; nil to drop the message.
    func groupCall(for call: Call) async -> (any RTCGroupCall)?
}

extension RTCSession {
    /// Nil: the app has no group calls.
    public func groupCall(for call: Call) async -> (any RTCGroupCall)? { nil }
}

/// The app's group call, as the messenger calls it.
public protocol RTCGroupCall: Sendable {
    /// Takes a message of the server, an invitation, or the notice that a participant has left.
    func handleControlMessage(_ message: RTCGroupCallControlMessage) async throws
    /// Takes a ciphertext of a participant, such as a sender key.
    ///
    /// - Parameters:
    ///   - fromParticipantId: the account whose messenger has sent it.
    ///   - connectionId: byte for byte as it was sent.
    ///   - ciphertext: the bytes.
    func handleCiphertextFromParticipant(
        fromParticipantId: String, connectionId: String, ciphertext: Data
    ) async throws
}

/// Why a message about a call was not sent.
public enum CallError: Error, Sendable, Hashable {
    /// The call has ended.
    case ended
    /// There are too many calls, participants or candidates.
    case limit
    /// There is no call to which it could belong, or another call has its id.
    case noCall
    /// An id is empty or too long, or `call.metadata` holds no ``SessionDescription``.
    case malformed
    /// The message has more than 60,000 bytes, or its ciphertext more than 65,536.
    case tooLong
    /// The recipient does not take part in the call, or is a server that must not receive it.
    case notParticipant
    /// The other person has no keys, or the device that answers is not listed.
    case keysMissing
    /// The call names a server, and ``CallOptions/sfu`` has none.
    case noServer
    /// The server's safety number is not the one in ``CallOptions/sfu``, or its keys have changed.
    case otherServer
    /// The messenger has no ``RTCSession``.
    case noSession
}

/// The server of group calls (SFU), which forwards media between participants.
public enum CallServer: Sendable {
    /// An account whose keys the app pins. Signalling to it is sealed as for a person.
    ///
    /// - Parameter safetyNumber: of this account and the server's: 60 digits, with or without white space. Nothing is
    ///   sent and nothing is taken while it is another one.
    case device(account: Username, safetyNumber: String)
    /// A server without keys, which the app allows by its name. **Signalling to it is not sealed**: it and all networks
    /// in between can read and replace descriptions. Ciphertexts and messages to people never go there.
    ///
    /// - Parameter send: sends an envelope in JSON to the server. Pass on what the server sends to
    ///   ``CypherMessenger/receivePlainSignal(_:fromServer:)``.
    case plain(name: String, send: @Sendable (String) async throws -> Void)
}

/// How a messenger takes part in calls.
public struct CallOptions: Sendable {
    /// The name that stands for the server in the recipients of a call. No account is reached under it.
    public var sfuName = "sfu"
    /// The server of group calls; nil for none.
    public var sfu: CallServer?
    /// Whether this messenger is that of a server of group calls: messages to ``sfuName`` are for it.
    public var isServer = false
    /// How long the parts of a call take.
    var times = CallTimes()

    /// Calls of two.
    public init() {}
}

/// What became of the messages about calls, for logs and tests.
public struct CallStatistics: Sendable, Hashable {
    /// Messages that were dropped, by reason. The reasons are listed in `MESSENGER.md`.
    public internal(set) var dropped: [String: Int] = [:]
    /// Calls of the session that have thrown.
    public internal(set) var sessionErrors = 0
    /// Messages that this device sends by itself, such as the notice to the person's other devices, and that could not be
    /// sent within the 60 seconds during which they matter.
    public internal(set) var unsent = 0
}
