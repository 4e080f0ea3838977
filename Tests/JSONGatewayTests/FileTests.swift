import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import StorePort
import TestKit
import Testing
import Vault

/// Files through the machine of an exchange: sealed for the backend, opened for everyone behind the gateway.
@Suite struct FileTests {
    private static func mapping() throws -> Mapping {
        var mapping = Mapping.lab
        mapping.routes.removeAll { $0.label == .media }
        mapping.routes += [
            Mapping.Route(
                methods: ["POST"], path: try PathPattern("/files"), label: .upload, file: FilePlaces(name: "name")),
            Mapping.Route(methods: ["GET"], path: try PathPattern("/files/{file}"), label: .download),
            Mapping.Route(
                methods: ["GET"], path: try PathPattern("/thumbnails/{file}"), label: .download,
                file: FilePlaces(whole: "/files/{file}")),
        ]
        return mapping
    }

    private static let content: ByteBuffer = {
        var random = SeededGenerator(seed: 5)
        return ByteBuffer(bytes: Array("canary ".utf8) + random.bytes(150_000))
    }()

    private static func request(
        _ world: JSONWorld, _ method: String, _ target: String, as token: String?, _ fields: HeaderFields = [:],
        _ body: ByteBuffer = ByteBuffer()
    ) -> JSONWorld.Answer? {
        var head = RequestHead(method, target, headers: fields)
        if let token { head.headers.add("Authorization", "Bearer \(token)") }
        if body.readableBytes > 0 { head.headers.add("Content-Length", "\(body.readableBytes)") }
        return world.exchange(head, body)
    }

    private static func upload(
        _ world: JSONWorld, _ target: String = "/files?name=canary%20plan.png&x=1", as token: String? = "t-alice",
        _ fields: HeaderFields = ["Content-Type": "image/png"], _ body: ByteBuffer = content
    ) -> JSONWorld.Answer? { request(world, "POST", target, as: token, fields, body) }

    private static func world(
        _ policy: Policy = .hosted, accounts: [String: Policy] = [:], retention: Int64 = 365 * 86_400_000
    ) throws -> JSONWorld {
        try JSONWorld(policy, mapping: mapping(), accounts: accounts, retention: retention)
    }

    @Test func anUploadIsSealedAndOpenedForOthers() throws {
        let world = try Self.world()
        let answer = Self.upload(
            world, "/files?name=canary%20plan.png&x=1", as: "t-alice",
            [
                "Content-Type": "image/png", "Content-Disposition": "attachment; filename=canary",
                "Content-MD5": "canary", "Digest": "canary",
            ])
        #expect(answer?["file"] == "f1")
        let stored = try #require(world.backend.files["f1"])
        #expect(!world.backend.hasReceived("canary") && world.backend.hasReceived("POST /files?x=1 "))
        #expect(stored.fields["Content-Type"] == ["application/octet-stream"])
        #expect(stored.body.readableBytes == SealedFile.sealedSize(of: Self.content.readableBytes))
        for token in ["t-alice", "t-bob"] {
            let read = try #require(Self.request(world, "GET", "/files/f1", as: token))
            #expect(read.bytes == Self.content && read.status == 200)
            #expect(read.headers["Content-Type"] == ["image/png"])
            #expect(read.headers["Content-Disposition"] == ["attachment; filename*=utf-8''canary%20plan.png"])
            #expect(read.headers["X-Content-Type-Options"] == ["nosniff"])
            #expect(read.headers["Accept-Ranges"] == ["bytes"])
        }
        // Without a login, or past the gateway, it is what the backend has.
        #expect(Self.request(world, "GET", "/files/f1", as: nil)?.status == 401)
        #expect(stored.body.readableBytesView.starts(with: SealedFile.words))
    }

