import DeviceDirectory
import Devices
import Envelope
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import RequestQueue
import Testing
import Vault

/// The machine of an exchange alone: every event in every state.
@Suite struct ExchangeStateTests {
    typealias Stage = HTTPExchange.Stage

    /// The kinds of events, some of them twice because their data decides.
    enum Kind: String, CaseIterable {
        case request, body, bodyTooLong, answer, answerBody, answerTooLong, noRoom, upstreamFailed
        case account, noAccount, members, noMembers, place, noPlace
        case newWrite, knownWrite, queued, notQueued, opened, otherOpened, challenge, mail
        case outcome, dropped, woken, relayMet, relayRefused
        case fileKey, noFileKey, plainFile, sealedFile
        case formTexts, textsSealed, textsNotSealed
    }

    /// An exchange in a state, with what the events of that state refer to.
    struct Reached {
        var steps: ExchangeSteps
        /// The ticket of the last job that opens messages.
        var ticket: UInt64 = 0
        /// The last job that seals a text.
        private var texts = SealMessageJob(
            connection: ConnectionID(5), ticket: .max, sender: .services("alice"), conversation: .room("all"),
            plaintext: [1])

        init(answer: Mapping.Route.Answer = .whenDone) throws {
            var mapping = Mapping.lab(answer: answer)
            mapping.routes += try Mapping.withForms().routes.filter { $0.label == .upload }
            mapping.routes += [
                Mapping.Route(methods: ["POST"], path: try PathPattern("/uploads"), label: .upload),
                Mapping.Route(methods: ["GET"], path: try PathPattern("/uploads/{file}"), label: .download),
            ]
            steps = ExchangeSteps(try JSONWorld(.hosted, mapping: mapping))
        }

        @discardableResult
        mutating func take(_ event: ExchangeEvent) -> [ExchangeAction] {
            let actions = steps.take(event)
            for case .submit(.open(let job)) in actions { ticket = job.ticket }
            for case .submit(.seal(let job)) in actions { texts = job }
            return actions
        }

        mutating func take(_ kinds: Kind...) throws {
            for kind in kinds { take(try event(kind)) }
        }

