import CommitLoop
import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import RequestQueue
import StoreConformance
import StorePort
import Synchronization
import TestKit
import Testing
import Vault

/// A gateway in memory before a simulated JSON backend: exchanges, vault and store, with a clock of its own.
final class JSONWorld {
    /// What a client gets.
    struct Answer {
        var status: Int
        var text: String
        var headers = HeaderFields()
        /// Its body; nil if only the text is known.
        var bytes: ByteBuffer?

        /// A value in it, by a path.
        subscript(_ path: String) -> String? {
            guard let document = try? JSONDocument(ByteBuffer(string: text)),
                let place = try? document.place(JSONPath(path))
            else { return nil }
            return (try? document.text(place)) ?? document.boolean(place).map { "\($0)" } ?? document.numberText(place)
        }
    }

    let environment: JSONEnvironment
    let backend: JSONBackend
    let store: InMemoryStore
    private var pipeline: CommitPipeline<JSONParticipants>
    var participants: JSONParticipants {
        get { pipeline.participants }
        set { pipeline.participants = newValue }
    }
    var now = Timestamp(monotonic: 1_000_000_000_000, wall: 1_700_000_000_000)
    /// Writes that were handed to the queue, by token.
    private(set) var writes: [RequestToken: QueuedWrite] = [:]
    /// The jobs that exchanges have handed over, and the replies that they got, by name.
    private(set) var trips: [String] = []
    /// How many batches were committed.
    private(set) var commits = 0
    /// Attempts that the queue has begun and the backend has not answered.
    private var attempts: [QueueBatch.Dispatch] = []
    /// Whether attempts reach the backend at once.
    var queueIsOpen = true
    /// Whether jobs that arrive together go through the pipeline in two batches.
    var pipelines = true
    /// Bodies that exchanges have sealed.
    fileprivate(set) var sealed: [ByteBuffer] = []
    private var nextToken: UInt64 = 1
    private let connection = ConnectionID(1)

    init(
        _ policy: Policy, mapping: Mapping = .lab, backend: JSONBackend = JSONBackend(),
        store: InMemoryStore = InMemoryStore(), accounts: [String: Policy] = [:], retention: Int64 = 365 * 86_400_000,
        held: [AccountID] = [], requestsPerAccount: Int? = nil
    ) throws {
        self.backend = backend
        self.store = store
        var snapshot = PolicySnapshot(everyone: policy)
        for (name, policy) in accounts { snapshot.accounts[.services(name)] = policy }
        let latches = LatchTable()
        let directory = DirectoryCache()
        environment = JSONEnvironment(
            mapping: mapping, policies: PolicyTable(snapshot), latches: latches, directory: directory,
            writes: WriteTables(keys: WriteKeys(secret: [UInt8](repeating: 3, count: 32))),
            answerLimit: 64 << 20)
        environment.accounts.adopt(try store.evidence(limit: 1000))
        var changes: [StoreChange] = []
        var settings = JSONParticipants.queueSettings(host: "backend")
        if let requestsPerAccount { settings.limits.requestsPerTenant = requestsPerAccount }
        let participants = try JSONParticipants(
            network: "lab", sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
            latches: latches, writes: environment.writes, queue: settings,
            historyRetention: retention, held: held, now: now,
            random: SeededGenerator(seed: 1), directory: directory, changes: &changes)
        _ = try store.commit([changes])
        pipeline = CommitPipeline(participants)
    }

    /// One request through the gateway; it ends when nothing is left to be done for it.
    @discardableResult
    func send(
        _ method: String, _ target: String, as token: String? = nil, _ json: String = "",
        fields: [(String, String)] = []
    ) -> Answer? {
        var headers = HeaderFields(fields.map { HeaderFields.Field($0.0, $0.1) })
        headers.add("Host", "chat.example")
        headers.add("User-Agent", "LabClient/1.0 (test)")
        if let token { headers.add("Authorization", "Bearer \(token)") }
        if !json.isEmpty, headers.first("Content-Type") == nil { headers.add("Content-Type", "application/json") }
        return exchange(RequestHead(method, target, headers: headers), ByteBuffer(string: json))
    }

