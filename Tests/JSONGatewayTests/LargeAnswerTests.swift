import Envelope
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import Testing

/// Answers that are longer than what the gateway opens.
@Suite struct LargeAnswerTests {
    private let limit = 4096
    private let text = String(repeating: "long ", count: 2000)

    /// A long plain message of bob's stands in his conversation with alice.
    private func world(_ policy: Policy, accounts: [String: Policy] = [:]) throws -> JSONWorld {
        let world = try JSONWorld(policy, accounts: accounts)
        world.environment.replace(.lab, texts: NoticeTexts(), answerLimit: limit)
        world.send("GET", "/me", as: "t-bob")
        _ = world.direct("POST", "/c/pair", as: "t-bob", #"{"id":"1","text":"\#(text)"}"#)
        return world
    }

    @Test(arguments: [Policy.hosted, .opportunistic])
    func passForReadersForWhomNothingIsSealed(_ policy: Policy) throws {
        let world = try world(.observe, accounts: ["alice": policy])
        for target in ["/c/pair", "/c/pair?since=1"] {
            let answer = try #require(world.send("GET", target, as: "t-bob"))
            #expect(answer.status == 200)
            #expect(answer.text == world.direct("GET", target, as: "t-bob").text)
        }
    }

    @Test func historyIsNotCollectedWhereNothingIsSealed() throws {
        let world = try JSONWorld(.opportunistic)
        var steps = ExchangeSteps(world)
        _ = steps.begin("GET", "/c/pair")
        let head = ResponseHead(200, headers: ["Content-Type": "application/json"])
        guard case .passResponse? = steps.take(.response(head)).last else {
            Issue.record("history is collected")
            return
        }
    }

    /// A conversation may become protected between the head of a long poll and its body.
    @Test func liveMessagesAreLookedAtWhenTheyAreThere() throws {
        let world = try world(.observe, accounts: ["alice": .hosted])
        var steps = ExchangeSteps(world)
        _ = steps.begin("GET", "/c/pair?since=1")
        let head = ResponseHead(200, headers: ["Content-Type": "application/json"])
        guard case .collectResponse(let limit)? = steps.take(.response(head)).last else {
            Issue.record("live messages are not collected")
            return
        }
        #expect(limit == self.limit)
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"sealed"}"#)
        guard case .respond(let answer, _)? = steps.take(.responseTooLong).last else {
            Issue.record("what cannot be opened is shown")
            return
        }
        #expect(answer.status == 502)
    }

    /// A reader for whom nothing is sealed needs no memory of the gateway.
    @Test func passWithoutRoomWhereNothingIsSealed() throws {
        let world = try world(.observe, accounts: ["bob": .hosted])
        for isSealed in [false, true] {
            var steps = ExchangeSteps(world)
            _ = steps.begin("GET", "/c/pair?since=1")
            _ = steps.take(.response(ResponseHead(200, headers: ["Content-Type": "application/json"])))
            if isSealed { world.send("POST", "/c/pair", as: "t-bob", #"{"id":"2","text":"sealed"}"#) }
            switch steps.take(.noRoom).last {
            case .passResponse?: #expect(!isSealed)
            case .respond(let answer, _)?: #expect(isSealed && answer.status == 503)
            default: Issue.record("no answer")
            }
        }
    }

    @Test func areRefusedOnceSomethingIsSealedAndOpenedUnderALargerLimit() throws {
        let world = try world(.observe, accounts: ["alice": .hosted])
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"sealed"}"#)
        for reader in ["t-alice", "t-bob"] {
            let refused = try #require(world.send("GET", "/c/pair", as: reader))
            #expect(refused.status == 502 && refused["error"] == "pawl_answer_too_long")
            #expect(refused["message"]?.contains("limits.answer_bytes") == true)
        }
        world.environment.replace(.lab, texts: NoticeTexts(), answerLimit: 1 << 20)
        for reader in ["t-alice", "t-bob"] {
            #expect(world.send("GET", "/c/pair", as: reader)?["messages[1].data.text"] == "sealed")
        }
    }

    /// A reader whose own policy marks plain text gets no answer in which it could stand unmarked.
    @Test func areRefusedToAReaderWhosePlainTextIsMarked() throws {
        let world = try world(.hosted)
        #expect(world.send("GET", "/c/pair", as: "t-alice")?["error"] == "pawl_answer_too_long")
    }

    /// The shipped limit takes what no limit of the JSON reader may refuse first.
    @Test func theShippedLimitOpensThirtyMegabytes() throws {
        let world = try JSONWorld(.observe, accounts: ["alice": .hosted])
        world.send("GET", "/me", as: "t-bob")
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"sealed"}"#)
        let long = String(repeating: "x", count: 1 << 20)
        for number in 0..<30 {
            world.backend.messages["pair"]?.append(
                .init(id: "b\(number)", sender: "bob", body: #"{"text":"\#(long)"}"#))
        }
        let answer = try #require(world.send("GET", "/c/pair", as: "t-bob"))
        #expect(answer.status == 200 && answer.text.utf8.count > 30 << 20)
        #expect(answer.text.prefix(200).contains("sealed"))
    }
}
