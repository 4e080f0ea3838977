import Envelope
import Foundation
import HTTPCodec
import HTTPServer
import JSONGateway
import NIOCore
import PeerKit
import Protection
import Reports
import Synchronization
import TestKit
import TestThreads
import Testing

/// Relays between two devices whose clients do not do what they should.
@Suite struct DeviceRelayTests {
    /// Two devices that name each other, by the paths `/1` and `/2`.
    private static func call(_ path: String) -> RelayCall {
        var ends: [(device: UInt64, account: String)] = [(1, "alice"), (2, "bob")]
        if path == "/2" { ends.reverse() }
        return RelayCall(
            session: [UInt8](repeating: 7, count: RelayCall.sessionSize), own: DeviceID(ends[0].device),
            of: .services(ends[0].account), by: Credential().digest, other: DeviceID(ends[1].device),
            of: .services(ends[1].account))
    }

    /// Both have ended their output, and one does not read what waits for it. The relay's slots are free by then, so
    /// nothing else bounds such connections.
    ///
    /// The devices are not proven, so the relay ends itself after a second. The test shows something if it is faster.
    @Test func aClientThatReadsNothingAfterBothEndsIsClosed() async throws {
        let backend = try RawServer { _, _ in }
        let proxy = try await Proxy(to: backend.port) { event in
            switch event {
            case .request(let head): [.joinRelay(Self.call(head.target))]
            case .relayMet:
                [.beginRelay(ResponseHead(101), Self.call("/1"))]
            default: []
            }
        } _: {
            $0.limits.stall = .milliseconds(200)
        }
        proxy.environment.replace(
            proxy.environment.mapping, texts: NoticeTexts(), answerLimit: 64 << 20,
            relays: RelayLimits(bytesPerSecond: 1 << 30))
        try await blocking {
            let reader = try RawSocket(port: proxy.port, receiveBuffer: 65536)
            let sender = try proxy.client()
            try reader.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\n")
            try sender.send("GET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
            for client in [reader, sender] { #expect(try client.head().hasPrefix("HTTP/1.1 101 ")) }
            reader.endOutput()
            let isSent = Mutex(false)
            Thread {
                try? sender.send([UInt8](repeating: 7, count: 16 << 20))
                sender.endOutput()
                isSent.withLock { $0 = true }
            }.start()
            // It reads until the rest is in the gateway, which waits for it, and then never again.
            while !isSent.withLock({ $0 }) || sender.unacknowledged > 0, (try? reader.read(65536)) != nil {}
            try eventually("both connections are closed") { proxy.server.connectionCount == 0 }
        }
        await proxy.stop()
    }
}