    /// Runs a request that has all its fields.
    func exchange(_ head: RequestHead, _ body: ByteBuffer) -> Answer? {
        RunningExchange(self, connection).run(head, body)
    }

    /// The same without the gateway.
    func direct(_ method: String, _ target: String, as token: String? = nil, _ json: String = "") -> Answer {
        var headers = HeaderFields()
        if let token { headers.add("Authorization", "Bearer \(token)") }
        guard let (head, body) = backend.answer(RequestHead(method, target, headers: headers), ByteBuffer(string: json))
        else { return Answer(status: 0, text: "") }
        return Answer(status: head.status, text: String(buffer: body))
    }

    // MARK: What exchanges ask for

    func perform(_ job: JSONJob) -> [JSONReply] { perform([job]) }

    /// Does jobs as the commit thread does: the second half is prepared while the first one is being committed.
    func perform(_ jobs: [JSONJob]) -> [JSONReply] {
        let all = pipeline.run(jobs, isSplit: pipelines, now: now) { groups in
            commits += 1
            return store.checkedOutcome(of: groups)
        }
        var replies: [JSONReply] = []
        for reply in all {
            guard case .turn(let turn) = reply.reply else {
                replies.append(reply.reply)
                continue
            }
            #expect(reply.connection == JSONParticipants.sender)
            attempts += turn.batch?.dispatches ?? []
        }
        return replies
    }

    var attemptCount: Int { attempts.count }

    /// The writes that wait for the backend, in the order of acceptance.
    var waiting: [QueuedRequest] { participants.queue.requests }

    func findWrite(_ account: AccountID, _ key: WriteKey, by credential: Credential) -> [JSONReply] {
        let mark = environment.writes.keys.mark(of: credential)
        trips.append("find")
        let replies = perform(.find(FindWriteJob(connection: connection, account: account, key: key, mark: mark)))
        trips += replies.map { "reply: \($0)" }
        // A dead write is sent again.
        if queueIsOpen { flushQueue() }
        return replies
    }

    func logIn(_ account: AccountID) {
        _ = perform(
            .queue { queue, _ in
                queue.setSession(account.text, present: true)
                return nil
            })
    }

    /// - Parameter waiter: nil if the write is answered at once.
    func enqueue(_ write: QueuedWrite, _ waiter: WriteWaiter?) -> [JSONReply] {
        let token = RequestToken(high: 1, low: nextToken)
        nextToken += 1
        environment.writes.waiters.expect(token, waiter)
        logIn(write.account)
        trips.append("write")
        let replies = perform(job(write, token))
        trips += replies.map { "reply: \($0)" }
        if waiting.contains(where: { $0.token == token }) { writes[token] = write }
        if queueIsOpen { flushQueue() }
        return replies
    }

    func job(_ write: QueuedWrite, _ token: RequestToken) -> JSONJob {
        let mark = environment.writes.keys.mark(of: write.credential)
        return .write(WriteJob(connection: connection, token: token, write: write, mark: mark))
    }

    /// Takes over what an earlier world has queued: the queue has the requests, and this the credentials.
    func adopt(_ earlier: [RequestToken: QueuedWrite]) { writes.merge(earlier) { $1 } }

    /// Attempts reach the backend, in order, until it does not answer.
    func flushQueue() {
        while let attempt = attempts.first, let write = writes[attempt.request.token], write.frame == nil,
            let resolved = try? attempt.resolved()
        {
            var head = RequestHead(resolved.method.name, resolved.target)
            head.headers.fields = resolved.headers.map { .init($0.name, $0.value) } + write.credential.fields.fields
            guard let (answer, body) = backend.answer(head, ByteBuffer(bytes: resolved.body)) else { return }
            attempts.removeFirst()
            let reply = reply(answer, body, to: attempt.request)
            _ = perform(
                .queue { queue, now in
                    queue.reply(attempt.id, lease: attempt.lease, reply, now: now, random: 1)
                    return nil
                })
        }
    }

    /// The attempt to send a WebSocket message that comes next; nil if none has begun.
    func beginAttempt() -> QueueBatch.Dispatch? { attempts.isEmpty ? nil : attempts.removeFirst() }

