import TestKit
import Testing

@testable import RequestQueue

/// The attributes of a request, their defaults, and their stored form.
@Suite struct AttributeTests {
    @Test(arguments: HTTPMethod.allCases) func defaults(_ method: HTTPMethod) {
        let config = APIRequestConfig(method: method, path: "/api/my_entity")
        #expect(APIRequestConfig(path: "/").method == .get)
        #expect(config.path == "/api/my_entity")
        #expect(config.host == nil && config.query.isEmpty && config.headers.isEmpty && config.body == nil)
        #expect(config.includeSessionKey)
        #expect(config.timeoutInterval == nil && config.tag == nil)
        #expect(config.deduplicate && config.background)
        let reads = method == .get || method == .head
        #expect(config.queueingStrategy.synchronization == (reads ? .concurrent : .barrier))
        #expect(
            config.queueingStrategy.retryPolicy
                == (reads ? [] : [.onNetworkInterrupt, .onRequestTimeout, .onTransientStatus]))
    }

    @Test func methodsOnTheWire() {
        #expect(HTTPMethod.allCases.map(\.name) == ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
        #expect(HTTPMethod.allCases.filter(\.isIdempotent) == [.get, .head, .put, .delete])
    }

    /// One rule of each kind.
    static let policies: [QueueingStrategy.RetryPolicy] = Array(
        sequence(first: .onNetworkInterrupt) { policy in
            switch policy {
            case .onNetworkInterrupt: .onRequestTimeout
            case .onRequestTimeout: .onTransientStatus
            case .onTransientStatus: .onCustomErrorCodes([418, -1])
            case .onCustomErrorCodes: .onAllErrorCodesExcept([404])
            case .onAllErrorCodesExcept: nil
            }
        })

    static let everything: APIRequestConfig = {
        var config = APIRequestConfig(
            method: .patch, path: "/rooms/\(message)/x y/%41", host: "https://other.example",
            query: ["a": "1", "list": .list([.text("x&y"), .reference(message)]), "gone": nil],
            headers: ["X-Reference": .reference(message)],
            body: .json([
                "text": "a \"quoted\" \\ line\nend\u{1}", "in": .reference(message), "n": 12, "yes": true, "none": nil,
                "deep": [["id": .reference(message)], .number("1.5e3")],
            ]), includeSessionKey: false, timeoutInterval: 1500, deduplicate: true, tag: "log",
            queueingStrategy: .init(
                synchronization: .concurrent,
                retryPolicy: policies),
            background: false)
        config.query.items.append(.init(name: "é", value: "ü"))
        return config
    }()

    private func queued(_ config: APIRequestConfig) -> QueuedRequest { queued(payload: .http(config)) }

    private func queued(payload: RequestPayload) -> QueuedRequest {
        QueuedRequest(
            id: 7, token: RequestToken(high: 1, low: 2), tenant: "t", lane: "l", payload: payload, creates: [message],
            dependsOn: [3, .max], identifiers: [1, 2, 3], idempotencyKey: "k", coalescingKey: "c", timestamp: 5)
    }

    @Test func formsAreReadBackWhole() throws {
        for body: RequestBody? in [
            nil, .rawData([0, 255]), .formURLEncoded(["a": .reference(message)]), Self.everything.body,
        ] {
            var config = Self.everything
            config.body = body
            let content = try RequestForm.decode(RequestForm.encode(queued(config)))
            #expect(
                content
                    == .init(
                        payload: .http(config), creates: [message], dependsOn: [3, .max], identifiers: [1, 2, 3],
                        coalescingKey: "c"))
        }
    }

    @Test func formsThatAreDamagedAreRefused() throws {
        let form = RequestForm.encode(queued(Self.everything))
        for length in 0..<form.count {
            #expect(throws: RequestForm.Unreadable.self) { try RequestForm.decode(Array(form.prefix(length))) }
        }
        #expect(throws: RequestForm.Unreadable.damaged) { try RequestForm.decode(form + [0]) }
        #expect(throws: RequestForm.Unreadable.version(9)) { try RequestForm.decode([9] + form.dropFirst()) }
        var random = SeededGenerator(seed: 42)
        var readable = 0
        for _ in 0..<20_000 {
            var bytes = form
            for _ in 0...Int(random.next() % 3) {
                bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
            }
            // Whatever can be read can be written and read again.
            guard let content = try? RequestForm.decode(bytes) else { continue }
            readable += 1
            var request = queued(payload: content.payload)
            request.creates = content.creates
            request.metadata = content.metadata
            request.dependsOn = content.dependsOn
            request.identifiers = content.identifiers
            request.coalescingKey = content.coalescingKey
            #expect(try RequestForm.decode(RequestForm.encode(request)) == content)
        }
        #expect(readable > 100)
    }

    /// Metadata and messages are told apart from what older programs can read.
    @Test func formsOfMetadataAndMessages() throws {
        var marked = queued(Self.everything)
        marked.metadata = [0, 255, 7]
        let carried = CarriedMessage(kind: "PRIVMSG", target: "bob", parts: [[1, 2], [], [0, 255]])
        var message = queued(payload: .message(carried))
        let plain = RequestForm.encode(message)
        message.metadata = [1]
        let forms = [RequestForm.encode(marked), plain, RequestForm.encode(message)]
        #expect(forms.map(\.first) == [3, 4, 4])
        #expect(try forms.map { try RequestForm.decode($0).metadata } == [[0, 255, 7], nil, [1]])
        #expect(try RequestForm.decode(forms[1]).payload == .message(carried))
        for form in forms {
            for length in 0..<form.count {
                #expect(throws: RequestForm.Unreadable.self) { try RequestForm.decode(Array(form.prefix(length))) }
            }
            #expect(throws: RequestForm.Unreadable.self) { try RequestForm.decode(form + [0]) }
        }
    }

    @Test func onlyACarriedQueueTakesMessages() throws {
        let new = NewRequest(CarriedMessage(kind: "SAY", target: "x", parts: [[1]]), tenant: "t", lane: nil)
        let (token, now) = (RequestToken(high: 1, low: 1), QueueTime(wall: 1, uptime: 1))
        var plain = QueueMachine(.init(), lease: 1)
        #expect(throws: QueueError.malformed("it is a message, and this queue sends HTTP requests only")) {
            try plain.append(new, token: token, now: now)
        }
        var settings = QueueMachine.Settings()
        settings.isCarried = true
        var carried = QueueMachine(settings, lease: 1)
        #expect(try carried.append(new, token: token, now: now) == .accepted(token))
        #expect(carried.request(token)?.payload == new.payload)
        // Nor does it send one that another owner of its tables has left.
        var contents = QueueContents()
        contents.requests = carried.requests
        var other = QueueMachine(.init(), lease: 1)
        other.restore(contents, now: now)
        let batch = other.turn(now: now)
        #expect(batch.dispatches.isEmpty && other.depth == 0)
        guard case .quarantine(1, _, _)? = batch.changes.first else {
            Issue.record("\(batch.changes)")
            return
        }
    }

    /// A raw path is told apart from a text, so that an older program does not encode it once more.
    @Test func formsOfRawPaths() throws {
        let raw = APIRequestPath.raw("/a%2Fb?c=[d]")
        let config = APIRequestConfig(
            method: .post, path: APIRequestPath(raw.segments + [.text("/x y"), .reference(message)]))
        let form = RequestForm.encode(queued(config))
        #expect(form.first == 2 && RequestForm.encode(queued(Self.everything)).first == 1)
        #expect(try RequestForm.decode(form).payload == .http(config))
        for length in 0..<form.count {
            #expect(throws: RequestForm.Unreadable.self) { try RequestForm.decode(Array(form.prefix(length))) }
        }
        #expect(try config.resolved { _ in "$" }.target == "/a%2Fb?c=[d]/x%20y%24")
        #expect(config.path != APIRequestPath("/a%2Fb?c=[d]/x y\(message)"))
    }

    @Test func headersOfOutcomes() {
        let headers: [ResolvedRequest.Header] = [.init("A", "1"), .init("B", "")]
        #expect(RequestForm.decodeHeaders(RequestForm.encode(headers)) == headers)
        #expect(RequestForm.decodeHeaders([0, 0, 0, 9]) == nil)
    }

    @Test func tokensAsText() {
        let token = RequestToken(high: 0x0123, low: .max)
        #expect(token.description == "0000000000000123ffffffffffffffff")
        #expect(RequestToken(token.description) == token)
        for text in [
            "", "xyz", String(repeating: "g", count: 32), token.description + "0", "+0000000000000123ffffffffffffff",
        ] {
            #expect(RequestToken(text) == nil || RequestToken(text)?.description == text)
        }
    }

    // MARK: Resolution

    @Test func referencesAreResolvedEverywhere() throws {
        let resolved = try Self.everything.resolved { $0 == message ? "$ev/1 \"é" : nil }
        #expect(
            resolved.target
                == "/rooms/%24ev%2F1%20%22%C3%A9/x%20y/%41?a=1&list%5B%5D=x%26y&list%5B%5D=%24ev%2F1%20%22%C3%A9&%C3%A9=%C3%BC"
        )
        #expect(resolved.headers.map(\.name) == ["X-Reference", "Content-Type"])
        #expect(resolved.headers.map(\.value) == ["$ev/1 \"é", "application/json"])
        #expect(
            String(decoding: resolved.body, as: UTF8.self)
                == #"{"text":"a \"quoted\" \\ line\u000Aend\u0001","in":"$ev/1 \"é","n":12,"yes":true,"none":null,"#
                + #""deep":[{"id":"$ev/1 \"é"},1.5e3]}"#)
        let form = APIRequestConfig(
            method: .post, path: "x", body: .formURLEncoded(["id": .reference(message), "b": "c d"]))
        let sent = try form.resolved { _ in "42" }
        #expect(sent.target == "/x" && String(decoding: sent.body, as: UTF8.self) == "id=42&b=c%20d")
    }

    @Test func whatIsNotKnownIsNeverWritten() {
        for config in [
            post("/m/\(message)"), APIRequestConfig(path: "/", query: ["q": .reference(message)]),
            APIRequestConfig(path: "/", headers: ["h": .list([.reference(message)])]),
            post("/", body: .formURLEncoded(["f": .reference(message)])),
            post("/", body: .json([["a": [.reference(message)]]])),
        ] {
            #expect(config.references == [message])
            #expect(throws: UnresolvedReference(reference: message)) { try config.resolved { _ in nil } }
        }
    }

    // MARK: What can never be sent

    @Test func flawsAreRefusedWithWords() {
        var deep: JSONValue = 1
        for _ in 0...JSONValue.maximumDepth { deep = [deep] }
        let flaws: [(NewRequest, String)] = [
            (NewRequest(post("/", body: .json(deep))), "deeper than 64"),
            (NewRequest(post("/", body: .json(.number("1.")))), "number"),
            (NewRequest(APIRequestConfig(path: "/", headers: ["a b": "c"])), "no name of a header"),
            (NewRequest(APIRequestConfig(path: "/", headers: ["a": "b\r\nc: d"])), "control character"),
            (NewRequest(APIRequestConfig(path: "/", timeoutInterval: 0)), "timeout"),
            (NewRequest(post("/\(message)"), creates: [message]), "creates itself"),
            (NewRequest(post("/"), creates: [message, message]), "twice"),
            (
                NewRequest(
                    post("/"), creates: (0..<65).map { EntityReference(type: "t", local: "\($0)") }), "more than 64"
            ),
        ]
        let world = QueueWorld()
        for (request, words) in flaws {
            do throws(QueueError) {
                try world.append(request)
                Issue.record("accepted: \(words)")
            } catch {
                #expect(error.description.contains(words), "\(error)")
            }
        }
        #expect(world.machine.depth == 0 && world.sent.isEmpty)
        #expect(world.machine.counts.refused == flaws.count)
    }

    @Test(arguments: ["0", "-0", "10", "1.5", "-1.25e+10", "1E9"]) func numbers(_ text: String) {
        #expect(RequestFlaw.isNumber(Array(text.utf8)))
    }

    @Test(arguments: ["", "-", "01", "1.", ".5", "+1", "1e", "0x1", "1 ", "NaN", "1,2"]) func noNumbers(_ text: String)
    {
        #expect(!RequestFlaw.isNumber(Array(text.utf8)))
    }
}
