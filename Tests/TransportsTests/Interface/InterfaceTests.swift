// The C interface with tables that this file makes, so that every wrong one can be made.

import CTransports
import Foundation
import Synchronization
import TestThreads
import Testing
import TransportsClient
import TransportsCore
import TransportsService

/// What the C functions of these tests count.
private final class Counters: Sendable {
    static let retained = Atomic<Int>(0)
    static let released = Atomic<Int>(0)
    static let freed = Atomic<Int>(0)
    static let made = Atomic<Int>(0)
    static let cancelled = Atomic<Int>(0)
    static let operationsReleased = Atomic<Int>(0)
}

private func buffer(_ bytes: [UInt8]) -> pawl_buffer {
    Counters.made.add(1, ordering: .sequentiallyConsistent)
    let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: max(1, bytes.count))
    memory.initialize(from: bytes, count: bytes.count)
    return pawl_buffer(data: UnsafePointer(memory), count: bytes.count, owner: memory) { owner, _, _ in
        Counters.freed.add(1, ordering: .sequentiallyConsistent)
        owner?.assumingMemoryBound(to: UInt8.self).deallocate()
    }
}

/// A completion that may be called on any thread.
private struct Held: @unchecked Sendable {
    let completion: pawl_completion

    func finish(_ code: Int32, _ payload: [UInt8], _ reason: String) {
        var outcome = pawl_outcome(code: code, payload: buffer(payload), reason: buffer(Array(reason.utf8)))
        completion.done(completion.context, &outcome)
    }
}

private func operation() -> pawl_operation {
    pawl_operation(
        object: nil, cancel: { _ in Counters.cancelled.add(1, ordering: .sequentiallyConsistent) },
        release: { _ in Counters.operationsReleased.add(1, ordering: .sequentiallyConsistent) })
}

private func head(_ size: Int, abi: UInt32 = 1) -> pawl_table {
    pawl_table(
        abi: abi, size: UInt32(size), retain: { _ in Counters.retained.add(1, ordering: .sequentiallyConsistent) },
        release: { _ in Counters.released.add(1, ordering: .sequentiallyConsistent) })
}

private let heldReceives = Mutex<[Held]>([])

private func connectionTable() -> StaticTable<pawl_client_connection_table> {
    StaticTable(
        pawl_client_connection_table(
            table: head(MemoryLayout<pawl_client_connection_table>.size),
            send: { _, request, completion in
                let (held, text) = (Held(completion: completion), request.copy)
                Thread.detachNewThread {
                    text == Data("fail".utf8) ? held.finish(1007, [], "7") : held.finish(0, [], "")
                }
                return operation()
            },
            receive: { _, completion in
                heldReceives.withLock { $0.append(Held(completion: completion)) }
                return operation()
            }))
}

private func transportTable(
    size: Int = MemoryLayout<pawl_client_transport_table>.size, abi: UInt32 = 1, hasStatus: Bool = true
) -> StaticTable<pawl_client_transport_table> {
    StaticTable(
        pawl_client_transport_table(
            table: head(size, abi: abi),
            id: { _, value, _ in
                value?.pointee = buffer(Array("own".utf8))
                return true
            },
            status: hasStatus
                ? { _, _, completion in
                    let held = Held(completion: completion)
                    Thread.detachNewThread { held.finish(0, [], "") }
                    return operation()
                } : nil,
            connect: { _, _, value, _ in
                value?.pointee = pawl_client_connection(object: nil, table: connectionTable().pointer)
                return true
            }))
}

/// One after the other: the counters are the process's.
@Suite(.blocking, .serialized) struct InterfaceTests {
    private static func object(_ table: StaticTable<pawl_client_transport_table>) -> pawl_client_transport {
        pawl_client_transport(object: nil, table: table.pointer)
    }

    private static func refusal(_ handle: pawl_client_transport) -> TesseractError? {
        do {
            _ = try TransportsClient.CoreTransport(TesseractError.self) { value, _ in
                value.pointee = handle
                return true
            }
            return nil
        } catch { return error as? TesseractError }
    }