    @Test func rangesAreThoseOfTheFile() throws {
        let world = try Self.world()
        _ = Self.upload(world)
        world.backend.files["f1"]?.fields.add("ETag", "\"v1\"")
        let size = Self.content.readableBytes
        func read(_ fields: HeaderFields) throws -> JSONWorld.Answer {
            try #require(Self.request(world, "GET", "/files/f1", as: "t-bob", fields))
        }
        for (range, first, count) in [
            ("bytes=0-0", 0, 1), ("bytes=65530-65545", 65530, 16), ("bytes=100-", 100, size - 100),
            ("bytes=-10", size - 10, 10), ("bytes=-999999999999999999999", 0, size),
            ("bytes=\(size - 1)-99999999999999999999", size - 1, 1),
        ] {
            let part = try read(["Range": range, "If-Range": "\"v1\""])
            #expect(part.status == 206 && part.bytes == Self.content.getSlice(at: first, length: count), "\(range)")
            #expect(part.headers["Content-Range"] == ["bytes \(first)-\(first + count - 1)/\(size)"])
            #expect(part.headers["ETag"] == ["\"v1\""])
        }
        for range in ["bytes=\(size)-", "bytes=-0"] {
            let none = try read(["Range": range])
            #expect(none.status == 416 && none.headers["Content-Range"] == ["bytes */\(size)"], "\(range)")
        }
        for fields: HeaderFields in [
            ["Range": "bytes=5-2"], ["Range": "bytes=0-1,4-5"], ["Range": "lines=0-1"], ["Range": "bytes=-"],
            ["Range": "bytes=0-1", "If-Range": "\"v2\""], ["Range": "bytes=0-1", "If-Range": "W/\"v1\""],
        ] {
            #expect(try read(fields).status == 200 && read(fields).bytes == Self.content, "\(fields)")
        }
        // The backend is never asked for a part of what is sealed.
        #expect(!world.backend.received.contains { $0.contains("Range") })
    }

    @Test func plainFilesPassAsTheyAre() throws {
        let world = try Self.world()
        world.backend.files["old"] = (
            ["Content-Type": "text/plain", "ETag": "\"e\""], ByteBuffer(string: "an old file")
        )
        world.backend.files["empty"] = ([:], ByteBuffer())
        let read = try #require(Self.request(world, "GET", "/files/old", as: "t-bob"))
        #expect(read.text == "an old file" && read.headers["Content-Type"] == ["text/plain"])
        #expect(read.headers["ETag"] == ["\"e\""] && read.headers["X-Content-Type-Options"] == [])
        #expect(Self.request(world, "GET", "/files/empty", as: "t-bob")?.text.isEmpty == true)
        #expect(Self.request(world, "GET", "/files/none", as: "t-bob")?.status == 404)
        #expect(Self.request(world, "HEAD", "/files/old", as: "t-bob")?.headers["Content-Length"] == [])
        // A backend that knows ranges is asked for the range.
        world.backend.files["old"]?.fields.add("Accept-Ranges", "bytes")
        let before = world.backend.received.count
        #expect(Self.request(world, "GET", "/files/old", as: "t-bob", ["Range": "bytes=0-1"])?.status == 200)
        #expect(world.backend.received.count == before + 2)
    }

    @Test func damagedFilesAndExpiredKeysAreToldInWords() throws {
        let world = try Self.world(retention: 1000)
        _ = Self.upload(world)
        let sound = try #require(world.backend.files["f1"])
        func code(_ change: (inout ByteBuffer) -> Void) -> String? {
            var file = sound
            change(&file.body)
            world.backend.files["f1"] = file
            return Self.request(world, "GET", "/files/f1", as: "t-bob")?["error"]
        }
        #expect(code { $0.moveWriterIndex(to: SealedFile.words.count + 3) } == "pawl_file_unreadable")
        #expect(code { $0.moveWriterIndex(to: SealedFile.beginningSize) } == "pawl_file_unreadable")
        for place in [SealedFile.words.count, SealedFile.words.count + 3, SealedFile.beginningSize - 1] {
            #expect(code { $0.setInteger(0xEE as UInt8, at: place) } == "pawl_file_unreadable", "\(place)")
        }
        // Later bytes are checked as they pass: nothing of them comes.
        #expect(code { $0.setInteger(0xEE as UInt8, at: SealedFile.beginningSize + 70_000) } == nil)
        #expect(Self.request(world, "GET", "/files/f1", as: "t-bob") == nil)
        world.backend.files["f1"] = sound
        world.now = Timestamp(monotonic: world.now.monotonic, wall: world.now.wall + 1001)
        let late = Self.request(world, "GET", "/files/f1", as: "t-bob")
        #expect(late?.status == 410 && late?["error"] == "pawl_file_forgotten")
    }

