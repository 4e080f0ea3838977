import Foundation
import Synchronization
import TestKit
import Testing
import TransportsClient
import TransportsCore

/// A transport whose status and connections are the test's.
private final class OwnTransport: TransportsClient.Transport {
    let id: String
    private let statusOf: @Sendable () async -> Status
    private let connection: @Sendable () -> any Connection
    let connects = Atomic<Int>(0)

    init(
        _ id: String, status: @escaping @Sendable () async -> Status = { .ready },
        connection: @escaping @Sendable () -> any Connection = { OwnConnection() }
    ) {
        (self.id, statusOf, self.connection) = (id, status, connection)
    }

    func status(proto: ProtocolID) async -> Status { await statusOf() }

    func connect(proto: ProtocolID) -> any Connection {
        connects.add(1, ordering: .sequentiallyConsistent)
        return connection()
    }
}

/// A connection that answers from a list: one exchange at a time, as the document's connections are.
private final class OwnConnection: Connection {
    private let requests = Mutex<[Data]>([])
    private let answer: @Sendable (Data) async -> Result<Data, TesseractError>
    /// The original's transport in memory gave the latest reply first.
    private let isLastFirst: Bool

    init(
        isLastFirst: Bool = false,
        _ answer: @escaping @Sendable (Data) async -> Result<Data, TesseractError> = OwnConnection.echo
    ) {
        (self.isLastFirst, self.answer) = (isLastFirst, answer)
    }

    func send(request: Data) async -> Result<(), TesseractError> {
        requests.withLock { $0.append(request) }
        return .success(())
    }

    func receive() async -> Result<Data, TesseractError> {
        let request = requests.withLock { requests -> Data? in
            guard !requests.isEmpty else { return nil }
            return isLastFirst ? requests.removeLast() : requests.removeFirst()
        }
        guard let request else { return .failure(.weird(reason: "nothing sent")) }
        return await answer(request)
    }

    /// The reply of an echo service.
    static func echo(_ request: Data) async -> Result<Data, TesseractError> {
        Serializer.value(RequestEnvelope<String>.self, in: request).flatMap {
            Serializer.json.data(ReplyEnvelope(id: $0.head.id, result: .success($0.request)))
        }
    }
}

private final class OwnDelegate: TesseractDelegate {
    let seen = Mutex<[[String: Status]]>([])
    private let choose: @Sendable ([String: Status]) async -> String?

    init(_ choose: @escaping @Sendable ([String: Status]) async -> String?) { self.choose = choose }

    func select(transports: [String: Status]) async -> String? {
        seen.withLock { $0.append(transports) }
        return await choose(transports)
    }
}

@Suite struct SelectionTests {
    private static func echo(_ delegate: OwnDelegate, _ transports: OwnTransport...) -> EchoClient {
        var limits = TransportLimits()
        limits.status = .milliseconds(50)
        var tesseract = TransportsClient.Tesseract(delegate: delegate, limits: limits)
        for transport in transports { tesseract = tesseract.transport(transport) }
        return tesseract.service(EchoClient.self)
    }

    @Test func theDelegateSeesEveryStatusAndItsChoiceIsUsed() async {
        let (first, second) = (OwnTransport("first"), OwnTransport("second", status: { .unavailable("off") }))
        let delegate = OwnDelegate { _ in "second" }
        let echo = Self.echo(delegate, first, second)
        #expect(await echo.echo("a") == .success("a"))
        #expect(await echo.echo("b") == .success("b"))
        #expect(delegate.seen.withLock { $0 } == [["first": .ready, "second": .unavailable("off")]])
        #expect(first.connects.load(ordering: .sequentiallyConsistent) == 0)
        #expect(second.connects.load(ordering: .sequentiallyConsistent) == 1)
    }

    /// The original waited for every status, however long it took.
    @Test func aStatusThatNeverComesIsAnErrorAndStopsNothing() async {
        let never = Once<Status>()
        let delegate = OwnDelegate { _ in "good" }
        let echo = Self.echo(delegate, OwnTransport("hung", status: { await never.value() }), OwnTransport("good"))
        #expect(await echo.echo("a") == .success("a"))
        let seen = delegate.seen.withLock { $0.first?["hung"] }
        guard case .error(.timedOut)? = seen else {
            Issue.record("\(String(describing: seen))")
            return
        }
    }

    @Test func noChoiceIsACancellationAndTheNextRequestAsksAgain() async {
        let answers = Mutex<[String?]>([nil, "good"])
        let delegate = OwnDelegate { _ in answers.withLock { $0.removeFirst() } }
        let echo = Self.echo(delegate, OwnTransport("good"))
        #expect(await echo.echo("a") == .failure(.cancelled))
        #expect(await echo.echo("b") == .success("b"))
    }

    /// The original ended the process.
    @Test func anUnknownIDIsAnError() async {
        let echo = Self.echo(OwnDelegate { _ in "unknown" }, OwnTransport("good"))
        #expect(await echo.echo("a") == .failure(.unknownTransport(id: "unknown")))
    }

