import Foundation
import TestKit
import Testing
import TransportsClient
import TransportsCore
import TransportsService

/// The processor of a service: every request gets a reply that can be read.
@Suite struct ServiceTests {
    private static func result(_ reply: Data) throws -> (id: UInt64?, result: Result<String, TesseractError>) {
        let envelope = try Serializer.value(ReplyEnvelope<String>.self, in: reply).get()
        return (envelope.id, envelope.result)
    }

    private static func ask(_ processor: TransportProcessor, _ data: Data) async throws
        -> (id: UInt64?, result: Result<String, TesseractError>)
    {
        try result(try await processor.process(data: data).get())
    }

    @Test(arguments: Serializer.allCases)
    func servicesAnswerInTheFormOfTheRequest(_ serializer: Serializer) async throws {
        let link = MemoryLink()
        let service = TransportsService.Tesseract().service(EchoService())
            .transport(TransportsService.MemoryTransport(link))
        let client = TransportsClient.Tesseract(delegate: SingleTransportDelegate(), serializer: serializer)
            .transport(TransportsClient.MemoryTransport(link)).service(EchoClient.self)
        #expect(await client.echo("text\0 🐢") == .success("text\0 🐢"))
        #expect(await client.sum([1, 2, .max - 3]) == .success(.max))
        #expect(await client.refuse() == .failure(.custom(code: 12, reason: "refused: ~~~ \0 ::")))
        guard case .failure(.unavailable) = await client.unknown() else {
            Issue.record("an unknown method has a value")
            return
        }
        let head = RequestHead(proto: "echo/1", method: "echo", id: 5)
        let request = try serializer.data(RequestEnvelope(head: head, request: "x")).get()
        let reply = try await (EchoService.processor()).process(data: request).get()
        #expect(reply.starts(with: Data(serializer.rawValue.utf8)))
        await service.close()
    }

    /// Integers above 2^63 - 1 are no doubles on the way.
    @Test(arguments: Serializer.allCases) func integersComeBackAsTheyWere(_ serializer: Serializer) throws {
        let values: [UInt64] = [0, 1 << 53 + 1, 1 << 63 - 1, 1 << 63, 1 << 63 + 1, .max]
        let head = RequestHead(proto: "echo/1", method: "m", id: .max)
        let data = try serializer.data(RequestEnvelope(head: head, request: values)).get()
        let read = try Serializer.value(RequestEnvelope<[UInt64]>.self, in: data).get()
        #expect(read.head.id == .max && read.request == values)
    }

    /// B2, 10: each of these ended the original's process.
    @Test(
        arguments: [
            [], [0x6A], [0x6A, 0x73], [0x6A, 0x73, 0x6F], Array("json".utf8), Array("cbor".utf8), Array("xml {}".utf8),
            Array("json{".utf8), Array("json{}".utf8), Array("json[1,2]".utf8), Array("jsonnull".utf8),
            Array("json{\"protocol\":1,\"method\":2,\"id\":-1}".utf8), Array("cbor".utf8) + [0xFF],
            Array("cbor".utf8) + [UInt8](repeating: 0x81, count: 100_000),
            Array("json".utf8) + [UInt8](repeating: 0x5B, count: 100_000),
        ] as [[UInt8]])
    func whatIsNoEnvelopeGetsAnErrorEnvelope(_ bytes: [UInt8]) async throws {
        let reply = try await Self.ask(EchoService.processor(), Data(bytes))
        #expect(reply.id == nil)
        guard case .failure(.serialization) = reply.result else {
            Issue.record("\(reply)")
            return
        }
    }

    @Test func otherServicesAndFormsAreErrorsWithTheIDOfTheRequest() async throws {
        let processor = try await EchoService.processor()
        func ask(_ text: String) async throws -> (id: UInt64?, result: Result<String, TesseractError>) {
            try await Self.ask(processor, Data("json\(text)".utf8))
        }
        let other = try await ask("{\"protocol\":\"other\",\"method\":\"echo\",\"id\":7,\"request\":\"\"}")
        #expect(other.id == 7 && other.result == .failure(.unavailable(reason: "there is no service 'other'")))
        let missing = try await ask("{\"protocol\":\"echo/1\",\"method\":\"echo\",\"id\":8}")
        #expect(
            missing.id == 8
                && missing.result
                    == .failure(.serialization(reason: "no json of the expected form: 'request' is missing"))
        )
        let wrong = try await ask("{\"protocol\":\"echo/1\",\"method\":\"echo\",\"id\":9,\"request\":5}")
        #expect(
            wrong.id == 9
                && wrong.result
                    == .failure(.serialization(reason: "no json of the expected form: 'request' has another type"))
        )
    }

    @Test func aRequestAboveTheLimitGetsAnErrorEnvelope() async throws {
        let reply = try await Self.ask(EchoService.processor(), Data("json".utf8) + Data(count: 17 << 20))
        guard case .failure(.tooLarge) = reply.result else {
            Issue.record("\(reply)")
            return
        }
    }

    /// Random bytes, and envelopes with random changes. `PAWL_LONG` asks for a million.
    @Test func randomRequestsGetAReplyAndTheServiceLives() async throws {
        let processor = try await EchoService.processor()
        var generator = SeededGenerator(seed: 2010)
        let rounds = ProcessInfo.processInfo.environment["PAWL_LONG"] == nil ? 5000 : 1_000_000
        let good = try Serializer.allCases.map { serializer in
            let head = RequestHead(proto: "echo/1", method: "echo", id: 5)
            return [UInt8](try serializer.data(RequestEnvelope(head: head, request: "hello")).get())
        }
        for round in 0..<rounds {
            var bytes = good[round & 1]
            if round.isMultiple(of: 3) { bytes = Array(bytes.prefix(4)) + generator.bytes(generator.below(40)) }
            for _ in 0..<generator.below(3) where !bytes.isEmpty {
                bytes[generator.below(bytes.count)] = UInt8(generator.below(256))
            }
            let reply = try await processor.process(data: Data(bytes)).get()
            _ = try Serializer.value(ReplyHead.self, in: reply).get()
        }
        #expect(try await Self.ask(processor, Data(good[0])).result == .success("hello"))
    }

    @Test func aServiceThatIsAddedLaterIsAnswered() async throws {
        let link = MemoryLink()
        let service = TransportsService.Tesseract().transport(TransportsService.MemoryTransport(link))
        let transport = TransportsClient.MemoryTransport(link)
        #expect(await !transport.status(proto: "echo/1").isReady)
        service.service(EchoService())
        #expect(await transport.status(proto: "echo/1") == .ready)
        #expect((try? await service.ready().get()) != nil)
        await service.close()
        #expect(await !transport.status(proto: "echo/1").isReady)
    }

    /// The document: the bound transport is dropped with the `Tesseract`.
    @Test func theEndOfATesseractStopsItsTransports() async throws {
        let link = MemoryLink()
        let transport = TransportsClient.MemoryTransport(link)
        var service: TransportsService.Tesseract? = TransportsService.Tesseract().service(EchoService())
            .transport(TransportsService.MemoryTransport(link))
        #expect(await transport.status(proto: "echo/1") == .ready)
        #expect(service != nil)
        service = nil
        #expect(await !transport.status(proto: "echo/1").isReady)
    }
}
