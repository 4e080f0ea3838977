import ArgumentParser
import Foundation
import Glibc
import NIOPosix
import PeerKit
import TestKit
import TestThreads
import Testing

@testable import pawl

/// The admin service over its Unix socket: what comes and goes is what the function and the subscription give.
@Suite(.blocking, .serialized) struct AdminSocketTests {
    /// The shell's end of the socket, byte by byte. It blocks.
    private final class Shell {
        private let socket: Int32

        init(_ path: String) throws {
            socket = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            let connected = try UnixAddress.with(path) { [socket] in connect(socket, $0, $1) }
            guard connected == 0 else { throw PeerError("cannot connect to \(path)") }
        }

        deinit { close(socket) }

        func send(_ bytes: [UInt8]) {
            var sent = 0
            while sent < bytes.count {
                let count = bytes[sent...].withUnsafeBytes {
                    Glibc.send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
                }
                guard count > 0 else { return }
                sent += count
            }
        }

        /// Everything until the other end closes.
        func readToEnd() -> [UInt8] {
            var all: [UInt8] = []
            var chunk = [UInt8](repeating: 0, count: 65_536)
            while true {
                let count = recv(socket, &chunk, chunk.count, 0)
                guard count > 0 else { return all }
                all += chunk.prefix(count)
            }
        }
    }

    private let scratch: ScratchDirectory
    private let path: String
    private let desk = AdminServiceTests.Desk()

    init() throws {
        scratch = try ScratchDirectory()
        path = scratch.file("pawl.sock")
    }

    /// Runs a body while the desk's service is behind the socket.
    private func served(_ body: (AdminServer, AdminClient) async throws -> Void) async throws {
        let server = try await AdminServer.start(
            path: path, group: MultiThreadedEventLoopGroup.singleton, service: desk.service)
        let client = AdminClient(try CommonOptions.parse(["--socket", path]))
        do {
            try await body(server, client)
        } catch {
            await server.stop()
            throw error
        }
        await server.stop()
    }

    private func answer(_ shell: Shell) throws -> AdminAnswer {
        try JSONDecoder().decode(AdminAnswer.self, from: Data(shell.readToEnd()))
    }

    private static func subscription(every: Double) throws -> [UInt8] {
        AdminServer.subscribe + Array(try JSONEncoder().encode(AdminSubscription(json: false, every: every))) + [0x0A]
    }

    private static func events(_ bytes: [UInt8]) throws -> [AdminEvent] {
        try bytes.split(separator: 0x0A).map { try JSONDecoder().decode(AdminEvent.self, from: Data($0)) }
    }

    @Test func aCommandIsAnsweredAndTheConnectionCloses() async throws {
        try await served { _, client in
            #expect(try await client.send(["users", "--json"]) == .text("users --json"))
            // In pieces, and with a second line, which is not read.
            let shell = try Shell(path)
            for byte in Array(#"{"words":["audit"]}"#.utf8) { shell.send([byte]) }
            shell.send(Array("\n{\"words\":[\"drain\"]}\n".utf8))
            #expect(try answer(shell) == .text("audit"))
            #expect(desk.performed.withLock { $0 } == [["users", "--json"], ["audit"]])
        }
    }

    @Test func onlyTheOwnerMayOpenTheSocket() async throws {
        try await served { _, _ in
            let attributes = try FileManager.default.attributesOfItem(atPath: path)
            #expect(attributes[.posixPermissions] as? Int == 0o600)
        }
    }

    @Test func everyMalformedLineIsRefusedInWords() async throws {
        try await served { _, client in
            for request in AdminServiceTests.malformed where !request.contains(0x0A) {
                let shell = try Shell(path)
                shell.send(request + [0x0A])
                #expect(try answer(shell).failure == .notACommand)
                let watcher = try Shell(path)
                watcher.send(AdminServer.subscribe + request + [0x0A])
                guard case .ended(let answer)? = try Self.events(watcher.readToEnd()).last else {
                    Issue.record("no reason")
                    continue
                }
                #expect(answer.exit == 64 && answer.failure == .notACommand)
            }
            #expect(desk.performed.withLock { $0 }.isEmpty)
            #expect(try await client.send(["users"]).exit == 0)
        }
    }

    @Test func aLineWithoutEndIsRefusedAtTheLimit() async throws {
        try await served { _, _ in
            let shell = try Shell(path)
            shell.send(Array(repeating: UInt8(ascii: "x"), count: AdminService.requestLimit + 100))
            #expect(try answer(shell).failure == .commandTooLong)
        }
    }

    @Test func aRequestThatIsCutOffIsNotPerformed() async throws {
        try await served { _, client in
            let request = Array(#"{"words":["drain"]}"#.utf8)
            for count in 0...request.count {
                let shell = try Shell(path)
                shell.send(Array(request.prefix(count)))
            }
            #expect(try await client.send(["users"]).exit == 0)
            #expect(desk.performed.withLock { $0 } == [["users"]])
        }
    }

    @Test func eventsArePushedToAWatcher() async throws {
        try await served { _, client in
            let seen = Shared<[AdminEvent]>([])
            try await client.watch(AdminSubscription(json: false, every: 3600)) { [desk] event in
                let count = seen.withLock { seen in
                    seen.append(event)
                    return seen.count
                }
                desk.set("after \(count)")
                return count < 3
            }
            #expect(
                seen.withLock { $0 }
                    == ["first", "after 1", "after 2"].map { .status(answer: .text($0)) })
        }
    }

    /// The socket and its buffers take some reports, then the subscription ends, and the reason is the last line.
    @Test func aWatcherThatDoesNotReadIsDroppedWithAMessage() async throws {
        desk.set(String(repeating: "x", count: 300_000))
        desk.grows.withLock { $0 = true }
        try await served { _, _ in
            let shell = try Shell(path)
            shell.send(try Self.subscription(every: 0.1))
            try await eventuallyAsync("reports are no longer made") {
                let count = desk.performed.withLock { $0.count }
                try await Task.sleep(for: .milliseconds(500))
                return count > AdminService.eventLimit && desk.performed.withLock { $0.count } == count
            }
            let events = try Self.events(shell.readToEnd())
            guard case .ended(let answer)? = events.last else {
                Issue.record("\(events.count) events, and no reason")
                return
            }
            #expect(answer.failure == .slowReader)
            #expect(events.count < AdminService.eventLimit)
        }
    }

    @Test func aWatcherThatLeavesEndsItsReports() async throws {
        try await served { _, _ in
            var shell: Shell? = try Shell(path)
            shell?.send(try Self.subscription(every: 0.1))
            try await eventuallyAsync("the first report") { desk.performed.withLock { $0.count } > 0 }
            shell = nil
            try await eventuallyAsync("reports are no longer made") {
                let count = desk.performed.withLock { $0.count }
                try await Task.sleep(for: .milliseconds(500))
                return desk.performed.withLock { $0.count } == count
            }
        }
    }

    @Test func theEndOfTheGatewayEndsItsWatchers() async throws {
        try await served { server, _ in
            let shell = try Shell(path)
            shell.send(try Self.subscription(every: 3600))
            try await eventuallyAsync("the first report") { desk.performed.withLock { $0.count } > 0 }
            await server.stop()
            #expect(try Self.events(shell.readToEnd()).count <= 1)
            #expect(!FileManager.default.fileExists(atPath: path))
        }
    }
}
