import CZlib
import Foundation
import HTTPCodec
import HTTPServer
import JSONGateway
import NIOCore
import PeerKit
import TestKit
import TestThreads
import Testing

/// Compressed answers: whole for every client, with a head that says so, and of a length that discloses no secret.
@Suite struct CompressionTests {
    /// Decompresses one member of gzip.
    private static func inflated(_ bytes: ByteBuffer, into size: Int) throws -> [UInt8] {
        var input = Array(bytes.readableBytesView)
        var output = [UInt8](repeating: 0, count: size + 1)
        var stream = z_stream()
        try #require(inflateInit2_(&stream, MAX_WBITS + 16, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size)) == Z_OK)
        defer { inflateEnd(&stream) }
        let count = input.withUnsafeMutableBufferPointer { input in
            output.withUnsafeMutableBufferPointer { output in
                stream.next_in = input.baseAddress
                stream.avail_in = UInt32(input.count)
                stream.next_out = output.baseAddress
                stream.avail_out = UInt32(output.count)
                // The end of the stream, with the right checksum and length, and nothing behind it.
                let result = inflate(&stream, Z_FINISH)
                #expect(result == Z_STREAM_END && stream.avail_in == 0, "\(result)")
                return output.count - Int(stream.avail_out)
            }
        }
        return Array(output[..<count])
    }

    /// A document of messages, as a backend has them, and where their texts are.
    private static func document(_ texts: [[UInt8]]) -> (body: ByteBuffer, texts: [Range<Int>]) {
        var bytes: [UInt8] = Array(#"{"messages":["#.utf8)
        var ranges: [Range<Int>] = []
        for (number, text) in texts.enumerated() {
            bytes += Array(
                #"{"event_id":"$\#(number * 7919)","sender":"@someone:example.org","content":{"body":""#.utf8)
            ranges.append(bytes.count..<bytes.count + text.count)
            bytes += text + Array(#"","msgtype":"m.text"}},"#.utf8)
        }
        bytes += Array("{}]}".utf8)
        return (ByteBuffer(bytes: bytes), ranges)
    }

    private static func letters(_ count: Int, _ random: inout SeededGenerator) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: 0x61...0x7A, using: &random) }
    }

    // MARK: The compressor

    @Test func everyBodyIsReadBackWhole() throws {
        for seed in UInt64(1)...60 {
            var random = SeededGenerator(seed: seed)
            let sizes = [0, 1, 20, 300, 5000, 32_768, 65_535, 65_536, 140_000]
            let texts = (0..<Int.random(in: 1...40, using: &random)).map { _ in
                let size = sizes[Int.random(in: 0..<(random.next() % 8 == 0 ? 9 : 4), using: &random)]
                return Self.letters(size, &random)
            }
            let (body, ranges) = Self.document(texts)
            let hidden = ranges.filter { _ in random.next() % 3 != 0 }
            guard let compressed = Gzip.compress(body, hiding: hidden) else { continue }
            #expect(compressed.readableBytes < body.readableBytes)
            let read = try Self.inflated(compressed, into: body.readableBytes)
            #expect(read == Array(body.readableBytesView), "seed \(seed)")
        }
    }

    /// What stands around secrets compresses as well as without them.
    @Test func manySecretsLeaveTheRestCompressed() throws {
        var random = SeededGenerator(seed: 5)
        let (body, ranges) = Self.document((0..<1000).map { _ in Self.letters(30, &random) })
        let compressed = try #require(Gzip.compress(body, hiding: ranges))
        #expect(compressed.readableBytes < body.readableBytes * 2 / 3)
        #expect(try Self.inflated(compressed, into: body.readableBytes) == Array(body.readableBytesView))
    }

