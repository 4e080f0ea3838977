import CallSignalling
import Foundation
import TestKit
import Testing

@testable import PawlMessenger

/// The envelope of call signalling: all kinds, and what is no envelope.
@Suite struct CallEnvelopeTests {
    static let call: Call = {
        let alice = Call.Participant(secretName: "alice", nickname: "Alice \u{1F431}", deviceId: "1")
        return Call(
            id: UUID(uuid: (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)), sharedCommunicationId: "#room 7",
            sender: alice, recipients: [.init(secretName: "bob", nickname: "Bob")],
            createdAt: Date(timeIntervalSince1970: 1_700_000_000), supportsVideo: true, sharedMessageId: "m")
    }()

    static var kinds: [String] { CallEnvelope.Kind.allCases.map(\.rawValue) }

    static func envelope(_ kind: CallEnvelope.Kind) -> CallEnvelope {
        var payload = CallEnvelope.Payload()
        switch kind {
        case .sdpOffer: (payload.call, payload.sdp) = (call, SessionDescription(sdp: "v=0\r\n", type: .offer))
        case .sdpAnswer: (payload.call, payload.sdp) = (call, SessionDescription(sdp: "v=0\r\n", type: .answer))
        case .iceCandidate:
            payload.candidate = IceCandidate(id: 3, sdp: "candidate:1 1 UDP", sdpMLineIndex: 0, sdpMid: nil)
        case .ciphertext:
            (payload.call, payload.connectionId, payload.ciphertext) = (call, "c/1", Data([0, 255, 16]))
        case .groupControl: payload.control = .participants([call.sender], version: 2)
        case .answered: payload.caller = "alice"
        case .end: payload.endState = "userInitiated"
        }
        return CallEnvelope(
            callId: call.sharedCommunicationId, call: call.id, from: "alice", to: "bob", kind, (17, 4), payload)
    }

    /// The bytes of each kind, typed in once: other versions of this library read them.
    @Test func formsAreWhatTheyWere() throws {
        let call =
            #"{"createdAt":1700000000000,"id":"00010203-0405-0607-0809-0A0B0C0D0E0F","recipients":[{"deviceId":"","nickname":"Bob","secretName":"bob"}],"#
            + #""sender":{"deviceId":"1","nickname":"Alice 🐱","secretName":"alice"},"sharedCommunicationId":"#
            + ##""#room 7","sharedMessageId":"m","supportsVideo":true}"##
        let payloads: [CallEnvelope.Kind: String] = [
            .sdpOffer: #"{"call":\#(call),"sdp":{"sdp":"v=0\r\n","type":"offer"}}"#,
            .sdpAnswer: #"{"call":\#(call),"sdp":{"sdp":"v=0\r\n","type":"answer"}}"#,
            .iceCandidate: #"{"candidate":{"id":3,"sdp":"candidate:1 1 UDP","sdpMLineIndex":0}}"#,
            .ciphertext: #"{"call":\#(call),"ciphertext":"AP8Q","connectionId":"c/1"}"#,
            .groupControl:
                #"{"control":{"participants":{"_0":[{"deviceId":"1","nickname":"Alice 🐱","secretName":"alice"}],"version":2}}}"#,
            .answered: #"{"caller":"alice"}"#, .end: #"{"endState":"userInitiated"}"#,
        ]
        var part = Self.envelope(.ciphertext)
        part.payload.part = .init(number: 1, count: 2)
        let place = #""connectionId":"c/1","part":{"count":2,"number":1}},"#
        #expect(try part.text().contains(place) && CallEnvelope(text: part.text()) == part)
        for kind in CallEnvelope.Kind.allCases {
            let expected =
                ##"{"call":"00010203-0405-0607-0809-0A0B0C0D0E0F","callId":"#room 7","from":"alice","payload":"##
                + (payloads[kind] ?? "") + #","seq":4,"stream":17,"to":"bob","type":"\#(kind.rawValue)","v":1}"#
            #expect(try Self.envelope(kind).text() == expected)
            #expect(try CallEnvelope(text: expected) == Self.envelope(kind))
        }
    }

