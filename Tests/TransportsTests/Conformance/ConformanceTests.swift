// What the document promises of every transport, over all of them. Tests of one transport's own limits are elsewhere.

import Foundation
import TestKit
import Testing
import TransportsClient
import TransportsCore
import TransportsService

@Suite struct ConformanceTests {
    @Test(arguments: Kind.available)
    func theStatusTellsWhetherTheProtocolIsThere(_ kind: Kind) async throws {
        let rig = try await Rig.start(kind, Workshop().processor)
        #expect(await rig.client.status(proto: Workshop.proto) == .ready)
        guard case .unavailable(let reason) = await rig.client.status(proto: "other/1") else {
            Issue.record("another protocol is ready")
            return
        }
        #expect(reason.contains("other/1"))
        await rig.bound.close()
        #expect(await !rig.client.status(proto: Workshop.proto).isReady)
    }

    @Test(arguments: Kind.available)
    func messagesOfEverySizeArriveWhole(_ kind: Kind) async throws {
        let rig = try await Rig.start(kind, Workshop().processor)
        let connection = rig.client.connect(proto: Workshop.proto)
        var generator = SeededGenerator(seed: 4)
        for size in [0, 1, 2, 3, 4, 125, 126, 127, 4096, 65_535, 65_536, 1 << 20, 3 << 20] {
            let request = Data(generator.bytes(size))
            try await connection.send(request: request).get()
            #expect(await connection.receive() == .success(request), "\(size) bytes")
        }
    }