    /// The original kept a connection for ever, also after errors.
    @Test(arguments: [
        TesseractError.closed(reason: "lost"), .timedOut(reason: ""), .panic(reason: ""), .weird(reason: ""),
    ])
    func aConnectionThatFailedIsSelectedAgain(_ error: TesseractError) async {
        let calls = Atomic<Int>(0)
        let transport = OwnTransport("good") {
            .ready
        } connection: {
            OwnConnection { request in
                let call = calls.add(1, ordering: .sequentiallyConsistent).newValue
                return call == 2 ? .failure(error) : await OwnConnection.echo(request)
            }
        }
        let delegate = OwnDelegate { _ in "good" }
        let echo = Self.echo(delegate, transport)
        #expect(await echo.echo("a") == .success("a"))
        #expect(await echo.echo("b") == .failure(error))
        #expect(await echo.echo("c") == .success("c"))
        #expect(delegate.seen.withLock { $0.count } == 2)
        #expect(transport.connects.load(ordering: .sequentiallyConsistent) == 2)
    }

    @Test func anErrorOfTheServiceKeepsTheConnection() async {
        let transport = OwnTransport("good") {
            .ready
        } connection: {
            OwnConnection { _ in .failure(.custom(code: 1, reason: "no")) }
        }
        let delegate = OwnDelegate { _ in "good" }
        let echo = Self.echo(delegate, transport)
        for _ in 0..<3 { #expect(await echo.echo("a") == .failure(.custom(code: 1, reason: "no"))) }
        #expect(delegate.seen.withLock { $0.count } == 1)
    }

    /// All requests that wait share one selection, and each may give up alone.
    @Test func waitingRequestsShareTheSelectionAndAreCancelledAlone() async throws {
        let (asked, answer) = (Once<Void>(), Once<String?>())
        let delegate = OwnDelegate { _ in
            asked.fulfil(())
            return await answer.value()
        }
        let echo = Self.echo(delegate, OwnTransport("good"))
        let tasks = (0..<10).map { number in Task { await echo.echo("\(number)") } }
        await asked.value()
        tasks[0].cancel()
        #expect(await tasks[0].value == .failure(.cancelled))
        answer.fulfil("good")
        for (number, task) in tasks.enumerated().dropFirst() { #expect(await task.value == .success("\(number)")) }
        #expect(delegate.seen.withLock { $0.count } == 1)
    }

    /// B2, 11: a reply that nothing waits for any more, on a connection that knows nothing of ids.
    @Test(arguments: [false, true])
    func aLateReplyOfACancelledRequestIsSkipped(_ isLastFirst: Bool) async throws {
        let (started, gate) = (Once<Void>(), Once<Void>())
        let connection = OwnConnection(isLastFirst: isLastFirst) { request in
            let isHeld = request.range(of: Data("hold".utf8)) != nil
            if isHeld {
                started.fulfil(())
                await gate.value()
                return .failure(.cancelled)
            }
            return await OwnConnection.echo(request)
        }
        let echo = Self.echo(OwnDelegate { _ in "good" }, OwnTransport("good", connection: { connection }))
        let task = Task { await echo.echo("hold") }
        await started.value()
        task.cancel()
        gate.fulfil(())
        #expect(await task.value == .failure(.cancelled))
        for number in 0..<5 { #expect(await echo.echo("\(number)") == .success("\(number)")) }
    }

    @Test func repliesToEarlierRequestsAreSkipped() async throws {
        let first = Mutex<Data?>(nil)
        let connection = OwnConnection { request in
            // The first reply comes twice: again before that to the second request.
            await OwnConnection.echo(
                first.withLock {
                    $0 = $0 ?? request; return $0 ?? request
                })
        }
        let echo = Self.echo(OwnDelegate { _ in "good" }, OwnTransport("good", connection: { connection }))
        #expect(await echo.echo("a") == .success("a"))
        // Only earlier replies come, then the connection has nothing more: it is not kept.
        guard case .failure(.weird) = await echo.echo("b") else {
            Issue.record("the reply of another request was taken")
            return
        }
    }

    @Test func aReplyThatCannotBeReadIsAnError() async {
        for reply in ["", "js", "json", "json{}", "cbor\u{0}", "json{\"id\":99,\"response\":{}}"] {
            let echo = Self.echo(
                OwnDelegate { _ in "good" },
                OwnTransport("good", connection: { OwnConnection { _ in .success(Data(reply.utf8)) } }))
            let result = await echo.echo("a")
            #expect((try? result.get()) == nil, "\(reply)")
        }
    }

    @Test func theSingleTransportDelegateTakesTheOnlyReadyOne() async {
        let delegate = SingleTransportDelegate()
        #expect(await delegate.select(transports: [:]) == nil)
        #expect(await delegate.select(transports: ["a": .unavailable(""), "b": .ready]) == "b")
        #expect(await delegate.select(transports: ["a": .ready, "b": .ready]) == nil)
        #expect(await delegate.select(transports: ["a": .error(.cancelled)]) == nil)
    }
}