    @Test(arguments: CallEnvelope.Kind.allCases)
    func everyFormIsReadBackAndNoPartOfIt(_ kind: CallEnvelope.Kind) throws {
        let text = try Self.envelope(kind).text()
        #expect(try CallEnvelope(text: text) == Self.envelope(kind))
        let bytes = Array(text.utf8)
        for length in 0..<bytes.count {
            let part = String(decoding: bytes[..<length], as: UTF8.self)
            #expect(throws: CallEnvelope.Failure.malformed) { try CallEnvelope(text: part) }
        }
        #expect(throws: CallEnvelope.Failure.malformed) { try CallEnvelope(text: text + "}") }
        #expect(throws: CallEnvelope.Failure.malformed) { try CallEnvelope(text: "\u{FEFF}{" + text) }
    }

    /// Each byte is changed: the text is refused, or read as the other values that it holds.
    @Test(arguments: CallEnvelope.Kind.allCases)
    func changedBytesAreRefusedOrOtherValues(_ kind: CallEnvelope.Kind) throws {
        var random = SeededGenerator(seed: 5)
        let text = try Self.envelope(kind).text()
        for number in 0..<text.utf8.count {
            var bytes = Array(text.utf8)
            bytes[number] = UInt8(truncatingIfNeeded: random.next())
            let changed = String(decoding: bytes, as: UTF8.self)
            guard changed != text, let envelope = try? CallEnvelope(text: changed) else { continue }
            #expect(try CallEnvelope(text: try envelope.text()) == envelope)
        }
    }

    @Test func randomTextsAreRefused() {
        var random = SeededGenerator(seed: 9)
        for _ in 0..<3000 {
            let bytes = random.bytes(random.below(300))
            #expect(throws: CallEnvelope.Failure.self) {
                try CallEnvelope(text: String(decoding: bytes, as: UTF8.self))
            }
        }
        for text in [
            String(repeating: "[", count: 50_000), String(repeating: "{\"v\":", count: 10_000), "{\"v\":1e400}",
            "{\"v\":1,\"v\":1}", "{\"v\":\"1\"}", String(repeating: " ", count: 60_001) + "{\"v\":1}",
        ] { #expect(throws: CallEnvelope.Failure.self) { try CallEnvelope(text: text) } }
    }

    @Test func anUnknownVersionOrKindHasItsOwnError() throws {
        let text = try Self.envelope(.sdpOffer).text()
        let version = text.replacing("\"v\":1", with: "\"v\":2")
        #expect(throws: CallEnvelope.Failure.unknownVersion) { try CallEnvelope(text: version) }
        let kind = text.replacing("sdpOffer", with: "frameKey")
        #expect(throws: CallEnvelope.Failure.malformed) { try CallEnvelope(text: kind) }
    }