    /// An attacker's text beside a secret, once equal to it and once not: both answers have one length.
    @Test func theLengthDoesNotDependOnSecrets() throws {
        for seed in UInt64(1)...40 {
            var random = SeededGenerator(seed: seed)
            let guess = Self.letters(24, &random)
            let others = (0..<20).map { _ in Self.letters(Int.random(in: 0...200, using: &random), &random) }
            func length(_ secret: [UInt8]) -> Int? {
                // The attacker's own text is open, before and after the secret.
                let (body, ranges) = Self.document([guess, secret, guess] + others + [guess, secret])
                return Gzip.compress(body, hiding: [ranges[1], ranges[ranges.count - 1]])?.readableBytes
            }
            let known = try #require(length(guess))
            for _ in 0..<5 { #expect(length(Self.letters(24, &random)) == known, "seed \(seed)") }
            // Without protection the lengths differ, so the comparison says something.
            func open(_ secret: [UInt8]) -> Int? {
                Gzip.compress(Self.document([guess, secret, guess] + others).body, hiding: [])?.readableBytes
            }
            #expect(open(guess) != open(Self.letters(24, &random)))
        }
    }

    @Test func whatCannotBeCompressedIsNot() {
        var random = SeededGenerator(seed: 9)
        let noise = ByteBuffer(bytes: (0..<4000).map { _ in UInt8.random(in: 1...255, using: &random) })
        #expect(Gzip.compress(noise, hiding: []) == nil)
        // A zero byte could refer to a hidden part.
        #expect(Gzip.compress(ByteBuffer(repeating: 0, count: 4000), hiding: []) == nil)
        #expect(Gzip.compress(ByteBuffer(repeating: 0x61, count: 4000), hiding: [3000..<5000]) == nil)
        #expect(Gzip.compress(ByteBuffer(repeating: 0x61, count: 4000), hiding: [30..<50, 40..<60]) == nil)
    }

    // MARK: Heads

    @Test(arguments: [
        ("gzip", true), ("GZIP, deflate, br", true), ("deflate;q=0.5, gzip;q=0.1", true), ("*", true), ("x-gzip", true),
        ("gzip ; q=0.8", true), ("", false), ("identity", false), ("br, deflate", false), ("gzip;q=0", false),
        ("gzip;q=0.000, *", false), ("*;q=0", false), ("gzip;q=x", false), ("gzip;q=0.5, identity", false),
        ("gzip;q=0.5, identity;q=0.1", true), ("gzipped", false),
    ]) func clientsSayWhatTheyAccept(_ value: String, _ accepts: Bool) {
        #expect(HeaderFields([.init("Accept-Encoding", value)]).acceptsGzip == accepts)
        #expect(!HeaderFields().acceptsGzip)
    }

    @Test func answersThatAreNeverCompressed() {
        func compression(_ status: Int, _ fields: HeaderFields = [:], size: Int = 2000, above limit: Int = 1024) -> Bool
        {
            Compression(ResponseHead(status, headers: fields), size, above: limit) != nil
        }
        #expect(compression(200) && compression(201, ["Cache-Control": "no-cache"]))
        #expect(!compression(200, above: 0) && !compression(200, size: 1024))
        #expect(!compression(206) && !compression(200, ["Content-Range": "bytes 0-1/2"]))
        #expect(!compression(304) && !compression(204) && !compression(404) && !compression(101))
        #expect(!compression(200, ["Content-Encoding": "br"]) && compression(200, ["Content-Encoding": "identity"]))
        #expect(!compression(200, ["Cache-Control": "private, No-Transform"]))
    }

    @Test func theHeadOfACompressedAnswer() throws {
        let compression = try #require(Compression(ResponseHead(200), 2000, above: 1))
        let fields: HeaderFields = [
            "ETag": "\"a\"", "Vary": "Origin", "Accept-Ranges": "bytes", "Digest": "sha-256=x",
            "Content-Type": "application/json",
        ]
        let selected = compression.selected(ResponseHead(200, headers: fields))
        #expect(selected.headers.tokens("Vary") == ["origin", "accept-encoding"])
        #expect(compression.selected(selected) == selected)
        #expect(compression.selected(ResponseHead(200, headers: ["Vary": "*"])).headers["Vary"] == ["*"])
        let compressed = Compression.compressed(selected)
        #expect(compressed.headers["Content-Encoding"] == ["gzip"] && compressed.headers["ETag"] == ["W/\"a\""])
        #expect(compressed.headers["Accept-Ranges"].isEmpty && compressed.headers["Digest"].isEmpty)
        #expect(compressed.headers["Content-Type"] == ["application/json"])
        #expect(Compression.compressed(compressed).headers["ETag"] == ["W/\"a\""])
    }

    // MARK: Sockets

    /// A gateway that reads all answers of the backend, and has opened a part of each.
    private static func proxy(
        _ backend: RawServer, _ rig: TLSRig? = nil, budget: ByteBudget, above limit: Int = 1024
    ) async throws -> Proxy {
        try await Proxy(to: backend.port, listenerTLS: rig?.listener) { services in
            services.budget = budget
            services.limits.compressAbove = limit
            services.makeExchange = { _ in
                ScriptedExchange { event in
                    switch event {
                    case .request(let head): [.passRequest(head)]
                    case .response: [.collectResponse(limit: 16 << 20)]
                    case .responseBody(let body):
                        [.deliver(ResponseHead(200, headers: ["ETag": "\"1\""]), body, hiding: [10..<20, 300..<500])]
                    default: []
                    }
                }
            }
        }
    }

    private static func backend(_ text: String) throws -> RawServer {
        try RawServer { socket, _ in
            while (try? socket.message()) != nil {
                try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(text.utf8.count)\r\n\r\n\(text)")
            }
        }
    }

    /// Short ones are compressed at once, long ones on another thread.
    @Test(arguments: [1025, 70_000, 3_000_000]) func clientsGetTheAnswerInTheFormTheyAccept(_ size: Int) async throws {
        let text = String(String(repeating: "a chat about chats; ", count: size / 20 + 1).prefix(size))
        let budget = ByteBudget(limit: 64 << 20)
        let backend = try Self.backend(text)
        let proxy = try await Self.proxy(backend, budget: budget)
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<2 {
                try client.send("GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
                let head = try client.head()
                #expect(head.contains("Content-Encoding: gzip\r\n") && head.contains("Vary: Accept-Encoding\r\n"))
                #expect(head.contains("ETag: W/\"1\"\r\n"))
                let length = try #require(head.firstMatch(of: /Content-Length: (\d+)/).flatMap { Int($0.1) })
                #expect(length < size / 2)
                let compressed = ByteBuffer(bytes: try client.read(length))
                #expect(try Self.inflated(compressed, into: size) == Array(text.utf8))
                try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                let (plain, body) = try client.message()
                #expect(plain.contains("Vary: Accept-Encoding\r\n") && !plain.contains("Content-Encoding"))
                #expect(plain.contains("ETag: \"1\"\r\n") && body == text)
            }
            try eventually("all is given back") { budget.used == 0 }
        }
        await proxy.stop()
    }

    /// Decompressed by a program that has nothing of this one.
    @Test(arguments: [20_000, 500_000]) func curlReadsItOverBothVersions(_ size: Int) async throws {
        let text = String(String(repeating: "a chat about chats; ", count: size / 20).prefix(size))
        let rig = try TLSRig()
        let backend = try Self.backend(text)
        let proxy = try await Self.proxy(backend, rig, budget: ByteBudget(limit: 64 << 20))
        try await blocking {
            for version in ["--http2", "--http1.1"] {
                let output = try ChildProcess.run(
                    "curl",
                    [
                        "-sS", "--noproxy", "*", version, "--cacert", rig.certificate.certificatePath, "--max-time",
                        "600",
                        "--compressed", "-w", "|%{size_download}", "https://localhost:\(proxy.port)/",
                    ], timeout: .seconds(610))
                #expect(output.succeeded, "\(output.stderr)")
                let parts = output.stdout.split(separator: "|")
                #expect(parts.first.map(String.init) == text)
                #expect(try #require(parts.last.flatMap { Int($0) }) < size / 4)
            }
        }
        await proxy.stop()
    }

    @Test func compressionCanBeTurnedOff() async throws {
        let text = String(repeating: "a", count: 100_000)
        let backend = try Self.backend(text)
        let proxy = try await Self.proxy(backend, budget: ByteBudget(limit: 1 << 20), above: 0)
        try await blocking {
            let client = try proxy.client()
            try client.send("GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
            let (head, body) = try client.message()
            #expect(body == text && !head.contains("Vary"))
        }
        await proxy.stop()
    }

    /// Its answer is compressed on another thread when the client has left.
    @Test func aClientThatHangsUpMeanwhile() async throws {
        let text = String(repeating: "a chat about chats; ", count: 400_000)
        let budget = ByteBudget(limit: 64 << 20)
        let backend = try Self.backend(text)
        let proxy = try await Self.proxy(backend, budget: budget)
        try await blocking {
            for _ in 0..<5 {
                let client = try proxy.client()
                try client.send("GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
                try eventually("it is collected") { budget.used >= text.utf8.count }
                client.reset()
                try eventually("all is given back") { budget.used == 0 }
            }
        }
        try await blocking { try eventually("it is over") { proxy.server.connectionCount == 0 } }
        await proxy.stop()
    }
}
