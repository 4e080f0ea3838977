import Envelope
import HTTPCodec
import HTTPServer
import JSONCodec
import JSONGateway
import NIOCore
import Reports
import Synchronization
import TestKit
import TestThreads
import Testing
import Vault

/// Bodies that are sealed and opened while they pass, over sockets.
@Suite struct ProxyFileTests {
    private static let file: [UInt8] = {
        var random = SeededGenerator(seed: 4)
        return random.bytes(700_000)
    }()

    private static func key() -> SealedFile.Key {
        let header = SealedFile.Header(key: MessageID(1), prefix: [1, 2, 3, 4, 5, 6, 0])
        let bytes = [UInt8](repeating: 5, count: SealedFile.keySize)
        return SealedFile.Key(
            header, ContentKey(message: MessageID(1), digest: header.digest, expiresAt: .max, bytes: bytes))
    }

    /// Seals what is posted, and opens what is got: a range of it if the target has a number.
    private static func script() -> @Sendable (ExchangeEvent) -> [ExchangeAction] {
        let target = Mutex("")
        return { event in
            switch event {
            case .request(let head) where head.target == "/form":
                target.withLock { $0 = "" }
                guard let boundary = try? MultipartBoundary(head.headers) else { return [] }
                return [.sealRequest(head, BodySealer(form: FormSealer(key(), boundary, ["file": .file, "a": .pass])))]
            case .request(let head) where head.target == "/texts":
                target.withLock { $0 = "" }
                guard let boundary = try? MultipartBoundary(head.headers) else { return [] }
                return [.sealRequest(head, BodySealer(form: FormSealer(key(), boundary, ["file": .file, "a": .text])))]
            case .formTexts(let texts):
                let count = texts.parts.reduce(0) { $0 + $1.value.count }
                return [.endRequest(ByteBuffer(bytes: part("\"sealed\"") + Array("\(count)".utf8) + ending))]
            case .request(let head) where head.method == "POST":
                target.withLock { $0 = "" }
                let sealer = SealedFile.Sealer(key(), SealedFile.Description(type: "a/b"))
                return [.sealRequest(head, BodySealer(file: sealer))]
            case .request(let head):
                target.withLock { $0 = head.target }
                return [.passRequest(head)]
            case .response(let head):
                if target.withLock({ $0.isEmpty }) { return [.passResponse(head)] }
                return [.collectBeginning(count: SealedFile.beginningSize)]
            case .responseBeginning:
                if let first = target.withLock({ Int($0.dropFirst()) }) {
                    let opener = SealedFile.Opener(key(), range: first..<first + 1000)
                    return [.openResponse(ResponseHead(206), opener, length: 1000)]
                }
                let length = target.withLock { $0 == "/chunked" } ? nil : file.count
                return [.openResponse(ResponseHead(200), SealedFile.Opener(key()), length: length)]
            default: return []
            }
        }
    }

    /// Keeps what was posted, and returns it; one byte altered if that is asked for.
    private static func backend(_ kept: @escaping @Sendable ([UInt8]?) -> [UInt8]) throws -> RawServer {
        try RawServer { socket, _ in
            while let head = try? socket.head() {
                if head.hasPrefix("POST") {
                    // An incomplete body is dropped.
                    guard let body = try? socket.body(head) else { return }
                    _ = kept(body)
                    try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    continue
                }
                var bytes = kept(nil)
                if head.hasPrefix("GET /altered") { bytes[SealedFile.beginningSize + 300_000] ^= 1 }
                if head.hasPrefix("GET /short") { bytes.removeLast(5) }
                try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(bytes.count)\r\n\r\n")
                try socket.send(bytes)
            }
        }
    }

    private static let boundary = "a-boundary-of-a-form"

    private static func part(_ parameters: String) -> [UInt8] {
        Array("--\(boundary)\r\nContent-Disposition: form-data; name=\(parameters)\r\n\r\n".utf8)
    }

    private static let ending = Array("\r\n--\(boundary)--\r\n".utf8)

    private static func form(_ file: [UInt8], last: String = "a") -> [UInt8] {
        part("\"file\"; filename=\"n\"") + file + Array("\r\n".utf8) + part(last) + ending
    }

