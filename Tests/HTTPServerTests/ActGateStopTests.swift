import HTTPCodec
import HTTPServer
import JSONGateway
import NIOCore
import NIOSupport
import Synchronization
import TestKit
import TestThreads
import Testing

/// The end of a server whose gate is closed.
@Suite(.blocking) struct ActGateStopTests {
    private final class Flag: Sendable {
        private let value: Atomic<Bool>

        init(_ value: Bool) { self.value = Atomic(value) }

        var isSet: Bool { value.load(ordering: .sequentiallyConsistent) }

        func set(_ isSet: Bool) { value.store(isSet, ordering: .sequentiallyConsistent) }
    }

    /// A server that holds its answer to a client.
    private struct Holding {
        let isOpen = Flag(true)
        let gate: ActGate
        let proxy: Proxy
        let client: RawSocket
        private let isStopped = Flag(false)

        init(stopTime: TimeAmount) async throws {
            let isOpen = isOpen
            let gate = ActGate { isOpen.isSet }
            self.gate = gate
            let proxy = try await Proxy(to: 1) { event in
                guard case .request = event else { return [] }
                isOpen.set(false)
                return [.respond(ResponseHead(200), ByteBuffer(string: "held"))]
            } _: { services in
                var downstream = services.downstream()
                downstream.gate = gate
                let options = downstream
                services.downstream = { options }
                services.limits.stopTime = stopTime
            }
            self.proxy = proxy
            client = try await blocking {
                let client = try proxy.client()
                try client.send("GET / HTTP/1.1\r\nHost: chat\r\n\r\n")
                return client
            }
            try await eventuallyAsync("the answer is held") { gate.waitingCount > 0 }
        }

        /// Begins to stop the server.
        func stop() {
            let (proxy, isStopped) = (proxy, isStopped)
            Task {
                await proxy.stop()
                isStopped.set(true)
            }
        }

        func waitForStop() async throws { try await eventuallyAsync("the server stops") { isStopped.isSet } }
    }

    @Test func aClosedGateDoesNotKeepAServerFromStopping() async throws {
        let holding = try await Holding(stopTime: .milliseconds(50))
        holding.stop()
        try await holding.waitForStop()
        let client = holding.client
        let isAtEnd = try await blocking { client.isAtEnd() }
        #expect(isAtEnd)
    }

    /// The database may be away for a moment while requests in progress are completed.
    @Test func aGateThatOpensDuringTheStopPassesWhatIsHeld() async throws {
        let holding = try await Holding(stopTime: .minutes(10))
        holding.stop()
        let proxy = holding.proxy
        try await eventuallyAsync("the server stops accepting") { proxy.server.isDraining }
        holding.isOpen.set(true)
        holding.gate.open()
        let client = holding.client
        let body = try await blocking { try client.message().body }
        #expect(body == "held")
        try await holding.waitForStop()
    }
}
