import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import Testing

/// Refusals in the forms that a mapping gives to single codes.
@Suite struct RefusalFormTests {
    private static func mapping() -> Mapping {
        var mapping = Mapping.lab
        mapping.refusal.headers = ["X-Refused-By": "pawl"]
        mapping.refusal.codes = [
            "pawl_no_route": .init(status: 404, body: #"{"errcode":"UNRECOGNIZED","why":"{reason}"}"#),
            "pawl_not_logged_in": .init(body: #"{"errcode":"MISSING_TOKEN","why":"{reason}"}"#),
            "pawl_login_rejected": .init(body: #"{"errcode":"UNKNOWN_TOKEN","why":"{reason}"}"#),
            "pawl_media": .init(status: 429),
            "PAWL_BAD_REQUEST": .init(status: 418, body: #"{"errcode":"BAD","why":"{reason}"}"#),
        ]
        return mapping
    }

    @Test func aCodeHasItsOwnForm() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping())
        world.send("GET", "/me", as: "t-alice")
        let unknown = world.send("PUT", "/unknown", as: "t-alice", "{}")
        #expect(unknown?.status == 404 && unknown?["errcode"] == "UNRECOGNIZED")
        #expect(unknown?.headers["X-Refused-By"] == ["pawl"])
        let nobody = world.send("POST", "/c/all", #"{"text":"x"}"#)
        #expect(nobody?.status == 401 && nobody?["errcode"] == "MISSING_TOKEN")
        // The second time the backend's own answer is not there any more.
        for _ in 0..<2 { world.send("GET", "/me", as: "wrong") }
        let wrong = world.send("POST", "/c/all", as: "wrong", #"{"text":"x"}"#)
        #expect(wrong?.status == 401 && wrong?["errcode"] == "UNKNOWN_TOKEN", "\(wrong?.text ?? "")")
        let file = world.send("POST", "/files", as: "t-alice", "x")
        #expect(file?.status == 429 && file?["error"] == "pawl_media" && file?.headers["Retry-After"] == ["5"])
        let (head, body) = GatewayFault.message(.malformed).answer(Self.mapping(), to: nil)
        #expect(head.status == 418 && String(buffer: body).hasPrefix(#"{"errcode":"BAD""#))
        #expect(head.headers["X-Refused-By"] == ["pawl"])
    }

    /// Some backends have the status in their bodies as well, and some have no other place for an error.
    @Test func theStatusStandsInTheBody() throws {
        var mapping = Mapping.lab
        mapping.refusal.body = #"{"code":"{code}","status":{status},"why":"{reason}"}"#
        mapping.refusal.frame = #"{"id":"{local_id}","status":{status},"why":"{reason}"}"#
        mapping.refusal.codes = ["pawl_no_route": .init(status: 404), "pawl_media": .init(status: 200)]
        let world = try JSONWorld(.hosted, mapping: mapping)
        world.send("GET", "/me", as: "t-alice")
        for (answer, status) in [
            (world.send("PUT", "/unknown", as: "t-alice", "{}"), 404),
            (world.send("POST", "/files", as: "t-alice", "x"), 200),
            (world.send("POST", "/c/all", #"{"text":"x"}"#), 401),
        ] {
            let text = answer?.text ?? ""
            #expect(answer?.status == status && text.contains(#""status":\#(status),"#), "\(text)")
        }
        let (head, body) = GatewayFault.upstreamTimeout.answer(mapping, to: nil)
        #expect(head.status == 504 && String(buffer: body).contains(#""status":504,"#))
        for (no, status) in [(ExchangeRefusal.noRoute, 404), (.notLoggedIn, 401), (.refused(.outsider), 403)] {
            let frame = mapping.refusal.frame(no, words: "no", localID: "7")
            #expect(frame == #"{"id":"7","status":\#(status),"why":"no"}"#)
        }
    }

    /// A client that is told that it has no login forgets what it has.
    @Test func aBackendThatDoesNotAnswerIsNoRejectedLogin() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping())
        world.backend.isUp = false
        let sent = world.send("POST", "/c/all", as: "t-alice", #"{"text":"x"}"#)
        #expect(sent?.status == 502 && sent?["error"] == "pawl_backend_gone")
    }

    /// Whoever may not write learns who would need what, by names of people.
    @Test func aRefusalNamesPeople() throws {
        let world = try JSONWorld(.required)
        world.environment.replace(world.environment.mapping, texts: .http, answerLimit: 1 << 20)
        for name in ["alice", "bob", "carol"] { world.send("GET", "/me", as: "t-\(name)") }
        let room = world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"x"}"#)?["message"] ?? ""
        #expect(room.contains("no app that can: you, bob, carol, eve."), "\(room)")
        let pair = world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"x"}"#)?["message"] ?? ""
        #expect(pair.contains("your app or that of bob"), "\(pair)")
        for words in [room, pair] { #expect(!words.contains("sidecar") && !words.contains("{")) }
        for refusal in [Refusal.latched, .unsealed, .room] {
            let words = Notices.refusal(refusal, target: Notices.thisConversation, texts: .http)
            #expect(
                !words.contains("that of this conversation") && !words.contains("with this conversation"), "\(words)")
        }
    }

    @Test func everyCodeIsThereOnce() {
        #expect(Set(RefusalForm.allCodes).count == RefusalForm.allCodes.count)
        #expect(RefusalForm.allCodes.allSatisfy { $0.lowercased().hasPrefix("pawl_") })
    }
}