    /// The bytes of the file in a form that the backend has got.
    private static func file(in form: [UInt8]) throws -> [UInt8] {
        var reader = MultipartReader(try #require(MultipartBoundary(Array(boundary.utf8))))
        form.withUnsafeBytes { reader.append($0) }
        var (file, isFile) = ([UInt8](), false)
        while let piece = try reader.next() {
            switch piece {
            case .head(let head): isFile = head.fileName == FormSealer.fileName
            case .bytes(let bytes) where isFile: file += bytes
            default: break
            }
        }
        try reader.finish()
        return file
    }

    /// The texts of a form follow its files when they are sealed.
    @Test func aFormWaitsForItsTexts() async throws {
        let stored = Mutex<[UInt8]>([])
        let server = try Self.backend { bytes in
            stored.withLock { stored in
                if let bytes { stored = bytes }
                return stored
            }
        }
        let proxy = try await Proxy(to: server.port, script: Self.script())
        try await blocking {
            let client = try proxy.client()
            let type = "Content-Type: multipart/form-data; boundary=\(Self.boundary)"
            let form = Self.part("\"a\"") + Array("canary\r\n".utf8) + Self.form(Self.file)
            // The connection is used again.
            for _ in 1...2 {
                stored.withLock { $0 = [] }
                try client.send("POST /texts HTTP/1.1\r\nHost: x\r\n\(type)\r\nContent-Length: \(form.count)\r\n\r\n")
                try client.send(form)
                #expect(try client.message().body == "ok")
                let sent = stored.withLock { $0 }
                #expect(try Self.file(in: sent).count == SealedFile.sealedSize(of: Self.file.count))
                let end = Self.part("\"sealed\"") + Array("6".utf8) + Self.ending
                #expect(sent.suffix(end.count).elementsEqual(end))
            }
        }
        await proxy.stop()
    }

    /// The file in a form, with a length and in chunks; what cannot be sealed is answered, and the backend keeps nothing.
    @Test func aFormIsSealedInPieces() async throws {
        let stored = Mutex<[UInt8]>([])
        let server = try Self.backend { bytes in
            stored.withLock { stored in
                if let bytes { stored = bytes }
                return stored
            }
        }
        let proxy = try await Proxy(to: server.port, script: Self.script())
        let start = "POST /form HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=\(Self.boundary)\r\n"
        try await blocking {
            let client = try proxy.client()
            let form = Self.form(Self.file)
            for isChunked in [false, true] {
                stored.withLock { $0 = [] }
                if isChunked {
                    try client.send(start + "Transfer-Encoding: chunked\r\n\r\n")
                    for first in stride(from: 0, to: form.count, by: 99_991) {
                        let piece = Array(form[first..<min(first + 99_991, form.count)])
                        try client.send(String(piece.count, radix: 16) + "\r\n")
                        try client.send(piece + Array("\r\n".utf8))
                    }
                    try client.send("0\r\n\r\n")
                } else {
                    try client.send(start + "Content-Length: \(form.count)\r\n\r\n")
                    try client.send(form)
                }
                #expect(try client.message().body == "ok")
                let sealed = try Self.file(in: stored.withLock { $0 })
                #expect(sealed.count == SealedFile.sealedSize(of: Self.file.count))
                stored.withLock { $0 = sealed }
                try client.send("GET /whole HTTP/1.1\r\nHost: x\r\n\r\n")
                #expect(try client.body(client.head()) == Self.file)
            }
            stored.withLock { $0 = [] }
            for other in [Self.form(Self.file, last: "b"), Array(form.dropLast(6)), form + [0x61]] {
                let client = try proxy.client()
                try client.send(start + "Content-Length: \(other.count)\r\n\r\n")
                try? client.send(other)
                let (head, body) = try client.message()
                #expect(head.hasPrefix("HTTP/1.1 400 ") && body.contains("PAWL_UNREADABLE_FORM"), "\(head)\(body)")
            }
            #expect(stored.withLock { $0.isEmpty } && proxy.environment.tally[.refusedMedia] == 3)
        }
        await proxy.stop()
    }

    private static func sealed() throws -> [UInt8] {
        var (sealer, output) = (SealedFile.Sealer(key(), SealedFile.Description()), [UInt8]())
        try sealer.begin(into: &output)
        try file.withUnsafeBytes { try sealer.seal($0, into: &output) }
        try sealer.end(into: &output)
        return output
    }

    /// The whole file and a range, by clients that take a piece now and then.
    @Test func aSlowReaderGetsTheWholeFile() async throws {
        let sealed = try Self.sealed()
        let server = try Self.backend { _ in sealed }
        let rig = try TLSRig()
        let trust = try rig.trust(["h2"])
        for isHTTP2 in [true, false] {
            let proxy = try await Proxy(to: server.port, listenerTLS: isHTTP2 ? rig.listener : nil) { services in
                services.limits.stall = .minutes(10)
                services.makeExchange = { _ in ScriptedExchange(script: Self.script()) }
            }
            try await blocking {
                let (file, steps) = (Self.file, 10)
                guard isHTTP2 else {
                    let client = try proxy.client()
                    try client.send("GET /chunked HTTP/1.1\r\nHost: x\r\n\r\n")
                    #expect(try client.head().contains("Transfer-Encoding: chunked"))
                    var read: [UInt8] = []
                    while case let size = try Int(client.read(until: "\r\n").dropLast(), radix: 16) ?? 0, size > 0 {
                        if read.count < 400_000 { ProxyStreamTests.pause() }
                        read += try client.read(size)
                        _ = try client.read(2)
                    }
                    return #expect(read == file)
                }
                let client = try await FrameClient.connect(proxy.port, trust, credits: false)
                client.get(1, "/whole")
                for _ in 0..<steps {
                    ProxyStreamTests.pause()
                    for stream in [0, 1] {
                        client.send(.windowUpdate, 0, stream, FrameClient.number(UInt32(file.count / steps)))
                    }
                }
                let answer = try client.answer(1)
                #expect(answer.body == file && answer.isEnded && answer.reset == nil)
                #expect(answer.first("content-length") == "\(file.count)")
                client.get(3, "/65000")
                let part = try client.answer(3)
                #expect(part.status == "206" && part.body == Array(file[65_000..<66_000]))
            }
            await proxy.stop()
        }
    }

    @Test func aFileIsSealedAndOpenedInPieces() async throws {
        let stored = Mutex<[UInt8]>([])
        let server = try Self.backend { bytes in
            stored.withLock { stored in
                if let bytes { stored = bytes }
                return stored
            }
        }
        let proxy = try await Proxy(to: server.port, script: Self.script())
        let file = Self.file
        try await blocking {
            let client = try proxy.client()
            for isChunked in [false, true] {
                stored.withLock { $0 = [] }
                if isChunked {
                    try client.send("POST /f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
                    for first in stride(from: 0, to: file.count, by: 99_991) {
                        let piece = Array(file[first..<min(first + 99_991, file.count)])
                        try client.send(String(piece.count, radix: 16) + "\r\n")
                        try client.send(piece + Array("\r\n".utf8))
                    }
                    try client.send("0\r\n\r\n")
                } else {
                    try client.send("POST /f HTTP/1.1\r\nHost: x\r\nContent-Length: \(file.count)\r\n\r\n")
                    try client.send(file)
                }
                #expect(try client.message().body == "ok")
                #expect(stored.withLock { $0.count } == SealedFile.sealedSize(of: file.count))
                for target in ["/whole", "/chunked"] {
                    try client.send("GET \(target) HTTP/1.1\r\nHost: x\r\n\r\n")
                    #expect(try client.body(client.head()) == file)
                }
            }
            // After a range the rest of the file is not read, and the client's connection goes on.
            for first in [0, 65_000, 699_000] {
                try client.send("GET /\(first) HTTP/1.1\r\nHost: x\r\n\r\n")
                #expect(try client.body(client.head()) == Array(file[first..<first + 1000]))
            }
            // What is damaged ends before the damage, visibly.
            for target in ["/altered", "/short"] {
                let other = try proxy.client()
                try other.send("GET \(target) HTTP/1.1\r\nHost: x\r\n\r\n")
                _ = try other.head()
                let part = other.rest()
                #expect(part.count < file.count && file.starts(with: part), "\(target)")
            }
        }
        await proxy.stop()
    }
}

extension RawSocket {
    /// The bytes of a body after its head, with `Content-Length` or chunked.
    fileprivate func body(_ head: String) throws -> [UInt8] {
        for line in head.lowercased().split(separator: "\r\n") where line.hasPrefix("content-length:") {
            return try read(Int(line.dropFirst("content-length:".count).drop { $0 == " " }) ?? 0)
        }
        var body: [UInt8] = []
        while true {
            let size = try read(until: "\r\n").dropLast()
            guard let count = Int(size, radix: 16) else { throw RawError("chunk size \(size)") }
            let chunk = try read(count)
            _ = try read(2)
            if count == 0 { return body }
            body += chunk
        }
    }
}