    @Test(arguments: Kind.available)
    func repliesComeInTheOrderOfTheRequests(_ kind: Kind) async throws {
        let workshop = Workshop()
        let rig = try await Rig.start(kind, workshop.processor)
        let connection = rig.client.connect(proto: Workshop.proto)
        let names = (0..<20).map { "r\($0)" }
        for name in names { try await connection.send(request: Data("hold \(name)".utf8)).get() }
        for name in names { await workshop.hasStarted(name) }
        // The service finishes the last one first.
        for name in names.reversed() { workshop.release(name) }
        for name in names { #expect(await connection.receive() == .success(Data("hold \(name)".utf8))) }
    }

    /// Through services, which share one connection: with one exchange at a time where the transport allows no more.
    @Test(arguments: Kind.available)
    func aThousandCallsAtOnceGetTheirOwnReplies(_ kind: Kind) async throws {
        let processor = try await EchoService.processor()
        let rig = try await Rig.start(kind, processor)
        // All calls wait for one handshake.
        let client = TransportsClient.Tesseract(delegate: SingleTransportDelegate(), limits: .patient)
            .transport(any: rig.client)
        let echo = client.service(EchoClient.self)
        let wrong = await withTaskGroup(of: String?.self) { group in
            for number in 0..<1000 {
                group.addTask {
                    let reply = await echo.echo("text \(number)")
                    return reply == .success("text \(number)") ? nil : "\(number): \(reply)"
                }
            }
            return await group.reduce(into: [String]()) { wrong, one in if let one { wrong.append(one) } }
        }
        #expect(wrong.isEmpty, "\(wrong.count) calls, the first is \(wrong.first ?? "")")
    }

    /// B2, 11: in the original the next call got the reply of the cancelled one.
    @Test(arguments: Kind.available)
    func aCancelledReceiveTakesItsReplyWithIt(_ kind: Kind) async throws {
        let workshop = Workshop()
        let rig = try await Rig.start(kind, workshop.processor)
        let connection = rig.client.connect(proto: Workshop.proto)
        try await connection.send(request: Data("deaf a".utf8)).get()
        await workshop.hasStarted("a")
        let receiver = Task { await connection.receive() }
        receiver.cancel()
        #expect(await receiver.value == .failure(.cancelled))
        try await connection.send(request: Data("echo b".utf8)).get()
        workshop.release("a")
        #expect(await connection.receive() == .success(Data("echo b".utf8)))
    }

    @Test(arguments: Kind.available)
    func aTaskThatIsCancelledBetweenSendAndReceiveShiftsNoReply(_ kind: Kind) async throws {
        let workshop = Workshop()
        let rig = try await Rig.start(kind, workshop.processor)
        let connection = rig.client.connect(proto: Workshop.proto)
        let (sent, go) = (Once<Void>(), Once<Void>())
        let task = Task {
            let isSent = await connection.send(request: Data("echo lost".utf8))
            sent.fulfil(())
            await go.value()
            return (isSent, await connection.receive())
        }
        await sent.value()
        task.cancel()
        go.fulfil(())
        let (isSent, reply) = await task.value
        #expect(isSent.isSuccess && reply == .failure(.cancelled))
        for number in 0..<20 {
            let request = Data("echo \(number)".utf8)
            #expect(await connection.exchange(request: request) == .success(request))
        }
    }

    @Test(arguments: Kind.available)
    func cancellationReachesTheProcessor(_ kind: Kind) async throws {
        let workshop = Workshop()
        let rig = try await Rig.start(kind, workshop.processor)
        let connection = rig.client.connect(proto: Workshop.proto)
        let task = Task { await connection.exchange(request: Data("hold c".utf8)) }
        await workshop.hasStarted("c")
        task.cancel()
        #expect(await task.value == .failure(.cancelled))
        #expect(await workshop.wasCancelled("c"))
    }

    @Test(arguments: Kind.available)
    func aCancelledTaskSendsNothing(_ kind: Kind) async throws {
        let workshop = Workshop()
        let rig = try await Rig.start(kind, workshop.processor)
        let connection = rig.client.connect(proto: Workshop.proto)
        #expect(await connection.exchange(request: Data("echo".utf8)) == .success(Data("echo".utf8)))
        let go = Once<Void>()
        let task = Task {
            await go.value()
            return await connection.exchange(request: Data("echo".utf8))
        }
        task.cancel()
        go.fulfil(())
        #expect(await task.value == .failure(.cancelled))
        #expect(await connection.exchange(request: Data("echo".utf8)) == .success(Data("echo".utf8)))
        #expect(workshop.count == 2)
    }

    /// B2, 7 and 9: in the original NUL and ` ~~~ ` ended the process, and ` :: ` lost the code.
    @Test(
        arguments: Kind.available,
        [
            TesseractError.custom(code: 0, reason: ""), .custom(code: 41, reason: "a\0b"),
            .custom(code: 1, reason: "a ~~~ b ~~~ c"), .custom(code: 2, reason: "1 :: 2 :: 3"),
            .custom(code: 3, reason: "🐢 ñ \u{202E}"),
            .custom(code: 4, reason: String(repeating: "long ", count: 200_000)),
            .serialization(reason: "x"), .cancelled, .busy, .weird(reason: "\n\r\u{7F}"),
        ])
    func errorsArriveWithCodeAndText(_ kind: Kind, _ error: TesseractError) async throws {
        let rig = try await Rig.start(kind, Workshop(error: error).processor)
        let connection = rig.client.connect(proto: Workshop.proto)
        #expect(await connection.exchange(request: Data("fail".utf8)) == .failure(error))
        #expect(await connection.exchange(request: Data("echo".utf8)) == .success(Data("echo".utf8)))
    }

    @Test(arguments: Kind.available)
    func messagesAboveTheLimitAreRefused(_ kind: Kind) async throws {
        var limits = TransportLimits.patient
        limits.message = 1000
        let rig = try await Rig.start(kind, Workshop().processor, limits: limits)
        let connection = rig.client.connect(proto: Workshop.proto)
        guard case .failure(.tooLarge) = await connection.exchange(request: Data(repeating: 32, count: 1001)) else {
            Issue.record("a request of 1001 bytes passes")
            return
        }
        guard case .failure(.tooLarge) = await connection.exchange(request: Data("big 1001".utf8)) else {
            Issue.record("a reply of 1001 bytes passes")
            return
        }
        let largest = Data(repeating: 32, count: 1000)
        #expect(await connection.exchange(request: largest) == .success(largest))
        #expect(await connection.exchange(request: Data("big 1000".utf8)) == .success(Data(repeating: 1, count: 1000)))
    }

    @Test(arguments: Kind.available)
    func closeWaitsForRequestsUnderWay(_ kind: Kind) async throws {
        let workshop = Workshop()
        let rig = try await Rig.start(kind, workshop.processor)
        let connection = rig.client.connect(proto: Workshop.proto)
        try await connection.send(request: Data("deaf d".utf8)).get()
        await workshop.hasStarted("d")
        let closed = Once<Void>()
        let closing = Task {
            await rig.bound.close()
            closed.fulfil(())
        }
        // New clients are refused from now on, and the old request is still there.
        try await eventuallyAsync("new clients are refused") {
            await !rig.client.status(proto: Workshop.proto).isReady
        }
        #expect(closed.current == nil)
        workshop.release("d")
        #expect(await connection.receive() == .success(Data("deaf d".utf8)))
        await closing.value
        let late = await connection.exchange(request: Data("echo".utf8))
        #expect((try? late.get()) == nil)
    }

    /// The end of the bound transport stops it, although a request that ignores cancellation is under way.
    @Test(arguments: Kind.available)
    func theEndOfABoundTransportStopsItAndDropsTheProcessor(_ kind: Kind) async throws {
        let workshop = Workshop()
        weak var dropped: TransportProcessor?
        var rig: Rig? = try await {
            let processor = workshop.processor
            dropped = processor
            return try await Rig.start(kind, processor)
        }()
        let client = try #require(rig?.client)
        let connection = client.connect(proto: Workshop.proto)
        try await connection.send(request: Data("deaf e".utf8)).get()
        await workshop.hasStarted("e")
        let count = workshop.count
        rig = nil
        let reply = await connection.receive()
        guard case .failure(let error) = reply, error.endsConnection else {
            Issue.record("\(reply) after the end")
            return
        }
        #expect(await !client.status(proto: Workshop.proto).isReady)
        #expect((try? await client.connect(proto: Workshop.proto).exchange(request: Data("echo".utf8)).get()) == nil)
        #expect(workshop.count == count)
        workshop.release("e")
        try await eventuallyAsync("the processor is dropped") { dropped == nil }
    }

    @Test(arguments: Kind.available)
    func aServiceThatComesBackIsReachedByNewConnections(_ kind: Kind) async throws {
        let rig = try await Rig.start(kind, Workshop().processor)
        await rig.bound.close()
        #expect(
            (try? await rig.client.connect(proto: Workshop.proto).exchange(request: Data("echo".utf8)).get()) == nil)
        let bound = try await rig.rebind(Workshop().processor)
        #expect(await rig.client.status(proto: Workshop.proto) == .ready)
        let reply = await rig.client.connect(proto: Workshop.proto).exchange(request: Data("echo".utf8))
        #expect(reply == .success(Data("echo".utf8)))
        await bound.close()
    }

    @Test(arguments: Kind.available)
    func aReceiveWithoutARequestFailsAndChangesNothing(_ kind: Kind) async throws {
        let rig = try await Rig.start(kind, Workshop().processor)
        let connection = rig.client.connect(proto: Workshop.proto)
        guard case .failure(.weird) = await connection.receive() else {
            Issue.record("something was received")
            return
        }
        #expect(await connection.exchange(request: Data("echo".utf8)) == .success(Data("echo".utf8)))
    }
}

extension Result {
    var isSuccess: Bool { (try? get()) != nil }
}
