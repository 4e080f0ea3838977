// The envelope of call signalling: JSON in the text of a sealed signal. It has the members that the document suggests, and
// those that it lacks: version, id of the call, stream and number.
//
//     {"v": 1, "callId": ROUTE, "call": UUID, "from": NAME, "to": NAME, "stream": MILLISECONDS, "seq": NUMBER,
//      "type": "sdpOffer|sdpAnswer|iceCandidate|ciphertext|groupControl|answered|end", "payload": {...}}

import CallSignalling
import Foundation
import Messenger

/// One message about a call, between two devices.
struct CallEnvelope: Hashable, Codable {
    enum Kind: String, Codable, CaseIterable {
        case sdpOffer, sdpAnswer, iceCandidate, ciphertext, groupControl
        /// To the person's other devices.
        case answered
        case end
    }

    /// What the message says; which members there are depends on the kind.
    struct Payload: Hashable, Codable, Sendable {
        /// Without its metadata: the description is beside it.
        var call: Call?
        var sdp: SessionDescription?
        var candidate: IceCandidate?
        var connectionId: String?
        /// In Base64.
        var ciphertext: Data?
        /// Which part of a ciphertext this is; nil for a whole one.
        var part: Part?
        var control: GroupControl?
        /// As the sender sees it.
        var endState: String?
        /// In messages to the person's other devices: who has called.
        var caller: String?
    }

    /// A part of a ciphertext that is too long for one message. The parts follow one another in the stream.
    struct Part: Hashable, Codable, Sendable {
        /// From 0.
        var number: Int
        var count: Int
    }

    /// Why a text is no envelope.
    enum Failure: String, Error { case malformed, unknownVersion }

    static let version = 1
    /// Ours: bytes of a payload. With the other members it fits the text of a signal.
    static let payloadLimit = ChatContent.textLimit - 2_000
    /// Ours: bytes of a ciphertext. A key exchange with ML-KEM-1024 has 1,568, a sender key less than 4,000.
    static let ciphertextLimit = 65_536
    /// Ours: bytes of a part of a ciphertext. In Base64, with a call of 32 people, it fits the text of a signal.
    static let partLimit = 32_768
    /// Ours: bytes of the id of a connection. A UUID has 36.
    static let connectionLimit = 1024

    var v = Self.version
    var callId: String
    var call: UUID
    var from: String
    var to: String
    var type: Kind
    var stream: Int64
    var seq: Int
    var payload: Payload

    // MARK: Text

    /// The text. Members are sorted, so equal envelopes have equal texts.
    func text() throws -> String { String(decoding: try Self.encoder().encode(self), as: UTF8.self) }

