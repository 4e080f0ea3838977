// The values of call signalling, with the names of the document. All of them are JSON inside the sealed messages.

public import Foundation

/// A call, as the app's RTC code describes it.
public struct Call: Hashable, Sendable, Codable, Identifiable {
    /// Somebody who takes part in a call.
    public struct Participant: Hashable, Sendable, Codable {
        /// The name of the account at the server, or the name of the group's server (``CallOptions/sfuName``).
        public var secretName: String
        /// The name that is shown to people.
        public var nickname: String
        /// The device; empty if any device of the account may answer.
        public var deviceId: String

        /// A participant.
        public init(secretName: String, nickname: String, deviceId: String = "") {
            (self.secretName, self.nickname, self.deviceId) = (secretName, nickname, deviceId)
        }
    }

    /// The id of this call, drawn by the caller.
    public var id: UUID
    /// The id of a message that belongs to the call; nil if there is none.
    public var sharedMessageId: String?
    /// The routing key: the same on all devices. At most 256 bytes, not empty.
    public var sharedCommunicationId: String
    /// The caller.
    public var sender: Participant
    /// The people who are called, at most 32; in a group call its server among them.
    public var recipients: [Participant]
    /// When the call was made.
    public var createdAt: Date
    /// Whether the call has video.
    public var supportsVideo: Bool
    /// The description to send, as ``SessionDescription`` in JSON; see ``sessionDescription``. Nil if there is none yet.
    public var metadata: Data?

    /// A call.
    public init(
        id: UUID = UUID(), sharedCommunicationId: String, sender: Participant, recipients: [Participant],
        createdAt: Date = Date(), supportsVideo: Bool = false, sharedMessageId: String? = nil, metadata: Data? = nil
    ) {
        (self.id, self.sharedMessageId, self.sharedCommunicationId) = (id, sharedMessageId, sharedCommunicationId)
        (self.sender, self.recipients, self.createdAt) = (sender, recipients, createdAt)
        (self.supportsVideo, self.metadata) = (supportsVideo, metadata)
    }

    /// The description in ``metadata``; nil if there is none, or if it is in another form.
    public var sessionDescription: SessionDescription? {
        get { metadata.flatMap { try? JSONDecoder().decode(SessionDescription.self, from: $0) } }
        set { metadata = newValue.flatMap { try? CallEnvelope.encoder().encode($0) } }
    }
}

/// A description of a media session (SDP, RFC 8866).
public struct SessionDescription: Hashable, Sendable, Codable {
    /// What the description is for.
    public enum Kind: String, Hashable, Sendable, Codable, CaseIterable {
        /// An offer.
        case offer
        /// A provisional answer.
        case pranswer
        /// An answer.
        case answer
        /// The end of an offer that was not answered.
        case rollback
    }

    /// The text.
    public var sdp: String
    /// What it is for.
    public var type: Kind

    /// A description.
    public init(sdp: String, type: Kind) { (self.sdp, self.type) = (sdp, type) }
}

/// A network address at which a peer may be reached (ICE, RFC 8445).
public struct IceCandidate: Hashable, Sendable, Codable, Identifiable {
    /// Its number in the sender's session.
    public var id: Int
    /// The candidate line; not empty.
    public var sdp: String
    /// The place of its media section.
    public var sdpMLineIndex: Int32
    /// The id of its media section; nil if it has none.
    public var sdpMid: String?

    /// A candidate.
    public init(id: Int, sdp: String, sdpMLineIndex: Int32, sdpMid: String?) {
        (self.id, self.sdp, self.sdpMLineIndex, self.sdpMid) = (id, sdp, sdpMLineIndex, sdpMid)
    }
}

/// Between which devices a description is negotiated.
public struct SDPNegotiationMetadata: Hashable, Sendable, Codable {
    /// The account that has made the offer.
    public var offerSecretName: String
    /// The device that has made the offer.
    public var offerDeviceId: String
    /// The device that answers.
    public var answerDeviceId: String

    /// The devices of a negotiation.
    public init(offerSecretName: String, offerDeviceId: String, answerDeviceId: String) {
        (self.offerSecretName, self.offerDeviceId) = (offerSecretName, offerDeviceId)
        self.answerDeviceId = answerDeviceId
    }
}

/// How a call has ended, as one side sees it.
public enum CallEndState: String, Hashable, Sendable, Codable, CaseIterable {
    /// This person has hung up.
    case userInitiated
    /// The other person has hung up.
    case partnerInitiated
    /// This person has called, and the other one has not answered.
    case userInitiatedUnanswered
    /// The other person has called, and this one has not answered.
    case partnerInitiatedUnanswered
    /// The person who was called has rejected the call.
    case partnerInitiatedRejected
    /// The connection failed.
    case failed
    /// Another device of the person who was called has answered or rejected.
    case auxiliaryDeviceAnswered

    /// Reads a name, and the misspelled one that earlier apps write: `auxialaryDevcieAnswered`.
    public init?(name: String) {
        guard let state = name == "auxialaryDevcieAnswered" ? .auxiliaryDeviceAnswered : Self(rawValue: name) else {
            return nil
        }
        self = state
    }

    /// The same end as the other side sees it.
    public var seenByPartner: CallEndState {
        switch self {
        case .userInitiated: .partnerInitiated
        case .partnerInitiated: .userInitiated
        case .userInitiatedUnanswered: .partnerInitiatedUnanswered
        case .partnerInitiatedUnanswered: .userInitiatedUnanswered
        case .partnerInitiatedRejected, .failed, .auxiliaryDeviceAnswered: self
        }
    }
}

/// What is sent about a group call as a whole.
public enum GroupControl: Hashable, Sendable, Codable {
    /// A participant invites this person. Sent by participants only.
    case invitation
    /// All participants of the call. Sent by its server only.
    ///
    /// - Parameter version: rises with each change. An older or empty list is dropped.
    case participants([Call.Participant], version: Int)
    /// The number by which the media of a participant is told apart; nil if it has none. Sent by the server only.
    case participantDemuxId(participantId: String, demuxId: UInt32?)
}

/// A message for a group call.
public enum RTCGroupCallControlMessage: Hashable, Sendable {
    /// The server's answer to the offer of this device.
    case sfuAnswer(SessionDescription)
    /// A candidate of the server.
    case sfuCandidate(IceCandidate)
    /// About the call as a whole.
    case groupControl(GroupControl)
    /// A participant has left the call, or rejected the invitation.
    case participantLeft(participantId: String)
}