    func end(_ attempt: QueueBatch.Dispatch, _ reply: AttemptReply) {
        _ = perform(
            .queue { queue, now in
                queue.reply(attempt.id, lease: attempt.lease, reply, now: now, random: 1)
                return nil
            })
    }

    func reply(_ head: ResponseHead, _ body: ByteBuffer, to request: QueuedRequest) -> AttemptReply {
        let bytes = Array(body.readableBytesView)
        guard (200..<300).contains(head.status) else {
            return .failure(.status(head.status), retryAfter: nil, headers: [], body: bytes)
        }
        let remote = request.identifiers.flatMap(RemoteIDSource.init).flatMap { source in
            (try? JSONDocument(body)).flatMap(source.id)
        }
        let names = remote.map { remote in
            request.creates.map { EntityIdentifier.both(type: $0.type, local: $0.local, remote: remote) }
        }
        return .success(status: head.status, headers: [], body: bytes, identifiers: names ?? [])
    }

    /// An operator lowers the policy, and resets all conversations.
    func lowerProtection() throws {
        environment.policies.update { $0 = PolicySnapshot(everyone: .observe) }
        for row in try store.conversations(limit: 99) {
            _ = perform(.reset(row.id))
            environment.latches.reset(row.id)
        }
    }

    /// An operator drops a write.
    func drop(_ token: RequestToken) {
        _ = perform(
            .queue { queue, now in
                try? queue.cancel(token, now: now)
                return nil
            })
        attempts.removeAll { $0.request.token == token }
    }

    /// Lets a client wait for the outcome of a stored write.
    func await(_ token: RequestToken, _ waiter: WriteWaiter) {
        switch environment.writes.waiters.add(waiter, for: token) {
        case .waits: break
        case .asks:
            if let outcome = try? store.queueTables.outcome(token) { waiter.end(WriteOutcome(outcome)) }
        }
    }
}

/// One exchange and what it asks for.
private final class RunningExchange {
    private let world: JSONWorld
    private var exchange: HTTPExchange
    private var events: [ExchangeEvent] = []
    private let waiter: WriteWaiter
    /// What the waiter was notified of, and the exchange not yet.
    private let outcomes: Outcomes

    private final class Outcomes: Sendable {
        private let all = Mutex<[WriteOutcome]>([])

        func add(_ outcome: WriteOutcome) { all.withLock { $0.append(outcome) } }

        func take() -> [WriteOutcome] {
            all.withLock { all in
                defer { all = [] }
                return all
            }
        }
    }

    init(_ world: JSONWorld, _ connection: ConnectionID) {
        self.world = world
        exchange = HTTPExchange(environment: world.environment, connection: connection)
        let outcomes = Outcomes()
        self.outcomes = outcomes
        waiter = WriteWaiter { outcomes.add($0) }
    }