    @Test func tablesOfAnotherVersionOrSizeAreRefused() {
        func isIncompatible(_ error: TesseractError?) -> Bool {
            if case .incompatible? = error { true } else { false }
        }
        #expect(isIncompatible(Self.refusal(pawl_client_transport(object: nil, table: nil))))
        for version: UInt32 in [0, 2, .max] {
            #expect(isIncompatible(Self.refusal(Self.object(transportTable(abi: version)))))
        }
        for size in [0, 8, 24, MemoryLayout<pawl_client_transport_table>.size - 1] {
            #expect(isIncompatible(Self.refusal(Self.object(transportTable(size: size)))))
        }
        #expect(isIncompatible(Self.refusal(Self.object(transportTable(hasStatus: false)))))
        // A longer table has functions that this version does not know.
        #expect(Self.refusal(Self.object(transportTable(size: 4096))) == nil)
    }

    @Test func aConstructorsErrorIsThrownWithCodeAndReason() {
        for (code, error) in [
            (Int32(1041), TesseractError.custom(code: 41, reason: "a\0 ~~~ ::")), (1, .panic(reason: "a\0 ~~~ ::")),
            (2, .cancelled), (-5, .weird(reason: "a\0 ~~~ ::")), (999, .weird(reason: "a\0 ~~~ ::")),
        ] {
            let freed = Counters.freed.load(ordering: .sequentiallyConsistent)
            #expect(throws: error) {
                try TransportsClient.CoreTransport(TesseractError.self) { _, failure in
                    failure.pointee = pawl_error(code: code, reason: buffer(Array("a\0 ~~~ ::".utf8)))
                    return false
                }
            }
            #expect(Counters.freed.load(ordering: .sequentiallyConsistent) == freed + 1)
        }
    }

    /// Every buffer is freed once, every handle released once, and the object with its last use.
    @Test func buffersOperationsAndObjectsAreGivenBackOnce() async throws {
        let before = (
            Counters.made.load(ordering: .sequentiallyConsistent),
            Counters.freed.load(ordering: .sequentiallyConsistent),
            Counters.released.load(ordering: .sequentiallyConsistent),
            Counters.operationsReleased.load(ordering: .sequentiallyConsistent)
        )
        do {
            let transport = try TransportsClient.CoreTransport(TesseractError.self) { value, _ in
                value.pointee = Self.object(transportTable())
                return true
            }
            #expect(transport.id == "own")
            #expect(await transport.status(proto: "p") == .ready)
            let connection = transport.connect(proto: "p")
            for _ in 0..<100 { try await connection.send(request: Data()).get() }
            #expect(await connection.send(request: Data("fail".utf8)).failure == .custom(code: 7, reason: "7"))
            let receiver = Task { await connection.receive() }
            Self.held().finish(0, [1, 2], "")
            #expect(await receiver.value == .success(Data([1, 2])))
        }
        #expect(Counters.made.load(ordering: .sequentiallyConsistent) - before.0 == 1 + 2 * 103)
        #expect(
            Counters.freed.load(ordering: .sequentiallyConsistent) - before.1
                == Counters.made.load(ordering: .sequentiallyConsistent) - before.0)
        // The transport and its connection.
        #expect(Counters.released.load(ordering: .sequentiallyConsistent) - before.2 == 2)
        #expect(Counters.operationsReleased.load(ordering: .sequentiallyConsistent) - before.3 == 103)
    }

    private static func held() -> Held {
        while true {
            if let held = heldReceives.withLock({ $0.popLast() }) { return held }
            Thread.sleep(forTimeInterval: 0.001)
        }
    }

    private static func connection() throws -> any TransportsClient.Connection {
        try TransportsClient.CoreTransport(TesseractError.self) { value, _ in
            value.pointee = object(transportTable())
            return true
        }.connect(proto: "p")
    }

    /// The result of an operation is the one that `done` brings, also after `cancel`; the handle is released after it.
    @Test func cancelIsPassedOnAndDoneStillDecides() async throws {
        let connection = try Self.connection()
        let released = Counters.operationsReleased.load(ordering: .sequentiallyConsistent)
        let cancelled = Counters.cancelled.load(ordering: .sequentiallyConsistent)
        let receiver = Task { await connection.receive() }
        let held = Self.held()
        receiver.cancel()
        while Counters.cancelled.load(ordering: .sequentiallyConsistent) == cancelled { await Task.yield() }
        #expect(Counters.operationsReleased.load(ordering: .sequentiallyConsistent) == released)
        held.finish(0, [9], "")
        #expect(await receiver.value == .success(Data([9])))
        #expect(Counters.operationsReleased.load(ordering: .sequentiallyConsistent) == released + 1)
    }

    /// Cancel and done at the same moment, many times, on many threads.
    @Test func cancelAndDoneAtOnceReleaseTheHandleOnce() async throws {
        let connection = try Self.connection()
        let released = Counters.operationsReleased.load(ordering: .sequentiallyConsistent)
        for _ in 0..<300 {
            let receiver = Task { await connection.receive() }
            let held = Self.held()
            Thread.detachNewThread { held.finish(0, [9], "") }
            receiver.cancel()
            #expect(await receiver.value == .success(Data([9])))
        }
        while Counters.operationsReleased.load(ordering: .sequentiallyConsistent) < released + 300 {
            await Task.yield()
        }
        #expect(Counters.operationsReleased.load(ordering: .sequentiallyConsistent) == released + 300)
    }

    /// B2, 8: no pointer, no bytes, and a count without a pointer.
    @Test func emptyAndImpossiblePayloadsEndNothing() async throws {
        let connection = try Self.connection()
        for (buffer, isEmpty) in [
            (pawl_buffer(data: nil, count: 0, owner: nil, free: nil), true),
            (pawl_buffer(data: nil, count: 5, owner: nil, free: nil), false),
            (pawl_buffer(data: nil, count: .max, owner: nil, free: nil), false),
        ] {
            let receiver = Task { await connection.receive() }
            let held = Self.held()
            var outcome = pawl_outcome(code: 0, payload: buffer, reason: .empty)
            held.completion.done(held.completion.context, &outcome)
            let reply = await receiver.value
            if isEmpty { #expect(reply == .success(Data())) } else { #expect((try? reply.get()) == nil) }
        }
    }

    @Test func resultsFromManyThreadsArrive() async throws {
        let connection = try Self.connection()
        let replies = await withTaskGroup(of: Result<Data, TesseractError>.self) { group in
            for _ in 0..<16 { group.addTask { await connection.receive() } }
            for number in 0..<16 {
                let held = Self.held()
                Thread.detachNewThread { held.finish(0, [UInt8(number)], "") }
            }
            return await group.reduce(into: Set<Data>()) { replies, reply in
                if case .success(let data) = reply { replies.insert(data) }
            }
        }
        #expect(replies == Set((0..<16).map { Data([UInt8($0)]) }))
    }

    /// B2, 5 and 6: what waits keeps the object, and nothing keeps it afterwards.
    @Test func aSwiftTransportLivesAsLongAsItsCoreAndNoLonger() async throws {
        weak var kept: TransportsClient.MemoryTransport?
        do {
            var core: ClientTransport? = {
                let transport = TransportsClient.MemoryTransport(MemoryLink())
                kept = transport
                return transport.toCore()
            }()
            #expect(kept != nil)
            let wrapped = try TransportsClient.CoreTransport(try #require(core))
            core = nil
            let connection = wrapped.connect(proto: "p")
            #expect((try? await connection.exchange(request: Data()).get()) == nil)
            #expect(kept != nil)
        }
        // The last reference may be on the stack of a task that ends.
        for _ in 0..<10_000 where kept != nil { await Task.yield() }
        #expect(kept == nil)
    }

    /// The same object may be added twice: every core has a reference of its own.
    @Test func aCoreIsNoOneTimeTicket() async throws {
        let transport = TransportsClient.MemoryTransport(MemoryLink())
        let (first, second) = (transport.toCore(), transport.toCore())
        #expect(try TransportsClient.CoreTransport(first).id == "memory")
        #expect(try TransportsClient.CoreTransport(second).id == "memory")
        #expect(try TransportsClient.CoreTransport(first).toCore() === first)
    }
}

extension Result where Failure == TesseractError {
    var failure: TesseractError? { if case .failure(let error) = self { error } else { nil } }
}