    @Test func missingAndExcessiveMembersAreRefused() throws {
        func isRefused(_ kind: CallEnvelope.Kind, _ change: (inout CallEnvelope) -> Void) throws -> Bool {
            var envelope = Self.envelope(kind)
            change(&envelope)
            return (try? CallEnvelope(text: try envelope.text())) == nil
        }
        for kind in CallEnvelope.Kind.allCases {
            #expect(try isRefused(kind) { $0.payload = .init() })
            #expect(try isRefused(kind) { $0.callId = "" })
            #expect(try isRefused(kind) { $0.callId = String(repeating: "c", count: 257) })
            #expect(try isRefused(kind) { $0.from = "" })
            #expect(try isRefused(kind) { $0.seq = -1 })
            #expect(try isRefused(kind) { $0.seq = .max })
        }
        for kind in [CallEnvelope.Kind.sdpOffer, .sdpAnswer, .ciphertext] {
            #expect(try isRefused(kind) { $0.call = UUID() })
            #expect(try isRefused(kind) { $0.callId = "another room" })
            #expect(try isRefused(kind) { $0.payload.call?.recipients = [] })
            #expect(
                try isRefused(kind) {
                    $0.payload.call?.recipients = Array(repeating: .init(secretName: "b", nickname: ""), count: 33)
                })
            #expect(try isRefused(kind) { $0.payload.call?.sender.secretName = "" })
        }
        #expect(try isRefused(.ciphertext) { $0.payload.ciphertext = Data(count: 32_769) })
        for (number, count, bytes) in [
            (0, 2, 32_767), (1, 2, 0), (1, 2, 32_769), (2, 2, 1), (-1, 2, 1), (0, 1, 1), (0, 0, 1), (0, 3, 32_768),
            (Int.max, Int.max, 1), (Int.min, 2, 1),
        ] {
            #expect(
                try isRefused(.ciphertext) {
                    $0.payload.ciphertext = Data(count: bytes)
                    $0.payload.part = .init(number: number, count: count)
                }, "part \(number) of \(count) with \(bytes) bytes")
        }
        #expect(try isRefused(.ciphertext) { $0.payload.connectionId = String(repeating: "c", count: 1025) })
        #expect(try isRefused(.iceCandidate) { $0.payload.candidate?.sdp = "" })
        #expect(try isRefused(.iceCandidate) { $0.payload.candidate?.id = -1 })
        #expect(try isRefused(.iceCandidate) { $0.payload.candidate?.sdpMLineIndex = -1 })
        #expect(try isRefused(.groupControl) { $0.payload.control = .invitation })
        #expect(
            try isRefused(.groupControl) {
                $0.payload.control = .participants(Array(repeating: Self.call.sender, count: 33), version: 1)
            })
    }

    /// Each ciphertext has one division into parts, and the longest part fits a signal with the longest call.
    @Test func ciphertextsAreDividedInOneWay() throws {
        var call = Self.call
        call.recipients = (0..<32).map { .init(secretName: "person number \($0)", nickname: "Person \($0)") }
        let id = String(repeating: "c", count: CallEnvelope.connectionLimit)
        for count in [0, 1, 32_767, 32_768, 32_769, 65_535, 65_536] {
            let bytes = Data((0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) })
            let parts = CallEnvelope.parts(of: bytes, id, call)
            #expect(parts.count == (count > 32_768 ? 2 : 1))
            #expect(parts.reduce(Data()) { $0 + ($1.ciphertext ?? Data()) } == bytes)
            for payload in parts {
                var envelope = Self.envelope(.ciphertext)
                envelope.payload = payload
                #expect(try CallEnvelope(text: envelope.text()) == envelope)
                #expect(try CallEnvelope.encoder().encode(payload).count <= CallEnvelope.payloadLimit)
            }
        }
    }

    /// Earlier SDKs encoded a password and private ratchet state with each call.
    @Test func membersThatAreNotKnownAreNotPassedOn() throws {
        let text = try Self.envelope(.sdpOffer).text().replacing(
            "\"createdAt\"", with: #""conferencePassword":"canary","identityProps":{"h":"canary"},"createdAt""#)
        let envelope = try CallEnvelope(text: text)
        #expect(envelope == Self.envelope(.sdpOffer))
        #expect(try !envelope.text().contains("canary"))
    }

    @Test func provisionalAnswersAreToldFromFinalOnes() {
        for kind in SessionDescription.Kind.allCases {
            var envelope = Self.envelope(.sdpAnswer)
            envelope.payload.sdp?.type = kind
            guard case .answer(_, let isFinal) = envelope.content else {
                Issue.record("no answer")
                continue
            }
            #expect(isFinal == (kind != .pranswer))
        }
    }

    @Test func endStatesAreReadInBothSpellings() {
        #expect(CallEndState.allCases.count == 7)
        for state in CallEndState.allCases {
            #expect(CallEndState(name: state.rawValue) == state)
            #expect(state.seenByPartner.seenByPartner == state)
        }
        #expect(CallEndState(name: "auxialaryDevcieAnswered") == .auxiliaryDeviceAnswered)
        #expect(CallEndState(name: "AuxiliaryDeviceAnswered") == nil && CallEndState(name: "") == nil)
    }
}
