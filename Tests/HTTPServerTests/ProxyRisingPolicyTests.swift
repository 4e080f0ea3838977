import Envelope
import HTTPServer
import JSONGateway
import NIOCore
import Protection
import Synchronization
import TestKit
import TestThreads
import Testing

/// A WebSocket that nobody looks into, when something begins to be protected.
@Suite struct ProxyRisingPolicyTests {
    enum Rise: CaseIterable {
        case everyone, account, latch

        func happen(in environment: JSONEnvironment) {
            switch self {
            case .everyone: environment.policies.update { $0.everyone = .hosted }
            case .account: environment.policies.update { $0.accounts[.services("alice")] = .required }
            case .latch:
                environment.latches.raise(ConversationID(.room("all"), .room("all")), to: .gateway)
            }
        }
    }

    /// Sends everything back, and keeps it.
    private static func echo(_ received: ReceivedBytes) throws -> RawServer {
        try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(ProxyWebSocketTests.answer)
            do {
                while true {
                    let byte = try socket.read(1)
                    received.bytes.withLock { $0 += byte }
                    try socket.send(byte)
                }
            } catch let error as RawError where error.description.hasPrefix("ended") {
                // Not where it has waited in vain.
                received.ends.withLock { $0 += 1 }
            }
        }
    }

    private final class ReceivedBytes: Sendable {
        let bytes = Mutex<[UInt8]>([])
        let ends = Mutex(0)
    }

    @Test(arguments: Rise.allCases) func anIdleConnectionIsEndedAtOnce(_ rise: Rise) async throws {
        let received = ReceivedBytes()
        let backend = try Self.echo(received)
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send(ProxyWebSocketTests.request)
            _ = try client.head()
            try client.send("before")
            #expect(try client.read(6) == Array("before".utf8))
            proxy.environment.policies.update { $0.everyone = .opportunistic }
            try client.send("still")
            #expect(try client.read(5) == Array("still".utf8))
            rise.happen(in: proxy.environment)
            // Nothing comes on it, and it ends all the same.
            try eventually("the backend hears of it") { received.ends.withLock { $0 } == 1 }
            #expect(client.isAtEnd())
            try? client.send("the canary sings")
            client.close()
            try eventually("it is over") { proxy.server.connectionCount == 0 }
        }
        #expect(received.bytes.withLock { $0 } == Array("beforestill".utf8))
        await proxy.stop()
    }

    /// A script gives out a raw connection whatever the policy is: it ends before a byte has gone.
    @Test func noneBeginsWhereSomethingIsProtected() async throws {
        let received = ReceivedBytes()
        let backend = try Self.echo(received)
        let proxy = try await Proxy(to: backend.port) { event in
            switch event {
            case .request(let head): [.passRequest(head)]
            case .response(let head): [.upgrade(head, nil)]
            default: []
            }
        }
        Rise.everyone.happen(in: proxy.environment)
        try await blocking {
            let client = try proxy.client()
            try client.send(ProxyWebSocketTests.request + "the canary sings")
            _ = try client.head()
            try eventually("the backend hears of it") { received.ends.withLock { $0 } == 1 }
            #expect(client.isAtEnd())
        }
        #expect(received.bytes.withLock { $0.isEmpty })
        await proxy.stop()
    }
}