    func run(_ head: RequestHead, _ body: ByteBuffer) -> JSONWorld.Answer? {
        var passed: (ResponseHead, ByteBuffer)?
        /// A form whose end has not come.
        var form: (RequestHead, ByteBuffer)?
        events = [.request(head)]
        while !events.isEmpty {
            var actions: [ExchangeAction] = []
            exchange.take(events.removeFirst(), at: world.now, &actions)
            for action in actions {
                switch action {
                case .pass(let head):
                    guard let (answer, body) = world.backend.answer(head, body) else {
                        events.append(.upstreamFailed)
                        continue
                    }
                    return JSONWorld.Answer(status: answer.status, text: String(buffer: body))
                case .passRequest(let head): ask(head, body, &passed)
                case .send(let head, let body): ask(head, body, &passed)
                case .sealRequest(let head, let sealer):
                    let (sealed, texts): (ByteBuffer, FormTexts?)
                    do { (sealed, texts) = try sealer.parts(of: body) } catch {
                        guard let fault = error as? UploadFault else { return nil }
                        let (head, body) = GatewayFault.upload(fault).answer(exchange.mapping, toRequest: head)
                        return JSONWorld.Answer(status: head.status, text: String(buffer: body), headers: head.headers)
                    }
                    guard let texts else {
                        world.sealed.append(sealed)
                        ask(head, sealed, &passed)
                        continue
                    }
                    form = (head, sealed)
                    events.append(.formTexts(texts))
                case .endRequest(var rest):
                    guard case (let head, var sealed)? = form else { return nil }
                    sealed.writeBuffer(&rest)
                    world.sealed.append(sealed)
                    ask(head, sealed, &passed)
                case .collectRequest(let limit):
                    events.append(body.readableBytes > limit ? .requestTooLong : .requestBody(body))
                case .passResponse(let head):
                    let body = passed?.1 ?? ByteBuffer()
                    return JSONWorld.Answer(
                        status: head.status, text: String(buffer: body), headers: head.headers, bytes: body)
                case .collectBeginning(let count):
                    let body = passed?.1 ?? ByteBuffer()
                    events.append(
                        .responseBeginning(body.getSlice(at: 0, length: min(count, body.readableBytes)) ?? body))
                case .openResponse(let head, let opener, let length):
                    guard let opened = try? opener.whole(passed?.1 ?? ByteBuffer()) else { return nil }
                    #expect(length ?? opened.readableBytes == opened.readableBytes)
                    return JSONWorld.Answer(
                        status: head.status, text: String(buffer: opened), headers: head.headers, bytes: opened)
                case .collectResponse(let limit):
                    let body = passed?.1 ?? ByteBuffer()
                    events.append(body.readableBytes > limit ? .responseTooLong : .responseBody(body))
                case .respond(let head, let body), .deliver(let head, let body, hiding: _):
                    return JSONWorld.Answer(status: head.status, text: String(buffer: body), headers: head.headers)
                case .look(let lookup):
                    if let (head, body) = world.backend.answer(lookup.head, ByteBuffer()) {
                        events.append(.found(lookup.id, head, body))
                    } else {
                        events.append(.notFound(lookup.id))
                    }
                case .submit(let job): events += world.perform(job).map { .vault($0) }
                case .findWrite(let account, let key, let credential):
                    events += world.findWrite(account, key, by: credential).map { .vault($0) }
                case .enqueue(let write):
                    events += world.enqueue(write, write.answersAtOnce ? nil : waiter).map { .vault($0) }
                case .await(let token): world.await(token, waiter)
                case .stopWaiting: waiter.giveUp()
                case .wake: break
                case .joinRelay, .beginRelay, .beginMailSocket: Issue.record("upgrades are tested with steps")
                case .report(let defect): Issue.record(defect)
                case .loggedIn(let account, _): world.logIn(account)
                case .upgrade: return JSONWorld.Answer(status: 101, text: "")
                }
                events += outcomes.take().map { .written($0) }
            }
        }
        return nil
    }

    private func ask(_ head: RequestHead, _ body: ByteBuffer, _ passed: inout (ResponseHead, ByteBuffer)?) {
        passed = world.backend.answer(head, body)
        events.append(passed.map { .response($0.0) } ?? .upstreamFailed)
    }
}

/// A small chat: `POST /c/ROOM` with `{"id","text"}`, `GET /c/ROOM`, `GET /c/ROOM/members`, `GET /me`, and more that says nothing.
final class JSONBackend {
    struct Message {
        var id: String
        var sender: String
        var body: String
    }

    /// Who is in which room.
    var rooms: [String: [String]] = ["pair": ["alice", "bob"], "all": ["alice", "bob", "carol", "eve"]]
    /// Tokens of people are their names behind `t-`.
    var people: Set<String> = ["alice", "bob", "carol", "eve"]
    /// Whose other tokens are.
    var tokens: [String: String] = [:]
    /// Who may act in the name of others, by `user_id` in the query.
    var actors: Set<String> = []
    var messages: [String: [Message]] = [:]
    /// Everything that it has ever read.
    var received: [String] = []
    var isUp = true
    /// Takes the next write and breaks the connection before it answers.
    var losesNextAnswer = false
    /// Rooms in which nobody can write.
    var closed: Set<String> = []
    /// Whether `X-User-Id` has to name the owner of the token.
    var needsUserID = false
    /// How many members one answer names; nil if all.
    var pageSize: Int?
    /// It has no members for this page and later ones.
    var failsPagesFrom: Int?
    /// The status of its answers to requests for members.
    var membersStatus = 200
    /// Whether it names no members to those who are none.
    var hidesMembers = false
    /// Whether it tells a repeated message by its sender's id.
    var knowsIDs = true
    /// Other names of rooms.
    var names: [String: String] = [:]
    /// The room that it names for every message; nil if it tells the truth.
    var place: String?
    private var known: [String: String] = [:]
    /// The files, with the fields of their answers, by path.
    var files: [String: (fields: HeaderFields, body: ByteBuffer)] = [:]
    /// Whether everybody who knows the path of a file may read it.
    var areFilesPublic = false
    /// What it answers to a request for a thumbnail; nil if 404.
    var thumbnail: String?