    static func encoder() -> JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .millisecondsSince1970
        return encoder
    }

    private struct Version: Decodable { var v: Int }

    /// Reads a text. Members that are not known are ignored, so none of them is passed on.
    init(text: String) throws(Failure) {
        guard text.utf8.count <= ChatContent.textLimit else { throw .malformed }
        let (decoder, data) = (JSONDecoder(), Data(text.utf8))
        decoder.dateDecodingStrategy = .millisecondsSince1970
        guard let version = try? decoder.decode(Version.self, from: data) else { throw .malformed }
        guard version.v == Self.version else { throw .unknownVersion }
        guard let envelope = try? decoder.decode(CallEnvelope.self, from: data), envelope.isWellFormed else {
            throw .malformed
        }
        self = envelope
    }

    init(callId: String, call: UUID, from: String, to: String, _ type: Kind, _ place: (Int64, Int), _ payload: Payload)
    {
        (self.callId, self.call, self.from, self.to, self.type) = (callId, call, from, to, type)
        (stream, seq, self.payload) = (place.0, place.1, payload)
    }

    var route: CallRoute? { CallRoute(callId) }

    /// Whether all members that the kind needs are there and inside their limits.
    private var isWellFormed: Bool {
        guard let route, (0..<CallLimits.numbers).contains(seq), !from.isEmpty, !to.isEmpty else { return false }
        if let call = payload.call {
            let isOther = call.id != self.call || CallRoute(call.sharedCommunicationId) != route
            guard !isOther, Self.isWellFormed(call) else { return false }
        }
        switch type {
        case .sdpOffer, .sdpAnswer: return payload.call != nil && payload.sdp != nil
        case .iceCandidate: return payload.candidate.map(Self.isWellFormed) ?? false
        case .ciphertext:
            guard let id = payload.connectionId, let bytes = payload.ciphertext else { return false }
            return payload.call != nil && id.utf8.count <= Self.connectionLimit
                && Self.isWellFormed(payload.part, bytes.count)
        case .groupControl:
            switch payload.control {
            case .participants(let list, _): return list.count <= CallLimits.participants
            case .invitation: return payload.call != nil
            case .participantDemuxId: return true
            case nil: return false
            }
        case .answered: return payload.caller != nil
        case .end: return payload.endState != nil
        }
    }

    static func isWellFormed(_ call: Call) -> Bool {
        CallRoute(call.sharedCommunicationId) != nil && !call.sender.secretName.isEmpty
            && (1...CallLimits.participants).contains(call.recipients.count)
            && call.recipients.allSatisfy { !$0.secretName.isEmpty }
    }

    /// All parts but the last one are as long as possible, so a ciphertext has one division into parts.
    private static func isWellFormed(_ part: Part?, _ bytes: Int) -> Bool {
        guard let part else { return bytes <= partLimit }
        guard part.count >= 2, part.count <= ciphertextLimit / partLimit, (0..<part.count).contains(part.number) else {
            return false
        }
        return part.number + 1 < part.count ? bytes == partLimit : (1...partLimit).contains(bytes)
    }

    /// A ciphertext as the payloads of its messages.
    static func parts(of ciphertext: Data, _ connectionId: String, _ call: Call) -> [Payload] {
        guard ciphertext.count > partLimit else {
            return [Payload(call: call, connectionId: connectionId, ciphertext: ciphertext)]
        }
        let count = (ciphertext.count + partLimit - 1) / partLimit
        return (0..<count).map { number in
            Payload(
                call: call, connectionId: connectionId,
                ciphertext: Data(ciphertext.dropFirst(number * partLimit).prefix(partLimit)),
                part: Part(number: number, count: count))
        }
    }

    static func isWellFormed(_ candidate: IceCandidate) -> Bool {
        candidate.id >= 0 && !candidate.sdp.isEmpty && candidate.sdpMLineIndex >= 0
    }

    // MARK: The machine's messages

    typealias Content = CallMessage<Payload>.Content

    /// How long the message is of use, in seconds.
    func lifetime(_ times: CallTimes) -> Int64 { type == .end || type == .answered ? times.end : times.message }

    var content: Content {
        switch type {
        case .sdpOffer: .offer(payload)
        case .sdpAnswer: .answer(payload, isFinal: payload.sdp?.type != .pranswer)
        case .iceCandidate: .candidate(payload)
        case .ciphertext: .ciphertext(payload)
        case .groupControl: .control(payload, invites: payload.control == .invitation)
        case .answered: .answered(caller: payload.caller ?? "")
        case .end: .end(state: payload.endState ?? "", caller: payload.caller)
        }
    }

    static func parts(of content: Content) -> (Kind, Payload) {
        switch content {
        case .offer(let payload): (.sdpOffer, payload)
        case .answer(let payload, _): (.sdpAnswer, payload)
        case .candidate(let payload): (.iceCandidate, payload)
        case .ciphertext(let payload): (.ciphertext, payload)
        case .control(let payload, _): (.groupControl, payload)
        case .answered(let caller): (.answered, Payload(caller: caller))
        case .end(let state, let caller): (.end, Payload(endState: state, caller: caller))
        }
    }
}
