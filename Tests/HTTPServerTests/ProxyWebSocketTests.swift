import HTTPCodec
import HTTPServer
import JSONCodec
import JSONGateway
import NIOCore
import NIOSSL
import Protection
import Synchronization
import TestKit
import TestThreads
import Testing

@Suite struct ProxyWebSocketTests {
    static let request = """
        GET /socket HTTP/1.1\r
        Host: x\r
        Upgrade: websocket\r
        Connection: keep-alive, Upgrade\r
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
        Sec-WebSocket-Version: 13\r\n\r\n
        """
    static let answer = """
        HTTP/1.1 101 Switching Protocols\r
        Upgrade: websocket\r
        Connection: Upgrade\r
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n
        """
    /// The order of the last fields is the gateway's own.
    static let seen = """
        HTTP/1.1 101 Switching Protocols\r
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r
        Connection: Upgrade\r
        Upgrade: websocket\r\n\r\n
        """

    /// A gateway whose machine looks at messages.
    private static func framing(
        to backend: RawServer, _ policies: PolicyTable = PolicyTable(PolicySnapshot(everyone: .observe)),
        limit: Int = HTTPLimits().message, frames: [FrameRoute] = []
    ) async throws -> Proxy {
        let socketMachine = try Proxy.socketMachine(policies, frames: frames)
        let script: @Sendable (ExchangeEvent) -> [ExchangeAction] = { event in
            switch event {
            case .request(let head): [.passRequest(head)]
            case .response(let head):
                head.status == 101 ? [.upgrade(head, socketMachine)] : [.passResponse(head)]
            default: []
            }
        }
        return try await Proxy(to: backend.port, script: script) { $0.limits.message = limit }
    }

    private static func upgrade(_ client: RawSocket) throws {
        try client.send(request)
        #expect(try client.head() == seen)
    }

