import Devices
import DoubleRatchet
import Envelope
import Foundation
import JSONGateway
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Testing

/// One request through the gateway, before a backend in memory.
@Suite struct ExchangeTests {
    let secret = "the canary sings"

    @Test func hostedIsReadByMembersAndNotByTheBackend() throws {
        let world = try JSONWorld(.hosted)
        world.send("GET", "/me", as: "t-bob")
        world.send("GET", "/c/pair", as: "t-bob")
        let sent = try #require(
            world.send(
                "POST", "/c/pair", as: "t-alice",
                #"{"id": "1", "text": "\#(secret)", "html":"<b>\#(secret)</b>", "n": 1.50}"#))
        #expect(sent.status == 201)
        #expect(sent["message_id"] == "m1")
        #expect(!world.backend.hasReceived(secret))
        let stored = try #require(world.backend.messages["pair"]?.first)
        #expect(stored.body.contains(#""encrypted":true"#))
        #expect(stored.body.contains(#""n": 1.50"#), "what is not about the message stays as it was")
        #expect(!stored.body.contains("html"))
        for _ in 0..<3 {
            let read = try #require(world.send("GET", "/c/pair", as: "t-bob"))
            #expect(read["messages[0].data.text"] == secret)
            #expect(read["messages[0].data.html"] == "<b>\(secret)</b>")
            #expect(read["messages[0].data.encrypted"] == nil)
        }
        #expect(world.environment.tally[.sentGateway] == 1)
        #expect(world.environment.tally[.openedGateway] == 3)
    }

    @Test func observeChangesNoByteAndCounts() throws {
        let world = try JSONWorld(.observe)
        let body = #"{ "id":"1","text" : "\#(secret)","text2":1}"#
        world.send("POST", "/c/pair", as: "t-alice", body)
        #expect(world.backend.messages["pair"]?.first?.body == body)
        let through = world.send("GET", "/c/pair", as: "t-bob")
        #expect(through?.text == world.direct("GET", "/c/pair", as: "t-bob").text)
        #expect(world.environment.tally[.sentPlaintext] == 1)
        let rows = world.environment.observations.take(wall: 0)
        #expect(rows.count == 1)
    }

    @Test func anOutsiderOfTwoIsRefusedAndNothingLeaves() throws {
        let world = try JSONWorld(.hosted)
        let sent = world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#)
        #expect(sent?.status == 403)
        #expect(sent?["error"] == "pawl_outsider")
        #expect(sent?["message"]?.hasPrefix("Not sent: bob is not") == true, "the person, not the conversation")
        #expect(!world.backend.hasReceived(secret))
        #expect(world.backend.messages.isEmpty)
    }

    @Test func membersAreRememberedForAWhileOnly() throws {
        let cache = MemberCache()
        cache.remember([.services("alice")], of: "pair", now: 5)
        #expect(cache.members(of: "pair", now: 4 + MemberCache.memory) == [.services("alice")])
        #expect(cache.members(of: "pair", now: 5 + MemberCache.memory) == nil)
        // Who has joined past the gateway is noticed by then.
        let world = try JSONWorld(.hosted)
        world.send("GET", "/me", as: "t-bob")
        #expect(world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"to bob"}"#)?.status == 201)
        world.backend.rooms["pair"] = ["alice", "eve"]
        world.now.monotonic += MemberCache.memory
        let sent = world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"\#(secret)"}"#)
        #expect(sent?.status == 403)
        #expect(!world.backend.hasReceived(secret))
    }

    @Test func aRoomGoesOnWithOutsidersInIt() throws {
        let world = try JSONWorld(.hosted)
        let sent = world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#)
        #expect(sent?.status == 201)
        #expect(!world.backend.hasReceived(secret))
        #expect(!world.direct("GET", "/c/all", as: "t-eve").text.contains(secret))
    }

    @Test(arguments: [
        #"{"id":"1","txt":"the canary sings"}"#, #"{"id":"1","text":"a","text":"the canary sings"}"#,
        "the canary sings",
        #"["the canary sings"]"#, #"{"text":{"x":"the canary sings"}}"#, #"{"text":"\ud800 the canary sings"}"#,
    ])
    func whatCannotBeReadIsRefused(body: String) throws {
        let world = try JSONWorld(.hosted)
        let sent = world.send("POST", "/c/all", as: "t-alice", body)
        #expect(sent?.status == 400)
        #expect(!world.backend.hasReceived(secret))
    }

