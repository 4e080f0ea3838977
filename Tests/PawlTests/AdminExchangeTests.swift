import ArgumentParser
import Foundation
import NIOPosix
import PeerKit
import TestKit
import TestThreads
import Testing
import TransportsClient
import TransportsService

@testable import pawl

/// The admin service over transports: commands, subscriptions, and clients that leave.
@Suite(.blocking, .serialized) struct AdminExchangeTests {
    /// Subscriptions are not forgotten while a busy machine keeps a test waiting.
    private static let patience = Duration.seconds(3600)

    private let desk = AdminServiceTests.Desk()

    private func bytes(_ request: some Encodable) throws -> Data { try JSONEncoder().encode(request) }

    private func subscribe(_ admin: AdminExchange, every: Double = 3600) async throws -> UInt64 {
        let request = AdminExchange.Request.subscribe(AdminSubscription(json: false, every: every))
        let reply = try await admin.processor.process(data: try bytes(request)).get()
        return try JSONDecoder().decode(AdminExchange.Opened.self, from: reply).subscription
    }

    private func next(_ id: UInt64, _ admin: AdminExchange) async throws -> AdminEvent {
        let reply = try await admin.processor.process(data: try bytes(AdminExchange.Request.next(id))).get()
        return try JSONDecoder().decode(AdminEvent.self, from: reply)
    }

    @Test func aRequestHasOneReply() async throws {
        let admin = AdminExchange(desk.service, patience: Self.patience)
        let reply = try await admin.processor.process(data: try bytes(AdminRequest(words: ["users"]))).get()
        #expect(try JSONDecoder().decode(AdminAnswer.self, from: reply) == .text("users"))
        #expect(admin.processor.supports(proto: AdminExchange.proto) && !admin.processor.supports(proto: "chat/1"))
    }

    @Test func everyMalformedRequestIsRefusedInWords() async throws {
        let admin = AdminExchange(desk.service, patience: Self.patience)
        for request in AdminServiceTests.malformed {
            let reply = try await admin.processor.process(data: Data(request)).get()
            #expect(try JSONDecoder().decode(AdminAnswer.self, from: reply).exit == 64)
        }
        let long = Data(repeating: 0x20, count: AdminService.requestLimit + 1)
        let reply = try await admin.processor.process(data: long).get()
        #expect(try JSONDecoder().decode(AdminAnswer.self, from: reply).failure == .commandTooLong)
        #expect(admin.count == 0 && desk.performed.withLock { $0 }.isEmpty)
    }

    @Test func eventsComeOneByOneAndTheEndIsOne() async throws {
        let admin = AdminExchange(desk.service, patience: Self.patience)
        let id = try await subscribe(admin)
        #expect(try await next(id, admin) == .status(answer: .text("first")))
        desk.set("second")
        #expect(try await next(id, admin) == .status(answer: .text("second")))
        _ = await admin.processor.process(data: try bytes(AdminExchange.Request.end(id)))
        #expect(admin.count == 0)
        await #expect(throws: TesseractError.self) { try await next(id, admin) }
        // An interval that is refused has one event.
        let refused = try await subscribe(admin, every: 0)
        guard case .ended(let answer) = try await next(refused, admin) else {
            Issue.record("no end")
            return
        }
        #expect(answer.failure == .wrongInterval)
        await #expect(throws: TesseractError.self) { try await next(refused, admin) }
        #expect(admin.count == 0)
    }

    @Test func twoRequestsDoNotShareASubscription() async throws {
        let admin = AdminExchange(desk.service, patience: Self.patience)
        let id = try await subscribe(admin)
        _ = try await next(id, admin)
        let request = try bytes(AdminExchange.Request.next(id))
        let failures = await withTaskGroup(of: TesseractError?.self) { group in
            for _ in 0..<2 {
                group.addTask {
                    guard case .failure(let error) = await admin.processor.process(data: request) else { return nil }
                    return error
                }
            }
            // The second one is refused while the first one waits.
            var failures = [await group.next() ?? nil]
            admin.close()
            failures.append(await group.next() ?? nil)
            return failures
        }
        guard case .weird? = failures[0], case .closed? = failures[1] else {
            Issue.record("\(failures)")
            return
        }
    }

    /// A request is cancelled by its transport when the client's connection ends.
    @Test func aClientThatLeavesEndsItsSubscription() async throws {
        let admin = AdminExchange(desk.service, patience: Self.patience)
        let id = try await subscribe(admin)
        _ = try await next(id, admin)
        let waiting = Task { try await next(id, admin) }
        try await Task.sleep(for: .milliseconds(20))
        waiting.cancel()
        _ = try? await waiting.value
        #expect(admin.count == 0)
        // One that leaves between two requests is forgotten after a while.
        let hasty = AdminExchange(desk.service, patience: .milliseconds(50))
        _ = try await next(try await subscribe(hasty), hasty)
        _ = try await subscribe(hasty)
        try await eventuallyAsync("both are forgotten") { hasty.count == 0 }
    }

    /// The socket takes lines and transports, also from another program with the same product.
    @Test func theSocketTakesTransportsAndLines() async throws {
        let scratch = try ScratchDirectory()
        let path = scratch.file("pawl.sock")
        let server = try await AdminServer.start(
            path: path, group: MultiThreadedEventLoopGroup.singleton, service: desk.service)
        let transport = TransportsClient.UnixTransport(path: path)
        #expect(await transport.status(proto: AdminExchange.proto) == .ready)
        #expect(await transport.status(proto: "other/1") != .ready)
        let connection = transport.connect(proto: AdminExchange.proto)
        // Many at once over one connection.
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<20 {
                group.addTask {
                    let request = try JSONEncoder().encode(AdminRequest(words: ["users", "\(number)"]))
                    let reply = try await connection.exchange(request: request).get()
                    let answer = try JSONDecoder().decode(AdminAnswer.self, from: reply)
                    #expect(answer == .text("users \(number)"))
                }
            }
            try await group.waitForAll()
        }
        // A watcher whose gateway ends is told so.
        let client = AdminClient(try CommonOptions.parse(["--socket", path]))
        let watching = Task {
            try await client.watch(AdminSubscription(json: false, every: 3600)) { _ in true }
        }
        try await eventuallyAsync("the report is made") { desk.performed.withLock { $0.count } == 21 }
        await server.stop()
        let end = await watching.result
        #expect(throws: AdminClient.NoAnswer.self) { try end.get() }
        #expect(!FileManager.default.fileExists(atPath: path))
    }
}
