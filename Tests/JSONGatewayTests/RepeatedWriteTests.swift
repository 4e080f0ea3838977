import Foundation
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Testing

/// What is the same write said again, what is another one, and what goes behind what waits.
@Suite struct RepeatedWriteTests {
    private func text(_ id: String, _ text: String) -> String { #"{"id":"\#(id)","text":"\#(text)"}"# }

    @Test func anotherTextUnderTheSameIDIsAnotherMessage() throws {
        let world = try JSONWorld(.hosted)
        world.backend.knowsIDs = false
        world.send("GET", "/me", as: "t-bob")
        for words in ["first", "second", "first"] {
            #expect(world.send("POST", "/c/all", as: "t-alice", text("1", words))?.status == 201)
        }
        #expect(world.send("POST", "/c/pair", as: "t-alice", text("1", "first"))?.status == 201)
        #expect(world.backend.messages["all"]?.count == 2)
        #expect(world.backend.messages["pair"]?.count == 1)
        let read = world.send("GET", "/c/all", as: "t-alice")
        #expect(read?["messages[0].data.text"] == "first")
        #expect(read?["messages[1].data.text"] == "second")
    }

    @Test func keysRevealNothing() throws {
        let one = WriteKeys(secret: [UInt8](repeating: 1, count: 32))
        let two = WriteKeys(secret: [UInt8](repeating: 2, count: 32))
        let places = [AccountSource.Credential.header("Authorization")]
        let credentials = try ["Bearer a", "Bearer b"].map {
            try #require(Credential(of: RequestHead("GET", "/", headers: ["Authorization": $0]), at: places))
        }
        #expect(one.mark(of: credentials[0]) == one.mark(of: credentials[0]))
        #expect(Set([one, two].flatMap { keys in credentials.map { keys.mark(of: $0) } }).count == 4)
        #expect(one.mark(of: credentials[0]).count == 32)
    }

    @Test func anOwnIDCountsOnlyWhileItsMessageWaits() throws {
        let world = try JSONWorld(.hosted)
        #expect(world.send("POST", "/c/all", as: "t-alice", text("m7", "x"))?.status == 201)
        // The backend may call another message m7: from now on that is meant.
        world.send("DELETE", "/c/all/m7", as: "t-alice")
        #expect(world.backend.received.contains { $0.hasPrefix("DELETE /c/all/m7") })
        world.queueIsOpen = false
        world.send("POST", "/c/all", as: "t-alice", text("m8", "y"))
        world.send("DELETE", "/c/all/m8", as: "t-alice")
        #expect(!world.backend.received.contains { $0.hasPrefix("DELETE /c/all/m8") })
        #expect(world.waiting.count == 2)
    }

    @Test func aControlRequestGoesBehindWhatWaits() throws {
        let world = try JSONWorld(.hosted)
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1", "x"))?.status == 201)
        world.queueIsOpen = false
        world.send("POST", "/c/all", as: "t-alice", text("2", "y"))
        let count = world.backend.received.count
        #expect(world.send("DELETE", "/c/all/m1", as: "t-alice") == nil, "it waits")
        #expect(world.backend.received.count == count)
        // Neither another conversation nor somebody else waits for it.
        #expect(world.send("DELETE", "/c/pair/m9", as: "t-alice") != nil)
        #expect(world.send("DELETE", "/c/all/m1", as: "t-bob") != nil)
        #expect(world.writes[world.waiting[1].token]?.head.target == "/c/all/m1")
    }

    @Test func whatWillNeverBeDoneIsNotAcknowledgedAgain() throws {
        let mapping = Mapping.lab(answer: .atOnce(status: 202, body: #"{"message_id":"{local_id}"}"#))
        let world = try JSONWorld(.hosted, mapping: mapping)
        world.queueIsOpen = false
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1", "x"))?.status == 202)
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1", "x"))?.status == 202)
        world.drop(try #require(world.waiting.first).token)
        let again = try #require(world.send("POST", "/c/all", as: "t-alice", text("1", "x")))
        #expect(again.status != 202)
        #expect(again["message_id"] == nil)
    }

    @Test func fieldsAreKeptAndCredentialsAreNot() throws {
        let world = try JSONWorld(.hosted)
        world.queueIsOpen = false
        world.send(
            "POST", "/c/all", as: "t-alice", text("1", "x"),
            fields: [
                ("X-Tenant", "blue"), ("If-Match", "\"7\""), ("Cookie", "a=b"), ("Accept-Encoding", "gzip"),
                ("X-Odd", "\u{F7FF}"), ("X-CSRFToken", "c"), ("Expect", "100-continue"),
            ])
        let write = try #require(world.writes.values.first)
        let names = Set(write.head.headers.fields.map { $0.name.lowercased() })
        #expect(names == ["x-tenant", "if-match", "x-csrftoken", "host", "user-agent", "content-type"])
        #expect(write.cookies == ["a=b"])
        #expect(write.credential.fields["Authorization"] == ["Bearer t-alice"])
    }

    // MARK: Without asking the queue

    /// A new write is one job, and what its client waits for is the only event that comes back.
    @Test func aNewWriteIsOneJobAndNoReply() throws {
        let world = try JSONWorld(.hosted)
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1", "x"))?.status == 201)
        #expect(world.trips == ["write"])
        #expect(world.environment.tally[.sentGateway] == 1)
    }

    /// Waiting, done, after a restart, and done after a restart: the queue is asked, and nothing is queued again.
    @Test func aRepeatedWriteIsFoundInEveryState() throws {
        let store = InMemoryStore()
        let first = try JSONWorld(.hosted, store: store)
        first.queueIsOpen = false
        #expect(first.send("POST", "/c/all", as: "t-alice", text("1", "x")) == nil, "it waits")
        #expect(first.send("POST", "/c/all", as: "t-alice", text("1", "x")) == nil, "it waits")
        #expect(first.trips.prefix(2) == ["write", "find"])
        let second = try JSONWorld(.hosted, backend: first.backend, store: store)
        second.adopt(first.writes)
        second.logIn(.services("alice"))
        #expect(second.send("POST", "/c/all", as: "t-alice", text("1", "x"))?["message_id"] == "m1")
        #expect(second.send("POST", "/c/all", as: "t-alice", text("1", "x"))?["message_id"] == "m1")
        let third = try JSONWorld(.hosted, backend: first.backend, store: store)
        #expect(third.send("POST", "/c/all", as: "t-alice", text("1", "x"))?["message_id"] == "m1")
        #expect(second.trips.allSatisfy { !$0.hasPrefix("write") } && third.trips.first == "find")
        #expect(first.backend.messages["all"]?.count == 1)
    }

    /// Both are judged before the first is queued, so neither has asked the queue.
    @Test func equalWritesThatComeTogetherAreOne() throws {
        let world = try JSONWorld(.hosted)
        world.queueIsOpen = false
        var writes: [QueuedWrite] = []
        var steps = [ExchangeSteps(world), ExchangeSteps(world)]
        for index in steps.indices {
            _ = steps[index].begin("POST", "/c/all")
            let actions = steps[index].take(.requestBody(ByteBuffer(string: text("1", "x"))))
            guard case .look(let lookup)? = actions.last else {
                Issue.record("\(actions)")
                return
            }
            let (head, body) = try #require(world.backend.answer(lookup.head, ByteBuffer()))
            for case .enqueue(let write) in steps[index].take(.found(lookup.id, head, body)) { writes.append(write) }
            world.environment.conversations.forgetAll()
        }
        #expect(writes.count == 2)
        #expect(world.enqueue(writes[0], WriteWaiter { _ in }).isEmpty)
        let replies = world.enqueue(writes[1], WriteWaiter { _ in })
        let first = try #require(world.waiting.first?.token)
        guard case .queued(_, .success(let known))? = replies.first, replies.count == 1 else {
            Issue.record("\(replies)")
            return
        }
        #expect(known.token == first)
        #expect(world.waiting.count == 1)
        // The second client waits for the outcome of the first write.
        guard case .await(first)? = steps[1].take(.vault(replies[0])).first else {
            Issue.record("nothing is awaited")
            return
        }
    }

    /// A write has waited until its credential was refused, and was done with another one of its account.
    @Test func aWriteDoneWithAnotherCredentialIsFoundWithThatOne() throws {
        let world = try JSONWorld(.hosted)
        world.backend.tokens["t-later"] = "alice"
        for token in ["t-alice", "t-later", "t-bob"] { world.send("GET", "/me", as: token) }
        world.queueIsOpen = false
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1", "x")) == nil, "it waits")
        let request = try #require(world.waiting.first)
        let head = RequestHead("GET", "/", headers: ["Authorization": "Bearer t-later"])
        let later = try #require(Credential(of: head, at: [.header("Authorization")]))
        let mark = Array(world.environment.writes.keys.mark(of: later).utf8)
        _ = world.perform(
            .queue { queue, _ in
                queue.setMetadata(mark, of: request.id, lease: 0)
                queue.setMetadata(mark, of: request.id, lease: request.lease ?? 0)
                return nil
            })
        world.flushQueue()
        #expect(world.backend.messages["all"]?.count == 1)
        #expect(world.send("POST", "/c/all", as: "t-later", text("1", "x"))?["message_id"] == "m1")
        world.flushQueue()
        #expect(world.backend.messages["all"]?.count == 1, "it is not sent again")
        #expect(try world.store.queueTables.request(request.token)?.mark == String(decoding: mark, as: UTF8.self))
    }

    @Test func aKeyIsKnownExactlyAsLongAsItsWrite() throws {
        let store = InMemoryStore()
        let world = try JSONWorld(.hosted, store: store)
        let known = world.environment.writes.known
        world.send("GET", "/me", as: "t-alice")
        store.failNextCommit()
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1", "x"))?.status == 503)
        #expect(known.count == 0)
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1", "x"))?.status == 201)
        #expect(known.count == 1)
        // A write without a client's id is in the queue, and cannot be repeated.
        #expect(world.send("POST", "/c/all", as: "t-alice", #"{"text":"y"}"#)?.status == 201)
        #expect(known.count == 1)
        let later: Int64 = 30 * 86_400_000
        world.now.wall += later
        world.now.monotonic += later * 1_000_000
        _ = world.perform(.tick)
        #expect(known.count == 0)
    }
}