        func event(_ kind: Kind) throws -> ExchangeEvent {
            let token = RequestToken(high: 1, low: 2)
            let json = ResponseHead(200, headers: ["Content-Type": "application/json"])
            switch kind {
            case .request: return .request(Reached.head("GET", "/c/all"))
            case .body: return .requestBody(ByteBuffer(string: #"{"id":"1","text":"x"}"#))
            case .bodyTooLong: return .requestTooLong
            case .answer: return .response(json)
            case .answerBody: return .responseBody(ByteBuffer(string: #"{"messages":[]}"#))
            case .answerTooLong: return .responseTooLong
            case .noRoom: return .noRoom
            case .upstreamFailed: return .upstreamFailed
            case .account: return .found(.account, json, ByteBuffer(string: #"{"id":"alice"}"#))
            case .noAccount: return .notFound(.account)
            case .members: return .found(.members, json, ByteBuffer(string: #"{"members":["alice","bob","carol"]}"#))
            case .noMembers: return .notFound(.members)
            case .place: return .found(.message, json, ByteBuffer(string: #"{"message":{"room":"all"}}"#))
            case .noPlace: return .notFound(.message)
            case .newWrite: return .vault(.foundWrite(nil))
            case .knownWrite:
                return .vault(.foundWrite(KnownWrite(token: token, localID: nil, isLost: false)))
            case .queued:
                return .vault(.queued(token, .success(KnownWrite(token: token, localID: nil, isLost: false))))
            case .notQueued: return .vault(.queued(token, .failure(.notQueued(.full))))
            case .opened: return .vault(.opened(ticket: ticket, []))
            case .otherOpened: return .vault(.opened(ticket: ticket + 1, []))
            case .challenge: return .vault(.directory(id: 0, .challenge(nonce: [1], account: "alice")))
            case .mail: return .vault(.mail(id: 0, .done))
            case .outcome: return .written(.answered(json, ByteBuffer(string: #"{"message_id":"m1"}"#)))
            case .dropped: return .written(.dropped)
            case .woken: return .woken
            case .fileKey: return .vault(.fileKey(.success(try Self.key())))
            case .noFileKey: return .vault(.fileKey(.failure(OpenError(reason: .forgotten))))
            case .plainFile: return .responseBeginning(ByteBuffer(string: "text"))
            case .sealedFile:
                let sealer = SealedFile.Sealer(try Self.key(), SealedFile.Description())
                return .responseBeginning(try sealer.whole(ByteBuffer(string: "text")))
            case .formTexts: return .formTexts(FormTexts([], try #require(MultipartBoundary(Self.boundary))))
            case .textsSealed:
                let replies = steps.world.perform(.seal(texts))
                return .vault(try #require(replies.first))
            case .textsNotSealed: return .vault(.sealFailed(ticket: texts.ticket, .tooLong))
            case .relayMet: return .relayMet
            case .relayRefused: return .relayRefused(.tooMany)
            }
        }

        private static func key() throws -> SealedFile.Key {
            let header = SealedFile.Header(key: MessageID(1), prefix: [UInt8](repeating: 1, count: 7))
            return SealedFile.Key(
                header,
                ContentKey(
                    message: MessageID(1), digest: header.digest, expiresAt: .max,
                    bytes: [UInt8](repeating: 2, count: 32))
            )
        }

        private static let boundary = Array("a-boundary".utf8)

        static func head(_ method: String, _ target: String, token: String? = "t-alice") -> RequestHead {
            var head = RequestHead(method, target)
            if let token { head.headers.add("Authorization", "Bearer \(token)") }
            return head
        }
    }

    /// An exchange of Alice's in a state.
    private static func reach(_ stage: Stage) throws -> Reached {
        var reached = try Reached(answer: stage == .queueing ? .atOnce(status: 202, body: "{}") : .whenDone)
        func begin(_ method: String, _ target: String) throws {
            reached.take(.request(Reached.head(method, target)))
            // The account may be known already.
            if reached.steps.stage == .identifying { try reached.take(.account) }
        }
        switch stage {
        case .beginning: break
        case .identifying: try reached.take(.request)
        case .collectingCall: try begin("POST", "/_pawl/v1/challenge")
        case .calling:
            try begin("POST", "/_pawl/v1/challenge")
            reached.take(.requestBody(ByteBuffer()))
        case .waitingForMail:
            _ = reached.steps.world.device("alice", id: 1)
            try begin("GET", "/_pawl/v1/messages?wait=5")
            for case .submit(.mail(let job)) in reached.take(.requestBody(ByteBuffer())) {
                reached.take(.vault(.mail(id: job.id, .entries([], more: false))))
            }
        case .waitingForRelay:
            _ = reached.steps.world.device("alice", id: 1)
            var head = Reached.head(
                "GET", "/_pawl/v1/relays/\(String(repeating: "0a", count: 32))?account=bob&device=0000000000000002")
            head.headers.add("Connection", "Upgrade")
            head.headers.add("Upgrade", "pawl-relay")
            reached.take(.request(head))
            if reached.steps.stage == .identifying { try reached.take(.account) }
            reached.take(.requestBody(ByteBuffer()))
        case .findingConversation: try begin("PATCH", "/m/m1")
        case .collecting: try begin("POST", "/c/all")
        case .findingWrite:
            // The queue knows the write, and the members are not known yet.
            reached.steps.world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"x"}"#)
            reached.steps.world.environment.conversations.forgetAll()
            try begin("POST", "/c/all")
            try reached.take(.body)
        case .askingMembers:
            try begin("POST", "/c/all")
            try reached.take(.body)
        case .queueing, .awaitingOutcome:
            try begin("POST", "/c/all")
            try reached.take(.body, .members)
        case .forwarding: try begin("GET", "/c/all")
        case .collectingAnswer:
            try begin("GET", "/c/all")
            try reached.take(.answer)
        case .opening:
            let world = reached.steps.world
            world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"sealed"}"#)
            try begin("GET", "/c/all")
            try reached.take(.answer)
            let sealed = world.direct("GET", "/c/all", as: "t-alice").text
            reached.take(.responseBody(ByteBuffer(string: sealed)))
        case .sealingFile:
            var head = Reached.head("POST", "/uploads")
            head.headers.add("Content-Length", "4")
            reached.take(.request(head))
            if reached.steps.stage == .identifying { try reached.take(.account) }
        case .sendingForm, .sealingTexts:
            var head = Reached.head("POST", "/c/all/files")
            head.headers.add("Content-Length", "4")
            head.headers.add("Content-Type", "multipart/form-data; boundary=a-boundary")
            reached.take(.request(head))
            if reached.steps.stage == .identifying { try reached.take(.account) }
            try reached.take(.members, .fileKey)
            if stage == .sealingTexts { try reached.take(.formTexts) }
        case .askingForFile: try begin("GET", "/uploads/f1")
        case .beginningFile:
            try begin("GET", "/uploads/f1")
            try reached.take(.answer)
        case .openingFile:
            try begin("GET", "/uploads/f1")
            try reached.take(.answer, .sealedFile)
        case .passed: try begin("GET", "/me")
        case .over: reached.take(.request(Reached.head("POST", "/c/all", token: nil)))
        }
        #expect(reached.steps.stage == stage)
        return reached
    }

    /// The transitions. An event that is not named for a state cannot come in it.
    private static let transitions: [Stage: [Kind: Stage]] = [
        .beginning: [.request: .identifying, .upstreamFailed: .over],
        .identifying: [.account: .forwarding, .noAccount: .passed, .upstreamFailed: .over],
        .collectingCall: [.body: .calling, .bodyTooLong: .over, .noRoom: .over, .upstreamFailed: .over],
        .calling: [.challenge: .over, .upstreamFailed: .over],
        .waitingForMail: [.woken: .over, .upstreamFailed: .over],
        .waitingForRelay: [.woken: .over, .relayMet: .over, .relayRefused: .over, .upstreamFailed: .over],
        .findingConversation: [.place: .collecting, .noPlace: .collecting, .upstreamFailed: .over],
        .collecting: [
            .body: .askingMembers, .bodyTooLong: .askingMembers, .noRoom: .over, .upstreamFailed: .over,
        ],
        .findingWrite: [.newWrite: .askingMembers, .knownWrite: .awaitingOutcome, .upstreamFailed: .over],
        .askingMembers: [.members: .awaitingOutcome, .noMembers: .awaitingOutcome, .upstreamFailed: .over],
        // An earlier write that is lost has an outcome and no local id.
        .queueing: [.queued: .awaitingOutcome, .notQueued: .over, .upstreamFailed: .over],
        // An equal write was queued meanwhile. After its patience a client is answered when the write is stored.
        .awaitingOutcome: [
            .queued: .awaitingOutcome, .notQueued: .over, .outcome: .over, .dropped: .over, .woken: .awaitingOutcome,
            .upstreamFailed: .over,
        ],
        .forwarding: [.answer: .collectingAnswer, .upstreamFailed: .over],
        .collectingAnswer: [.answerBody: .over, .answerTooLong: .over, .noRoom: .over, .upstreamFailed: .over],
        // The patience with a write may end while its answer is opened: a late event without effect.
        .opening: [.opened: .over, .woken: .opening, .upstreamFailed: .over],
        .sealingFile: [.fileKey: .forwarding, .noFileKey: .over, .upstreamFailed: .over],
        .sendingForm: [.formTexts: .sealingTexts, .answer: .collectingAnswer, .upstreamFailed: .over],
        // An answer before the end of the form waits until its text is sealed, which is not sent then.
        .sealingTexts: [
            .textsSealed: .forwarding, .textsNotSealed: .over, .answer: .sealingTexts, .upstreamFailed: .over,
        ],
        .askingForFile: [.answer: .beginningFile, .upstreamFailed: .over],
        .beginningFile: [.plainFile: .over, .sealedFile: .openingFile, .upstreamFailed: .over],
        .openingFile: [.fileKey: .over, .noFileKey: .over, .upstreamFailed: .over],
        // The adapter answers.
        .passed: [.upstreamFailed: .passed],
        .over: [:],
    ]

    @Test(arguments: Stage.allCases) func everyEventInEveryStateHasATransitionOrIsReported(stage: Stage) throws {
        let expected = try #require(Self.transitions[stage])
        for kind in Kind.allCases {
            var reached = try Self.reach(stage)
            let tally = reached.steps.world.environment.tally
            let actions = reached.take(try reached.event(kind))
            let reports = actions.filter { if case .report = $0 { true } else { false } }
            let answers = actions.compactMap { if case .respond(let head, _) = $0 { head.status } else { nil } }
            let next = reached.steps.stage
            if let expected = expected[kind] {
                #expect(next == expected, "\(stage) \(kind)")
                #expect(reports.isEmpty && tally[.unexpectedEvents] == 0, "\(stage) \(kind)")
                // Only a named late event, and a fault that the adapter answers, have no effect.
                let hasNoEffect =
                    stage == .opening && kind == .woken || stage == .sealingTexts && kind == .answer || stage == .passed
                #expect(actions.isEmpty == hasNoEffect, "\(stage) \(kind): \(actions)")
            } else {
                #expect(reports.count == 1 && tally[.unexpectedEvents] == 1, "\(stage) \(kind)")
                #expect(next == (stage.isAnswered ? stage : .over), "\(stage) \(kind)")
                #expect(answers == (stage.isAnswered ? [] : [500]), "\(stage) \(kind)")
            }
        }
    }

    @Test func anAnswerBeforeTheEndOfAFormIsGiven() throws {
        var reached = try Self.reach(.sealingTexts)
        reached.take(.response(ResponseHead(413)))
        let actions = reached.take(try reached.event(.textsSealed))
        // Nothing was sealed for the room as far as the backend knows.
        guard case .submit(.refused) = actions.first, case .passResponse(let head) = actions.last else {
            Issue.record("\(actions)")
            return
        }
        #expect(head.status == 413 && actions.count == 2)
    }

    /// Opened texts are marked, so that an answer can be compressed without them.
    @Test func openedTextsAreHiddenFromCompression() throws {
        let world = try JSONWorld(.hosted)
        for number in 1...3 {
            world.send("POST", "/c/all", as: "t-alice", #"{"id":"\#(number)","text":"canary \#(number)"}"#)
        }
        var steps = ExchangeSteps(world)
        _ = steps.begin("GET", "/c/all")
        var actions = steps.take(.response(ResponseHead(200, headers: ["Content-Type": "application/json"])))
        actions = steps.take(.responseBody(ByteBuffer(string: world.direct("GET", "/c/all", as: "t-alice").text)))
        for case .submit(let job) in actions {
            for reply in world.perform(job) { actions = steps.take(.vault(reply)) }
        }
        guard case .deliver(_, let body, let hidden?)? = actions.last else {
            Issue.record("no answer: \(actions)")
            return
        }
        var bytes = Array(body.readableBytesView)
        #expect(String(decoding: bytes, as: UTF8.self).matches(of: /canary \d/).count == 3)
        for range in hidden.reversed() { bytes.removeSubrange(range) }
        #expect(!String(decoding: bytes, as: UTF8.self).contains("canary"))
        #expect(bytes.count > 50)
    }

    /// Whatever is collected, its client learns that it may try again.
    @Test(arguments: [Stage.collectingCall, .collecting, .collectingAnswer])
    func whatHasNoRoomIsRefusedForTheMoment(stage: Stage) throws {
        var reached = try Self.reach(stage)
        guard case .respond(let head, let body)? = reached.take(.noRoom).last else {
            Issue.record("no answer")
            return
        }
        #expect(head.status == 503 && head.headers["Retry-After"] == ["5"])
        #expect(String(buffer: body).contains("pawl_no_room"))
    }

    /// What is reported names the event and the state, and no data.
    @Test func aReportNamesEventAndState() throws {
        var reached = try Self.reach(.queueing)
        let actions = reached.take(.found(.members, ResponseHead(200), ByteBuffer(string: "the canary sings")))
        guard case .report(let defect)? = actions.first else {
            Issue.record("\(actions)")
            return
        }
        #expect("\(defect)" == "Defect of the gateway: unexpected event found(members) of an exchange, queueing.")
    }

    /// Whoever waits for an answer gets one in every state when the backend fails.
    @Test(arguments: Stage.allCases) func aFailedBackendIsAnsweredInEveryState(stage: Stage) throws {
        var reached = try Self.reach(stage)
        let actions = reached.take(.upstreamFailed)
        let answers = actions.compactMap { if case .respond(let head, _) = $0 { head.status } else { nil } }
        #expect(answers == (stage.isAnswered ? [] : [502]))
    }
}