    func answer(_ head: RequestHead, _ body: ByteBuffer) -> (ResponseHead, ByteBuffer)? {
        guard isUp else { return nil }
        received.append("\(head.method) \(head.target) \(String(buffer: body))")
        let token = head.headers.first("Authorization") ?? ""
        var name = tokens[String(token.dropFirst("Bearer ".count))] ?? String(token.dropFirst("Bearer t-".count))
        let isPublic = areFilesPublic && head.path.hasPrefix("/files/")
        guard token.hasPrefix("Bearer t-") && people.contains(name) || isPublic else {
            return answer(401, #"{"error":"who"}"#)
        }
        if needsUserID, head.headers.first("X-User-Id") != name { return answer(401, #"{"error":"who"}"#) }
        if actors.contains(name), case .single(let other) = RequestQuery(head.query)["user_id"] { name = other }
        let parts = head.path.split(separator: "/").map(String.init)
        switch (head.method, parts.first, parts.count) {
        case ("GET", "me", 1): return answer(200, #"{"id":"\#(name)"}"#)
        case ("GET", "c", 3) where parts[2] == "members":
            guard membersStatus == 200 else { return answer(membersStatus, #"{"error":"no members"}"#) }
            var names = rooms[parts[1]] ?? []
            if hidesMembers, !names.contains(name) { names = [] }
            if let pageSize, case .single(let text) = RequestQuery(head.query)["page"], let page = Int(text) {
                if let failsPagesFrom, page >= failsPagesFrom { return answer(503, "{}") }
                names = Array(names.dropFirst(page * pageSize).prefix(pageSize))
            }
            let members = names.map { "\"\($0)\"" }.joined(separator: ",")
            return answer(200, #"{"members":[\#(members)]}"#)
        case ("GET", "c", 2):
            let list = (messages[parts[1]] ?? []).map { message in
                #"{"message_id":"\#(message.id)","sender":"\#(message.sender)","data":\#(message.body)}"#
            }
            return answer(200, #"{"messages":[\#(list.joined(separator: ", "))]}"#)
        case ("POST", "c", 2) where closed.contains(parts[1]): return answer(404, #"{"error":"no such room"}"#)
        case ("POST", "c", 2):
            let key = JSONWorld.Answer(status: 0, text: String(buffer: body))["id"].map { "\(name) \($0)" }
            if let key, let id = known[key] { return answer(200, #"{"message_id":"\#(id)"}"#) }
            let id = "m\(messages.values.reduce(0) { $0 + $1.count } + 1)"
            messages[parts[1], default: []].append(Message(id: id, sender: name, body: String(buffer: body)))
            if let key, knowsIDs { known[key] = id }
            if losesNextAnswer {
                losesNextAnswer = false
                return nil
            }
            return answer(201, #"{"message_id":"\#(id)"}"#)
        case ("GET", "m", 2), ("PATCH", "m", 2):
            guard let room = messages.first(where: { $0.value.contains { $0.id == parts[1] } })?.key,
                let index = messages[room]?.firstIndex(where: { $0.id == parts[1] })
            else { return answer(404, #"{"error":"no such message"}"#) }
            if head.method == "PATCH" { messages[room]?[index].body = String(buffer: body) }
            return answer(200, #"{"message":{"room":"\#(place ?? room)"}}"#)
        case ("GET", "rooms", 2):
            let room = names[parts[1]] ?? parts[1]
            return rooms[room] == nil
                ? answer(404, #"{"error":"no such room"}"#) : answer(200, #"{"room":{"id":"\#(room)"}}"#)
        case ("POST", "posts", 1):
            let named = JSONWorld.Answer(status: 0, text: String(buffer: body))["room"] ?? ""
            let id = "m\(messages.values.reduce(0) { $0 + $1.count } + 1)"
            messages[names[named] ?? named, default: []].append(
                Message(id: id, sender: name, body: String(buffer: body)))
            return answer(200, #"{"message_id":"\#(id)"}"#)
        case ("POST", "edits", 1):
            let id = JSONWorld.Answer(status: 0, text: String(buffer: body))["message"]
            for room in messages.keys {
                guard let index = messages[room]?.firstIndex(where: { $0.id == id }) else { continue }
                messages[room]?[index].body = String(buffer: body)
                return answer(200, "{}")
            }
            return answer(404, #"{"error":"no such message"}"#)
        case ("POST", "files", 1): return answer(200, #"{"file":"\#(keep(body, head))"}"#)
        case ("POST", "c", 3) where parts[2] == "files":
            _ = keep(body, head)
            let text = String(buffer: body).split(separator: "name=\"text\"\r\n\r\n").dropFirst().first
            let words = text?.split(separator: "\r\n").first ?? ""
            let id = "m\(messages.values.reduce(0) { $0 + $1.count } + 1)"
            messages[parts[1], default: []].append(Message(id: id, sender: name, body: #"{"text":"\#(words)"}"#))
            return answer(
                200, #"{"message":{"message_id":"\#(id)","sender":"\#(name)","data":{"text":"\#(words)"}}}"#)
        case ("GET", "files", 2), ("HEAD", "files", 2):
            guard let file = files[parts[1]] else { return answer(404, #"{"error":"no such file"}"#) }
            var fields = file.fields
            fields.add("Content-Length", "\(file.body.readableBytes)")
            return (ResponseHead(200, headers: fields), head.method == "HEAD" ? ByteBuffer() : file.body)
        case ("GET", "thumbnails", 2):
            return thumbnail.map { answer(200, $0) } ?? answer(404, #"{"error":"no thumbnail"}"#)
        case ("DELETE", "c", 3):
            messages[parts[1]]?.removeAll { $0.id == parts[2] }
            return answer(204, "")
        default: return answer(404, #"{"error":"no such thing"}"#)
        }
    }

    private func keep(_ body: ByteBuffer, _ head: RequestHead) -> String {
        let id = "f\(files.count + 1)"
        files[id] = (["Content-Type": head.headers.first("Content-Type") ?? "text/plain"], body)
        return id
    }

    private func answer(_ status: Int, _ text: String) -> (ResponseHead, ByteBuffer) {
        (ResponseHead(status, headers: ["Content-Type": "application/json"]), ByteBuffer(string: text))
    }

    /// Whether it has ever seen these words.
    func hasReceived(_ words: String) -> Bool { received.contains { $0.contains(words) } }
}

extension Mapping {
    /// For ``JSONBackend``.
    static let lab = lab()

    /// The same with messages that come in a form with files: `text` with `caption` as a line of it.
    static func withForms() throws -> Mapping {
        var mapping = Mapping.lab
        guard var written = mapping.routes[0].request,
            var read = mapping.routes.first(where: { $0.label == .history })?.response.first
        else { return mapping }
        (written.armour, written.flag, written.also, written.localID) = (.text, nil, [], nil)
        (written.joined, written.textIsOptional) = ([try JSONPath("caption")], true)
        (read.armour, read.flag, read.also) = (.text, nil, [])
        var sent = read
        sent.messages = try JSONPath("message")
        let parts: [String: FilePlaces.Part] = ["file": .file, "text": .text, "caption": .text, "thread": .pass]
        mapping.routes.removeAll { $0.label == .history }
        mapping.routes += [
            Mapping.Route(
                methods: ["POST"], path: try PathPattern("/c/{conversation}/files"), label: .upload, request: written,
                response: [sent], conversation: .capture("conversation"), file: FilePlaces(parts: parts)),
            Mapping.Route(
                methods: ["GET"], path: try PathPattern("/c/{conversation}"), label: .history, response: [read]),
        ]
        return mapping
    }

    /// The same with another answer to what is written.
    static func lab(answer: Mapping.Route.Answer = .whenDone) -> Mapping {
        func path(_ text: String) -> JSONPath {
            guard let path = try? JSONPath(text) else { preconditionFailure("\(text) is no path") }
            return path
        }
        func pattern(_ text: String) -> PathPattern {
            guard let pattern = try? PathPattern(text) else { preconditionFailure("\(text) is no pattern") }
            return pattern
        }
        let text = MessageShape(
            containers: path("$"), messages: path("$"), conversation: .capture("conversation"), text: path("text"),
            also: [path("html"), path("extra.note")], flag: path("encrypted"), localID: path("id"))
        let list = MessageShape(
            containers: path("$"), messages: path("messages[*]"), conversation: .capture("conversation"),
            text: path("text"), also: [path("html"), path("extra.note")], flag: path("encrypted"),
            sender: path("sender"),
            remoteID: path("message_id"), content: path("data"))
        var edit = text
        edit.conversation = .ofMessage("message_id")
        var mapping = Mapping(
            name: "lab",
            account: AccountSource(credentials: [.header("Authorization")], target: "/me", name: path("id")),
            members: MembersSource(target: "/c/{conversation}/members", accounts: path("members[*]"), areNames: false),
            routes: [
                Route(
                    methods: ["POST"], path: pattern("/c/{conversation}"), label: .content, request: text,
                    remoteID: path("message_id"), answer: answer),
                Route(
                    methods: ["GET"], path: pattern("/c/{conversation}"), query: [QueryCondition("since", .present)],
                    label: .sync, response: [list]),
                Route(methods: ["GET"], path: pattern("/c/{conversation}"), label: .history, response: [list]),
                Route(
                    methods: ["DELETE"], path: pattern("/c/{conversation}/{message}"), label: .control,
                    conversation: .capture("conversation"), references: [.capture("message")]),
                Route(methods: ["POST"], path: pattern("/files"), label: .media),
                Route(methods: ["GET"], path: pattern("/me"), label: .passthrough),
                Route(methods: ["GET"], path: pattern("/c/{conversation}/members"), label: .passthrough),
                Route(
                    methods: ["PATCH"], path: pattern("/m/{message_id}"), label: .content, request: edit,
                    references: [.capture("message_id")]),
            ])
        mapping.messagesByID = MessageSource(target: "/m/{message_id}", conversation: path("message.room"))
        return mapping
    }
}

extension SealedFile.Sealer {
    func whole(_ file: ByteBuffer) throws -> ByteBuffer { try BodySealer(file: self).whole(file) }
}

extension BodySealer {
    /// Seals a whole body, in pieces of odd sizes.
    func whole(_ body: ByteBuffer, in size: Int = 50_001) throws -> ByteBuffer { try parts(of: body, in: size).sealed }

    /// Seals a whole body, and returns the texts that are to follow.
    func parts(of body: ByteBuffer, in size: Int = 50_001) throws -> (sealed: ByteBuffer, texts: FormTexts?) {
        var (sealer, output) = (self, [UInt8]())
        try sealer.begin(into: &output)
        var rest = body
        while let piece = rest.readSlice(length: min(size, rest.readableBytes)), piece.readableBytes > 0 {
            try piece.withUnsafeReadableBytes { try sealer.seal($0, into: &output) }
        }
        try sealer.end(into: &output)
        return (ByteBuffer(bytes: output), sealer.texts)
    }
}

extension SealedFile.Opener {
    /// Opens a whole sealed file, or its range, in pieces of odd sizes.
    func whole(_ file: ByteBuffer) throws -> ByteBuffer {
        var (opener, output) = (self, [UInt8]())
        var rest = file
        while let piece = rest.readSlice(length: min(40_009, rest.readableBytes)), piece.readableBytes > 0 {
            try piece.withUnsafeReadableBytes { try opener.open($0, into: &output) }
        }
        try opener.end(into: &output)
        return ByteBuffer(bytes: output)
    }
}
