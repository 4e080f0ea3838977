import JSONCodec
import JSONGateway
import NIOCore
import Testing

@testable import MappingFile

/// Frames that the backend answers.
@Suite struct AcknowledgementGrammarTests {
    private static let whole = """
        name: other
        account: {credential: header A, ask: GET /me, name: id}
        content: {text: text, also: [html], flag: encrypted}
        messages: {spoken: {conversation: to}}
        routes:
          GET /socket: passthrough
        frames:
          from client:
            type == "send":
              label: content spoken
              acknowledgement:
                reference: seq
                accepted: {status == "OK": reply, ok: reply}
                rejected: {status == "FAIL": reply}
                later: {status == "FAIL" && error == "rate": reply}
                message_id: data.id
            type == "like": {label: passthrough, kind: reactions}
          from backend:
            any other: passthrough
        """

    private static func document(_ text: String) throws -> JSONDocument {
        try JSONDocument(ByteBuffer(string: text))
    }

    @Test func everyKeyIsRead() throws {
        let mapping = try mapping(Self.whole)
        let found = try #require(mapping.frames[0].acknowledgement)
        #expect(found.reference.text == "seq" && found.messageID?.text == "data.id")
        #expect(found.accepted.count == 2 && found.rejected.count == 1 && found.postponed.count == 1)
        #expect(mapping.frames.dropFirst().allSatisfy { $0.acknowledgement == nil })
        let answers: [(String, Acknowledgement.Verdict?)] = [
            (#"{"status":"OK","reply":7}"#, .accepted), (#"{"ok":true,"reply":"7"}"#, .accepted),
            (#"{"status":"FAIL","reply":7}"#, .rejected), (#"{"ok":true,"status":"FAIL","reply":7}"#, .rejected),
            (#"{"status":"FAIL","reply":7,"error":"rate"}"#, .postponed),
            (#"{"status":"OK"}"#, nil), (#"{"status":"OK","reply":[7]}"#, nil), (#"{"reply":7}"#, nil),
        ]
        for (text, verdict) in answers {
            let answer = found.answer(in: try Self.document(text))
            #expect(answer?.verdict == verdict && answer.map { $0.references.contains("7") } ?? true, "\(text)")
        }
    }

    @Test(arguments: [
        ("reference: seq", "reference: text", "has the reference `text`, which is sealed"),
        ("reference: seq", "reference: html", "which is sealed with the text"),
        ("reference: seq", "reference: '*'", "can lead to several values"),
        ("reference: seq", "sequence: seq", "sequence"),
        ("{status == \"OK\": reply, ok: reply}", "{status = \"OK\": reply}", "acknowledgement.accepted"),
        ("accepted: {status == \"OK\": reply, ok: reply}", "accepted: reply", "expected lines below it"),
        ("rejected: {status == \"FAIL\": reply}", "rejected: {status == \"FAIL\": 'reply[*]'}", "several values"),
        ("later: {status", "later: {status ==", "acknowledgement.later"),
        ("message_id: data.id", "message_id: [id]", "acknowledgement.message_id"),
        ("label: content spoken", "label: control", "has an `acknowledgement`; expected it in a content"),
        ("{label: passthrough, kind: reactions}", "{label: passthrough}", "has no `kind` and no `acknowledgement`"),
        ("any other: passthrough", "any other: {label: passthrough, acknowledgement: {}}", "has an `acknowledgement`"),
    ]) func mistakesAreReported(_ old: String, _ new: String, _ words: String) {
        #expect(Self.whole.contains(old))
        let found = problems(Self.whole.replacing(old, with: new, maxReplacements: 1))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    @Test func aSealedReferenceIsNamedInKeep() {
        let text = Self.whole.replacing("also: [html]", with: "keep: [type, to]")
        #expect(problems(text).contains { $0.contains("name it in `keep`") }, "\(problems(text))")
        #expect(problems(text.replacing("[type, to]", with: "[type, to, seq]")).isEmpty)
    }

    @Test func theFramesAreExplained() throws {
        let mapping = try mapping(Self.whole)
        func trial(_ direction: FrameRoute.Direction, _ text: String) -> MappingTrial {
            MappingTrial.frame(mapping, direction, ByteBuffer(string: text))
        }
        let sent = trial(.fromClient, #"{"type":"send","to":"c","text":"hi"}"#)
        #expect(sent.isGood && sent.reasons.contains { $0.contains("has no reference") }, "\(sent)")
        let whole = trial(.fromClient, #"{"type":"send","seq":7,"to":"c","text":"hi"}"#)
        #expect(whole.isGood && whole.reasons.isEmpty, "\(whole)")
        let answer = trial(.fromBackend, #"{"status":"FAIL","reply":7}"#)
        #expect(answer.reasons == ["it rejects the message with the reference 7"])
    }

    @Test func theGenericChatAcknowledgesMessages() throws {
        let frame = try #require(try shipped("generic").frames.first)
        let acknowledgement = try #require(frame.acknowledgement)
        #expect(acknowledgement.reference(in: try Self.document(#"{"type":"send","id":"own-1"}"#)) == "own-1")
        let ack = try Self.document(#"{"type":"ack","id":"own-1","message_id":"m1"}"#)
        #expect(acknowledgement.answer(in: ack)?.verdict == .accepted)
    }
}