    @Test func whatIsNotAFileByItselfIsRefused() throws {
        let world = try Self.world()
        for fields: HeaderFields in [
            ["Content-Type": "multipart/form-data; boundary=x"], ["Content-Type": "application/x-www-form-urlencoded"],
            ["Content-Encoding": "gzip"], ["Content-Range": "bytes 0-1/2"],
            ["Content-Type": "a/b", "content-type": "multipart/form-data"],
        ] {
            #expect(Self.upload(world, "/files", fields)?["error"] == "pawl_media", "\(fields)")
        }
        #expect(Self.upload(world, "/files?name=a&name=b")?["error"] == "pawl_media")
        #expect(Self.upload(world, "/files?n%61me=canary")?.status == 200)
        #expect(Self.upload(world, as: nil)?["error"] == "pawl_not_logged_in")
        #expect(Self.upload(try Self.world(.required))?["error"] == "pawl_media")
        #expect(!world.backend.hasReceived("canary"))
        // An empty file is sent without its name.
        #expect(Self.upload(world, "/files?name=canary", [:], ByteBuffer())?.status == 200)
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test func onlyProtectedPeopleSeal() throws {
        let world = try Self.world(.observe, accounts: ["alice": .hosted])
        _ = Self.upload(world, as: "t-bob")
        #expect(world.backend.files["f1"]?.body == Self.content)
        _ = Self.upload(world)
        #expect(world.backend.files["f2"]?.body != Self.content)
        for file in ["f1", "f2"] {
            #expect(Self.request(world, "GET", "/files/\(file)", as: "t-bob")?.bytes == Self.content)
        }
        // Files stay readable when nobody is protected any more, and after a restart.
        let later = try JSONWorld(.observe, mapping: Self.mapping(), backend: world.backend, store: world.store)
        #expect(Self.request(later, "GET", "/files/f2", as: "t-bob")?.bytes == Self.content)
    }

    @Test func aPictureStandsForItsThumbnail() throws {
        let world = try Self.world()
        _ = Self.upload(world)
        _ = Self.upload(world, "/files", ["Content-Type": "application/pdf"])
        world.backend.files["plain"] = (["Content-Type": "image/png"], ByteBuffer(string: "plain"))
        let whole = try #require(Self.request(world, "GET", "/thumbnails/f1?width=10", as: "t-bob"))
        #expect(whole.bytes == Self.content && whole.headers["Content-Type"] == ["image/png"])
        for file in ["f2", "plain", "none"] {
            #expect(
                Self.request(world, "GET", "/thumbnails/\(file)", as: "t-bob")?["error"] == "no thumbnail", "\(file)")
        }
        world.backend.thumbnail = "small"
        #expect(Self.request(world, "GET", "/thumbnails/plain", as: "t-bob")?.text == "small")
    }

    /// What `hosted` seals is not among what it refuses; `required` refuses it.
    @Test func uploadsAreCountedForWhatTheyAre() throws {
        #expect(ObservedRecipient.file.refusal(under: .hosted, target: "") == nil)
        #expect(ObservedRecipient.file.refusal(under: .required, target: "") == .media)
        #expect(ObservedRecipient.media.refusal(under: .hosted, target: "") == .media)
        let world = try Self.world(.observe)
        _ = Self.upload(world)
        _ = Self.upload(world, as: nil)
        _ = Self.upload(world, "/files", ["Content-Type": "multipart/form-data; boundary=x"])
        var kinds: [String] = []
        for case .rare(.addObservation(let row)) in world.environment.observations.take(wall: 0) {
            kinds.append(row.recipient)
        }
        #expect(kinds.sorted() == ["file", "media", "media"])
    }
}