    @Test func unlabelledAndFilesAreRefusedUnderHostedAndPassUnderObserve() throws {
        let hosted = try JSONWorld(.hosted)
        #expect(hosted.send("POST", "/other", as: "t-alice", #"{"text":"x"}"#)?.status == 403)
        #expect(hosted.send("POST", "/files", as: "t-alice", "x")?["error"] == "pawl_media")
        #expect(hosted.send("POST", "/c/%61ll/../all", as: "t-alice", #"{"text":"x"}"#)?.status == 403)
        let observe = try JSONWorld(.observe)
        #expect(observe.send("POST", "/other", as: "t-alice", #"{"text":"x"}"#)?.status == 404)
        #expect(observe.environment.tally[.unlabelled] == 1)
    }

    /// What browsers ask first has no credential and fits no route. Nothing else goes by under its name.
    @Test func aPreflightPassesAndCarriesNothing() throws {
        let world = try JSONWorld(.hosted)
        let asked = ("Access-Control-Request-Method", "POST")
        #expect(world.send("OPTIONS", "/c/all", "", fields: [asked])?.status == 401, "the backend's own answer")
        #expect(world.send("OPTIONS", "/c/all", "", fields: [("Content-Length", "0")])?["error"] == "who")
        for fields in [
            [("Content-Length", "27")], [("Transfer-Encoding", "chunked")], [("X_HTTP_METHOD_OVERRIDE", "POST")],
        ] {
            #expect(world.send("OPTIONS", "/c/all", as: "t-alice", secret, fields: fields)?["error"] == "pawl_no_route")
            #expect(world.send("OPTIONS", "/c/all", secret, fields: fields)?["error"] == "pawl_no_route")
        }
        #expect(!world.backend.hasReceived(secret))
        let observe = try JSONWorld(.observe)
        #expect(observe.send("OPTIONS", "/c/all", as: "t-alice", "x", fields: [("Content-Length", "1")])?.status == 404)
    }

    @Test func nobodyIsBelievedWhoHasNoCredential() throws {
        let world = try JSONWorld(.hosted)
        #expect(world.send("POST", "/c/all", #"{"text":"x"}"#)?.status == 401)
        #expect(world.send("POST", "/c/all", as: "t-mallory", #"{"text":"x"}"#)?.status == 401)
        #expect(world.backend.messages.isEmpty)
    }

    @Test func theSameRequestTwiceIsOneMessage() throws {
        let world = try JSONWorld(.hosted)
        world.backend.losesNextAnswer = true
        let body = #"{"id":"1","text":"\#(secret)"}"#
        #expect(world.send("POST", "/c/all", as: "t-alice", body) == nil, "it waits")
        world.flushQueue()
        let again = world.send("POST", "/c/all", as: "t-alice", body)
        #expect(again?["message_id"] == "m1")
        #expect(world.backend.messages["all"]?.count == 1)
    }