    static func frame(_ opcode: UInt8, _ payload: [UInt8], isFinal: Bool = true, mask: [UInt8]? = [1, 2, 3, 4])
        -> [UInt8]
    {
        var bytes: [UInt8] = [(isFinal ? 0x80 : 0) | opcode]
        let masked: UInt8 = mask == nil ? 0 : 0x80
        if payload.count < 126 {
            bytes.append(masked | UInt8(payload.count))
        } else if payload.count < 65536 {
            bytes += [masked | 126, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
        } else {
            bytes += [masked | 127] + (0..<8).map { UInt8(truncatingIfNeeded: payload.count >> (56 - 8 * $0)) }
        }
        guard let mask else { return bytes + payload }
        return bytes + mask + payload.enumerated().map { $1 ^ mask[$0 % 4] }
    }

    /// Reads one frame and takes its mask off.
    static func read(_ socket: RawSocket) throws -> (opcode: UInt8, payload: [UInt8], isMasked: Bool) {
        let head = try socket.read(2)
        var length = Int(head[1] & 0x7F)
        if length >= 126 {
            length = try socket.read(length == 126 ? 2 : 8).reduce(0) { $0 << 8 | Int($1) }
        }
        let isMasked = head[1] & 0x80 != 0
        let mask = isMasked ? try socket.read(4) : [0, 0, 0, 0]
        let payload = try socket.read(length)
        return (head[0], payload.enumerated().map { $1 ^ mask[$0 % 4] }, isMasked)
    }

    /// Sends every frame back to where it came from, unmasked; closes after a close.
    private static func echo() throws -> RawServer {
        try RawServer { socket, _ in
            let head = try socket.head()
            #expect(head.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"))
            try socket.send(Self.answer)
            while let frame = try? Self.read(socket) {
                #expect(frame.isMasked)
                try socket.send(Self.frame(frame.opcode & 0x0F, frame.payload, mask: nil))
                if frame.opcode == 0x88 { return }
            }
        }
    }

    @Test func opaqueBytesGoBothWays() async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            // The first bytes come together with the answer.
            try socket.send(Self.answer + "first")
            let text = String(decoding: socket.rest(), as: UTF8.self)
            try socket.send("|" + text)
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            // And the client does not wait either.
            try client.send(Self.request + "early ")
            #expect(try client.head() == Self.seen)
            try client.send("not a frame at all")
            client.endOutput()
            #expect(client.restText == "first|early not a frame at all")
        }
        try await blocking { try eventually("it is over") { proxy.server.connectionCount == 0 } }
        await proxy.stop()
    }

    @Test func anUpgradeThatIsRefusedIsAnAnswerLikeOthers() async throws {
        let backend = try RawServer { socket, _ in
            while (try? socket.message()) != nil { try socket.send("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno") }
        }
        let proxy = try await Self.framing(to: backend)
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<2 {
                try client.send(Self.request)
                #expect(try client.message().body == "no")
            }
        }
        await proxy.stop()
    }

    @Test func otherProtocolsAreNotUpgradedTo() async throws {
        let backend = try ProxyPassTests.mirror()
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send(
                "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n\r\n"
            )
            let body = try client.message().body
            #expect(!body.lowercased().contains("upgrade") && !body.contains("HTTP2-Settings"))
        }
        await proxy.stop()
    }

    @Test(arguments: [false, true]) func messagesGoBothWays(_ isFramed: Bool) async throws {
        let backend = try Self.echo()
        let proxy = isFramed ? try await Self.framing(to: backend) : try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try Self.upgrade(client)
            for length in [0, 1, 125, 126, 65535, 65536, 3_000_000] {
                let payload = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 7) }
                try client.send(Self.frame(2, payload))
                let frame = try Self.read(client)
                #expect(frame.opcode == 0x82 && !frame.isMasked)
                #expect(frame.payload == payload)
            }
            try client.send(Self.frame(9, Array("ping".utf8)) + Self.frame(10, []))
            #expect(try Self.read(client).opcode == 0x89)
            #expect(try Self.read(client).opcode == 0x8A)
            for byte in Self.frame(1, Array("slow ä".utf8)) { try client.send([byte]) }
            #expect(try Self.read(client).payload == Array("slow ä".utf8))
            // Nothing is protected: what texts are made of is for the backend to judge.
            try client.send(Self.frame(1, [0xC3, 0x28]))
            let odd = try Self.read(client)
            #expect(odd.opcode == 0x81 && odd.payload == [0xC3, 0x28])
            // Code and words of the one who closes reach the other.
            try client.send(Self.frame(8, [0x0F, 0xA1] + Array("bye".utf8)))
            let close = try Self.read(client)
            #expect(close.opcode == 0x88)
            #expect(close.payload == [0x0F, 0xA1] + Array("bye".utf8))
            #expect(client.isAtEnd())
        }
        try await blocking { try eventually("it is over") { proxy.server.connectionCount == 0 } }
        await proxy.stop()
    }

    /// What need not be read passes with the client's mask, at its place among the rest.
    @Test(arguments: [Int.max, 1, 7, 64]) func messagesThatPassKeepTheirOrder(_ size: Int) async throws {
        let seen = Mutex<[[UInt8]]>([])
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(Self.answer)
            while let head = try? socket.read(2) {
                let rest = try socket.read(4 + Int(head[1] & 0x7F))
                seen.withLock { $0.append(head + rest) }
                let payload = rest.dropFirst(4).enumerated().map { $1 ^ rest[$0 % 4] }
                try socket.send(Self.frame(head[0] & 0x0F, payload, mask: nil))
            }
        }
        let kind = FrameRoute(direction: .fromClient, when: try JSONPath("$.note"), label: .passthrough)
        let policies = PolicyTable(PolicySnapshot(everyone: .observe))
        let proxy = try await Self.framing(to: backend, policies, frames: [kind])
        try await blocking {
            let client = try proxy.client()
            try Self.upgrade(client)
            var payloads: [(opcode: UInt8, bytes: [UInt8])] = [(1, Array(#"{"other":"first"}"#.utf8))]
            for number in 0..<40 {
                payloads.append((1, Array(#"{"note":1,"other":"number \#(number)"}"#.utf8)))
                if number % 7 == 3 { payloads.append((9, [UInt8(number)])) }
                if number % 9 == 5 { payloads.append((2, [UInt8(number)])) }
                if number % 11 == 6 { payloads.append((1, Array(#"{"note":\#(number)}"#.utf8))) }
            }
            let frames = payloads.enumerated().map { Self.frame($1.opcode, $1.bytes, mask: [9, 8, 7, UInt8($0)]) }
            let bytes = Array(frames.joined())
            for first in stride(from: 0, to: bytes.count, by: min(size, bytes.count)) {
                try client.send(Array(bytes[first..<min(first + min(size, bytes.count), bytes.count)]))
            }
            for payload in payloads {
                let frame = try Self.read(client)
                #expect(frame.opcode == 0x80 | payload.opcode && frame.payload == payload.bytes && !frame.isMasked)
            }
            let received = seen.withLock { $0 }
            let same = zip(received, frames).filter { $0 == $1 }.count
            #expect(same >= 30 && same < frames.count)
            // Nothing passes unread any more.
            policies.update { $0.everyone = .opportunistic }
            try client.send(frames[1] + frames[1])
            for _ in 0..<2 { #expect(try Self.read(client).payload == payloads[1].bytes) }
            #expect(seen.withLock { $0.suffix(2).allSatisfy { $0 != frames[1] } })
        }
        await proxy.stop()
    }

    @Test func fragmentsArePutTogether() async throws {
        let backend = try Self.echo()
        let proxy = try await Self.framing(to: backend)
        try await blocking {
            let client = try proxy.client()
            try Self.upgrade(client)
            try client.send(Self.frame(1, [0x61, 0xC3], isFinal: false))
            try client.send(Self.frame(9, [0x7A]) + Self.frame(0, [], isFinal: false) + Self.frame(0, [0xA4, 0x62]))
            #expect(try Self.read(client).opcode == 0x89)
            let whole = try Self.read(client)
            #expect(whole.opcode == 0x81)
            #expect(whole.payload == Array("aäb".utf8))
        }
        await proxy.stop()
    }

    @Test(
        arguments: [
            (frame(1, [0x61], mask: nil), 1002), (frame(0, [0x61]), 1002),
            ([0xC1, 0x80, 0, 0, 0, 0], 1002), (frame(3, []), 1002), (frame(8, [0x03]), 1002),
            ([0x82, 0xFF, 0, 0, 0, 0, 0x01, 0, 0, 1, 0, 0, 0, 0], 1009), (frame(8, [0x03, 0xE8, 0xFF]), 1007),
        ] as [([UInt8], Int)]) func aFaultClosesBothSides(_ bytes: [UInt8], _ code: Int) async throws
    {
        let received = Mutex<[UInt8]>([])
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(Self.answer)
            let frame = try Self.read(socket)
            received.withLock { $0 = [frame.opcode] + frame.payload }
        }
        let proxy = try await Self.framing(to: backend, PolicyTable(PolicySnapshot(everyone: .hosted)))
        try await blocking {
            let client = try proxy.client()
            try Self.upgrade(client)
            try client.send(bytes)
            let close = try Self.read(client)
            #expect(close.opcode == 0x88)
            #expect(close.payload.prefix(2).elementsEqual([UInt8(code >> 8), UInt8(code & 0xFF)]))
            #expect(client.isAtEnd())
            try eventually("the backend hears of it") {
                received.withLock { $0.prefix(3).elementsEqual([0x88, UInt8(code >> 8), UInt8(code & 0xFF)]) }
            }
        }
        await proxy.stop()
    }

    /// Reads the frames of a message: its opcode, its bytes, and the control frames between them.
    private static func whole(_ socket: RawSocket) throws -> (opcode: UInt8, bytes: [UInt8], between: [UInt8]) {
        var (opcode, bytes, between): (UInt8?, [UInt8], [UInt8]) = (nil, [], [])
        while true {
            let frame = try read(socket)
            guard frame.opcode & 0x0F < 8 else {
                between.append(frame.opcode & 0x0F)
                continue
            }
            // Only the first frame has the opcode of the message.
            #expect((frame.opcode & 0x0F == 0) == (opcode != nil))
            opcode = opcode ?? frame.opcode & 0x0F
            bytes += frame.payload
            if frame.opcode & 0x80 != 0 { return (opcode ?? 0, bytes, between) }
        }
    }

    /// A message that is too long to be read passes in pieces, both ways, in its order, while nothing is protected.
    @Test(arguments: [Policy.observe, .opportunistic])
    func aLongMessagePassesWhereNothingIsProtected(_ policy: Policy) async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(Self.answer)
            while let message = try? Self.whole(socket) {
                let half = message.bytes.count / 2
                try socket.send(Self.frame(message.opcode, Array(message.bytes[..<half]), isFinal: false, mask: nil))
                for control in message.between { try socket.send(Self.frame(control, [], mask: nil)) }
                try socket.send(Self.frame(0, Array(message.bytes[half...]), mask: nil))
            }
        }
        let policies = PolicyTable(PolicySnapshot(everyone: policy))
        let proxy = try await Self.framing(to: backend, policies, limit: 1000)
        try await blocking {
            let client = try proxy.client()
            try Self.upgrade(client)
            let payload = (0..<200_001).map { (index: Int) -> UInt8 in UInt8(truncatingIfNeeded: index &* 7 &+ 1) }
            let small = Array("small".utf8)
            for number in 0..<3 {
                try client.send(Self.frame(1, small))
                switch number {
                // One frame, pieces that are short and then long with a ping between them, and a frame in odd pieces.
                case 0: try client.send(Self.frame(2, payload))
                case 1:
                    try client.send(Self.frame(2, Array(payload[..<999]), isFinal: false) + Self.frame(9, []))
                    try client.send(Self.frame(0, Array(payload[999..<1000]), isFinal: false, mask: [9, 8, 7, 6]))
                    try client.send(Self.frame(0, Array(payload[1000...]), isFinal: false) + Self.frame(0, []))
                default:
                    let bytes = Self.frame(2, payload)
                    for first in stride(from: 0, to: bytes.count, by: 9_973) {
                        try client.send(Array(bytes[first..<min(first + 9_973, bytes.count)]))
                    }
                }
                try client.send(Self.frame(1, small))
                #expect(try Self.whole(client).bytes == small)
                let long = try Self.whole(client)
                #expect(long.opcode == 2 && long.bytes == payload && long.between == (number == 1 ? [9] : []))
                #expect(try Self.whole(client).bytes == small)
            }
            // What has begun ends when a protection rises.
            try client.send(Self.frame(2, Array(payload[..<2000]), isFinal: false))
            policies.update { $0.everyone = .hosted }
            try client.send(Self.frame(0, Array(payload[2000...])))
            var close = try Self.read(client)
            while close.opcode != 0x88 { close = try Self.read(client) }
            #expect(close.payload.prefix(2).elementsEqual([0x03, 0xF1]))
        }
        await proxy.stop()
    }

    /// A protection that rises in the middle of a message and falls at once: the message passes, or the relay ends.
    /// What is left of it is never read as a frame: its bytes are none, so the code would be 1002.
    @Test func aProtectionThatFallsAgainEndsALongMessage() async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(Self.answer)
            var frame = try Self.read(socket)
            while frame.opcode & 0x0F != 8 { frame = try Self.read(socket) }
            try? socket.send(Self.frame(8, frame.payload, mask: nil))
            _ = socket.rest()
        }
        let policies = PolicyTable(PolicySnapshot(everyone: .observe))
        let proxy = try await Self.framing(to: backend, policies, limit: 1000)
        try await blocking {
            let message = Self.frame(2, [UInt8](repeating: 0x7F, count: 40_000), mask: [0, 0, 0, 0])
            for _ in 0..<40 {
                let client = try proxy.client()
                try Self.upgrade(client)
                for first in stride(from: 0, to: message.count, by: 1000) {
                    // The relay may have ended.
                    try? client.send(Array(message[first..<min(first + 1000, message.count)]))
                    for policy in [Policy.hosted, .observe, .hosted, .observe] {
                        policies.update { $0.everyone = policy }
                    }
                }
                try? client.send(Self.frame(8, [0x03, 0xE8]))
                let close = try Self.read(client)
                #expect(close.opcode == 0x88)
                #expect(([[0x03, 0xE8], [0x03, 0xF1]] as [[UInt8]]).contains(Array(close.payload.prefix(2))))
            }
        }
        await proxy.stop()
    }

    @Test func theBackendsFaultsAndItsDeath() async throws {
        let backend = try RawServer { socket, number in
            _ = try socket.head()
            try socket.send(Self.answer)
            if number == 0 { try socket.send(Self.frame(1, [0x61])) }
            if number == 1 { try socket.send(Self.frame(8, [0x03, 0xE8], mask: nil)) }
            if number < 2 { _ = socket.rest() }
        }
        let proxy = try await Self.framing(to: backend)
        try await blocking {
            let first = try proxy.client()
            try Self.upgrade(first)
            #expect(try Self.read(first).payload.prefix(2).elementsEqual([0x03, 0xEA]))
            #expect(first.isAtEnd())
            let second = try proxy.client()
            try Self.upgrade(second)
            #expect(try Self.read(second).payload == [0x03, 0xE8])
            try second.send(Self.frame(8, [0x03, 0xE8]))
            #expect(second.isAtEnd())
            let third = try proxy.client()
            try Self.upgrade(third)
            #expect(third.isAtEnd())
        }
        try await blocking { try eventually("it is over") { proxy.server.connectionCount == 0 } }
        await proxy.stop()
    }

    @Test func stoppingIsAnnounced() async throws {
        let backend = try Self.echo()
        let proxy = try await Self.framing(to: backend)
        try await blocking {
            let client = try proxy.client()
            try Self.upgrade(client)
            async let stopping: Void = proxy.stop()
            let close = try Self.read(client)
            #expect(close.opcode == 0x88)
            #expect(close.payload.prefix(2).elementsEqual([0x03, 0xE9]))
            client.close()
            await stopping
        }
    }

    @Test func nobodyReadsAFlood() async throws {
        let sent = Mutex(0)
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(Self.answer)
            let block = Self.frame(2, [UInt8](repeating: 7, count: 60_000), mask: nil)
            for _ in 0..<800 {
                try socket.send(block)
                sent.withLock { $0 += block.count }
            }
            try socket.send(Self.frame(8, [], mask: nil))
            _ = socket.rest()
        }
        let proxy = try await Self.framing(to: backend)
        try await blocking {
            let client = try RawSocket(port: proxy.port, receiveBuffer: 65536)
            try Self.upgrade(client)
            var last = -1
            while last != sent.withLock({ $0 }) {
                last = sent.withLock { $0 }
                try await Task.sleep(for: .milliseconds(600))
            }
            #expect(last < 24 << 20)
            for _ in 0..<800 { #expect(try Self.read(client).payload.count == 60_000) }
            #expect(try Self.read(client).opcode == 0x88)
        }
        await proxy.stop()
    }
}