    @Test func plainTextIsMarkedThenWithheld() throws {
        let world = try JSONWorld(.hosted)
        _ = world.direct("POST", "/c/all", as: "t-eve", #"{"text":"from outside"}"#)
        let before = world.send("GET", "/c/all?since=1", as: "t-bob")
        #expect(before?["messages[0].data.text"] == "[not encrypted] from outside")
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#)
        _ = world.direct("POST", "/c/all", as: "t-eve", #"{"text":"forged"}"#)
        let live = world.send("GET", "/c/all?since=1", as: "t-bob")
        #expect(live?["messages[1].data.text"] == secret)
        #expect(live?.text.contains("forged") == false)
        let history = world.send("GET", "/c/all", as: "t-bob")
        #expect(history?["messages[2].data.text"] == "[not encrypted] forged")
    }

    @Test func anEnvelopeInAnotherPlaceOrUnderAnotherNameIsNotOpened() throws {
        let world = try JSONWorld(.hosted)
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#)
        let body = try #require(world.backend.messages["all"]?.first?.body)
        world.backend.messages["pair"] = [.init(id: "x1", sender: "alice", body: body)]
        world.backend.messages["all"]?.append(.init(id: "x2", sender: "eve", body: body))
        let moved = world.send("GET", "/c/pair", as: "t-bob")
        #expect(moved?.text.contains(secret) == false)
        let renamed = world.send("GET", "/c/all", as: "t-bob")
        #expect(renamed?["messages[0].data.text"] == secret)
        #expect(renamed?["messages[1].data.text"]?.hasPrefix("[An encrypted message was withheld") == true)
    }

    /// The digest covers the whole envelope: hosted readers do not use its wrapped keys, and still nobody may alter them.
    @Test func anEnvelopeWithAlteredWrappedKeysIsNotOpened() throws {
        let store = InMemoryStore()
        let world = try JSONWorld(.hosted, store: store)
        world.send("GET", "/me", as: "t-bob")
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#)
        let body = try #require(world.backend.messages["pair"]?.first?.body)
        var envelope = JSONWorld.Answer(status: 0, text: body).bytes("text")
        let first = Envelope.headerLength + 1 + MultiRecipientMessage.recipientOverhead
        envelope[first + 40] ^= 1
        let altered = #"{"id":"1","text":"\#(JSONWorld.base64(envelope))","encrypted":true}"#
        world.backend.messages["pair"] = [.init(id: "m1", sender: "alice", body: altered)]
        // Once with the key in memory, once with the key in the store.
        for reader in [world, try JSONWorld(.hosted, backend: world.backend, store: store)] {
            let list = try #require(reader.send("GET", "/c/pair", as: "t-bob"))
            #expect(list["messages[0].data.text"] == Notices.notOpened(.notAuthentic, from: "alice"))
            #expect(!list.text.contains(secret))
            #expect(reader.environment.tally[.openNotAuthentic] == 1)
        }
    }

    @Test func aLatchedConversationStaysSealedUnderALowerPolicy() throws {
        let world = try JSONWorld(.hosted)
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#)
        world.environment.policies.update { $0.everyone = .observe }
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"2","text":"\#(secret) again"}"#)
        #expect(!world.backend.hasReceived(secret))
        #expect(world.send("GET", "/c/all", as: "t-bob")?["messages[1].data.text"] == "\(secret) again")
    }

    @Test func requiredRefusesWhoCannotEncrypt() throws {
        let world = try JSONWorld(.required)
        world.send("GET", "/c/pair", as: "t-bob")
        #expect(world.send("POST", "/c/pair", as: "t-alice", #"{"text":"\#(secret)"}"#)?["error"] == "pawl_required")
        #expect(world.send("POST", "/c/all", as: "t-alice", #"{"text":"\#(secret)"}"#)?["error"] == "pawl_room")
        #expect(!world.backend.hasReceived(secret))
    }

    @Test func answeredAtOnceAndDeletedBeforeItIsSent() throws {
        let mapping = Mapping.lab(
            answer: .atOnce(status: 202, body: #"{"message_id":"{local_id}","id":"{client_id}"}"#))
        let world = try JSONWorld(.hosted, mapping: mapping)
        world.queueIsOpen = false
        let sent = try #require(world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#))
        #expect(sent.status == 202)
        #expect(sent["id"] == "1")
        let local = try #require(sent["message_id"])
        #expect(LocalMessageID.isOne(local))
        #expect(world.send("DELETE", "/c/all/\(local)", as: "t-alice") == nil, "it waits behind the message")
        #expect(world.waiting.count == 2)
        #expect(world.writes[world.waiting[1].token]?.references == [QueuedReference(.segment(2), local: local)])
        #expect(world.waiting[0].creates.map(\.local).contains(local))
        let again = world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#)
        #expect(again?["message_id"] == local)
    }

    /// Some backends answer with 200 and an error in the body. A deletion that can never be sent holds up nothing.
    @Test func aDeletionOfAMessageWithoutABackendIDIsGivenUp() throws {
        let mapping = Mapping.lab(answer: .atOnce(status: 202, body: #"{"message_id":"{local_id}"}"#))
        let world = try JSONWorld(.hosted, mapping: mapping)
        world.queueIsOpen = false
        let sent = try #require(world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"\#(secret)"}"#))
        let local = try #require(sent["message_id"])
        #expect(world.send("DELETE", "/c/all/\(local)", as: "t-alice") == nil, "it waits behind the message")
        let attempt = try #require(world.beginAttempt())
        let body = Array(#"{"success":false}"#.utf8)
        world.end(attempt, .success(status: 200, headers: [], body: body, identifiers: []))
        #expect(world.waiting.isEmpty)
        world.queueIsOpen = true
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"2","text":"\#(secret)"}"#)
        #expect(world.waiting.isEmpty && world.backend.messages["all"]?.count == 1)
    }
}
