import Envelope
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import StorePort
import TestKit
import Testing
import Vault

/// Files in multipart forms: sealed as they pass, and everything that cannot be understood is refused.
@Suite struct FormFileTests {
    private static let boundary = "----------boundary"
    private static let type: HeaderFields = ["Content-Type": "multipart/form-data; boundary=\(boundary)"]
    private static let content: [UInt8] = {
        var random = SeededGenerator(seed: 6)
        // Lines that begin like a delimiter are content.
        return Array("canary \r\n--\(boundary.dropLast())\n--\(boundary)".utf8) + random.bytes(200_000)
    }()

    private struct Part {
        var disposition: String
        var type: String?
        var content: [UInt8]

        static func field(_ name: String, _ text: String) -> Part {
            Part(disposition: "form-data; name=\"\(name)\"", content: Array(text.utf8))
        }

        static func file(
            _ name: String = "file", _ fileName: String = "canary.png", _ content: [UInt8] = FormFileTests.content
        ) -> Part {
            Part(
                disposition: "form-data; name=\"\(name)\"; filename=\"\(fileName)\"", type: "image/png",
                content: content)
        }
    }

    private static func body(_ parts: [Part], end: String = "--\r\n") -> ByteBuffer {
        var body = ByteBuffer()
        for part in parts {
            body.writeString("--\(boundary)\r\nContent-Disposition: \(part.disposition)\r\n")
            if let type = part.type { body.writeString("Content-Type: \(type)\r\nContent-Length: 3\r\n") }
            body.writeString("\r\n")
            body.writeBytes(part.content)
            body.writeString("\r\n")
        }
        body.writeString("--\(boundary)\(end)")
        return body
    }

    /// The parts of a form as the backend gets it: names, names of files, types, contents.
    private static func parts(_ form: ByteBuffer) throws -> [(head: MultipartHead, content: [UInt8])] {
        var reader = MultipartReader(try MultipartBoundary(type))
        form.withUnsafeReadableBytes { reader.append($0) }
        var parts: [(head: MultipartHead, content: [UInt8])] = []
        while let piece = try reader.next() {
            switch piece {
            case .head(let head): parts.append((head, []))
            case .bytes(let bytes): parts[parts.count - 1].content += bytes
            case .end, .over: break
            }
        }
        try reader.finish()
        return parts
    }

    private static func world(
        _ policy: Policy = .hosted, parts: [String: FilePlaces.Part] = ["file": .file, "room": .pass]
    ) throws -> JSONWorld {
        var mapping = Mapping.lab
        mapping.routes.removeAll { $0.label == .media }
        var download = FilePlaces()
        download.needsNoLogin = true
        mapping.routes += [
            Mapping.Route(
                methods: ["POST"], path: try PathPattern("/files"), label: .upload, file: FilePlaces(parts: parts)),
            Mapping.Route(methods: ["GET"], path: try PathPattern("/files/{file}"), label: .download, file: download),
        ]
        return try JSONWorld(policy, mapping: mapping)
    }

    private static func send(
        _ world: JSONWorld, _ body: ByteBuffer, as token: String = "t-alice", _ fields: HeaderFields = type,
        to target: String = "/files"
    ) -> JSONWorld.Answer? {
        var head = RequestHead("POST", target, headers: fields)
        head.headers.add("Authorization", "Bearer \(token)")
        head.headers.add("Content-Length", "\(body.readableBytes)")
        return world.exchange(head, body)
    }

    /// Puts the file of the last form where people can read it.
    private static func publish(_ world: JSONWorld, _ file: String) throws {
        let form = try #require(world.backend.files[file]?.body)
        let part = try #require(parts(form).first { $0.head.fileName != nil })
        let fields: HeaderFields = [
            "Content-Type": part.head.type ?? "",
            "Content-Disposition": "inline; filename=\"\(part.head.fileName ?? "")\"",
        ]
        world.backend.files[file] = (fields, ByteBuffer(bytes: part.content))
    }

    private static func read(
        _ world: JSONWorld, _ token: String?, _ more: HeaderFields = [:], _ body: String = ""
    ) -> JSONWorld.Answer? {
        var head = RequestHead("GET", "/files/f1", headers: more)
        if let token { head.headers.add("Authorization", "Bearer \(token)") }
        if !body.isEmpty { head.headers.add("Content-Length", "\(body.utf8.count)") }
        return world.exchange(head, ByteBuffer(string: body))
    }

    @Test func theFileIsSealedAndTheFieldsPass() throws {
        let world = try Self.world()
        let fields: [Part] = [.field("room", "c1 \u{e9}"), .file(), .field("room", "")]
        #expect(Self.send(world, Self.body(fields))?["file"] == "f1")
        #expect(!world.backend.hasReceived("canary") && !world.backend.hasReceived("image/png"))
        let parts = try Self.parts(try #require(world.backend.files["f1"]?.body))
        #expect(parts.map(\.head.name) == ["room", "file", "room"])
        #expect(parts.map(\.head.fileName) == [nil, FormSealer.fileName, nil])
        #expect(parts[0].content == Array("c1 \u{e9}".utf8) && parts[2].content.isEmpty)
        #expect(parts[1].head.type == "application/octet-stream")
        #expect(parts[1].content.count == SealedFile.sealedSize(of: Self.content.count))
        #expect(world.backend.files["f1"]?.fields["Content-Type"] == Self.type["Content-Type"])
        try Self.publish(world, "f1")
        for token in ["t-alice", "t-bob"] {
            let read = try #require(Self.read(world, token))
            #expect(read.status == 200 && read.bytes == ByteBuffer(bytes: Self.content))
            #expect(read.headers["Content-Type"] == ["image/png"])
            #expect(read.headers["Content-Disposition"] == ["attachment; filename*=utf-8''canary.png"])
        }
        let part = try #require(Self.read(world, "t-bob", ["Range": "bytes=0-5"]))
        #expect(part.status == 206 && part.bytes == ByteBuffer(string: "canary"))
    }

    // MARK: Texts

    private static func withText(_ policy: Policy = .hosted) throws -> JSONWorld {
        let world = try JSONWorld(policy, mapping: .withForms())
        for name in ["alice", "bob", "carol", "eve"] { world.send("GET", "/me", as: "t-\(name)") }
        return world
    }

    private static let texts: [Part] = [
        .field("caption", "canary 2"), .file(), .field("thread", "7"), .field("text", "canary 1"),
    ]

    /// Its text is sealed when the form has come, and read by everybody in the room.
    @Test func aTextBesideTheFileIsSealed() throws {
        let world = try Self.withText()
        let sent = try #require(Self.send(world, Self.body(Self.texts), to: "/c/all/files"))
        #expect(sent.status == 200 && sent["message.data.text"] == "canary 1\ncanary 2", "\(sent.text)")
        #expect(!world.backend.hasReceived("canary"))
        let parts = try Self.parts(try #require(world.backend.files["f1"]?.body))
        #expect(parts.map(\.head.name) == ["file", "thread", "text"])
        #expect(parts[1].content == Array("7".utf8) && parts[2].content.starts(with: "?PAWL:".utf8))
        #expect(parts[0].content.count == SealedFile.sealedSize(of: Self.content.count))
        let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
        #expect(read["messages[0].data.text"] == "canary 1\ncanary 2", "\(read.text)")
        // A file alone is a message too, and its text is sealed as none.
        #expect(Self.send(world, Self.body([.file()]), to: "/c/all/files")?["message.data.text"] == "")
        #expect(world.backend.messages["all"]?.count == 2)
    }

    @Test func aTextBesideAFileIsJudgedAsATextAlone() throws {
        // Nothing is read where nothing is protected, and the backend gets the form as it came.
        let open = try Self.withText(.observe)
        #expect(Self.send(open, Self.body(Self.texts), to: "/c/all/files")?["message.data.text"] == "canary 1")
        #expect(open.backend.files["f1"]?.body == Self.body(Self.texts))
        // A room that is protected stays so, whoever writes.
        let world = try Self.withText()
        #expect(Self.send(world, Self.body(Self.texts), to: "/c/all/files")?.status == 200)
        world.environment.policies.update { $0.everyone = .observe }
        #expect(Self.send(world, Self.body(Self.texts), to: "/c/all/files")?.status == 200)
        #expect(!world.backend.hasReceived("canary"))
        world.environment.policies.update { $0.everyone = .hosted }
        for (body, code) in [
            (Self.body([.field("other", "canary"), .file()]), "PAWL_UNREADABLE_FORM"),
            (Self.body([.file("text", "canary", [])]), "PAWL_UNREADABLE_FORM"),
            (Self.body([.field("text", "canary 1"), .file(), .field("text", "canary 2")]), "pawl_unreadable"),
        ] {
            #expect(Self.send(world, body, to: "/c/all/files")?["error"] == code)
        }
        let half = FormSealer.fieldLimit / 2
        let long = String(repeating: "x", count: half)
        let form = Self.body([.field("text", long), .field("caption", long), .file()])
        #expect(Self.send(world, form, to: "/c/all/files")?["message"] == UploadFault.fieldTooLong.words)
        // In another form it cannot be sealed.
        let plain: HeaderFields = ["Content-Type": "image/png"]
        #expect(Self.send(world, ByteBuffer(string: "canary"), plain, to: "/c/all/files")?["error"] == "pawl_media")
        #expect(!world.backend.hasReceived("canary"))
        // An outsider of two refuses it before anything is sent.
        world.backend.rooms["two"] = ["alice", "zoe"]
        let before = world.backend.files.count
        #expect(Self.send(world, Self.body(Self.texts), to: "/c/two/files")?.status == 403)
        #expect(world.backend.files.count == before)
    }

    @Test func anEmptyFileAndAFormWithoutOne() throws {
        let world = try Self.world()
        #expect(Self.send(world, Self.body([.file("file", "canary", [])]))?.status == 200)
        try Self.publish(world, "f1")
        #expect(Self.read(world, "t-bob")?.bytes == ByteBuffer())
        #expect(Self.send(world, Self.body([.field("room", "c1")]))?.status == 200)
        #expect(!world.backend.hasReceived("canary"))
    }

    /// The files of a form have one key, and each is read by itself.
    @Test func severalFilesOfOneForm() throws {
        let world = try Self.world()
        let contents = [Self.content, Array("canary 2".utf8), []]
        let names = ["canary 1.png", "canary 2.png", "canary 3.png"]
        let form = Self.body([.field("room", "1")] + zip(names, contents).map { .file("file", $0, $1) })
        #expect(Self.send(world, form)?.status == 200)
        #expect(!world.backend.hasReceived("canary"))
        let parts = try Self.parts(try #require(world.backend.files["f1"]?.body)).dropFirst()
        #expect(parts.map(\.head.fileName) == [FormSealer.fileName, FormSealer.fileName, FormSealer.fileName])
        #expect(Set(parts.map { Array($0.content.prefix(SealedFile.headerSize)) }).count == 3)
        for (part, (name, content)) in zip(parts, zip(names, contents)) {
            world.backend.files["f1"] = ([:], ByteBuffer(bytes: part.content))
            let read = try #require(Self.read(world, "t-bob"))
            #expect(read.status == 200 && read.bytes == ByteBuffer(bytes: content))
            #expect(read.headers["Content-Disposition"].first?.contains(name.replacing(" ", with: "%20")) == true)
        }
        // A file under the number of another is no file.
        var moved = try #require(parts.first).content
        moved[SealedFile.headerSize - 1] = 1
        world.backend.files["f1"] = ([:], ByteBuffer(bytes: moved))
        #expect(Self.read(world, "t-bob")?["error"] == "pawl_file_unreadable")
    }

    @Test func anyNameCanBeAFile() throws {
        let world = try Self.world(parts: ["*": .file, "room": .pass])
        let form = Self.body([.field("room", "1"), .file("/home/canary.png")])
        #expect(Self.send(world, form)?.status == 200)
        // Some libraries write the path of the file there.
        let parts = try Self.parts(try #require(world.backend.files["f1"]?.body))
        #expect(parts.map(\.head.name) == ["room", FormSealer.fieldName])
        #expect(Self.send(world, Self.body([.field("x", "canary")]))?.status == 400)
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test func whatCannotBeUnderstoodIsRefused() throws {
        let world = try Self.world()
        let before = world.backend.received.count
        func refusal(_ body: ByteBuffer) -> String? {
            let answer = Self.send(world, body)
            #expect(answer?.status == 400 && answer?["error"] == "PAWL_UNREADABLE_FORM")
            return answer?["message"]
        }
        let forms: [([Part], UploadFault)] = [
            ([.file("other")], .unknownPart), ([.field("other", "canary")], .unknownPart),
            ([.field("file", "canary")], .noFile), ([.file("file", "")], .noFile),
            ([.file("room")], .fileInField),
            ([.field("room", String(repeating: "x", count: FormSealer.fieldLimit + 1))], .fieldTooLong),
            ([.field("room", "1\n--\(Self.boundary)\ncanary")], .form(.delimiter)),
            ([Part(disposition: "attachment", content: [])], .form(.head)),
        ]
        for (parts, fault) in forms { #expect(refusal(Self.body(parts)) == fault.words) }
        let ends: [(String, MultipartFault)] = [
            ("--\r\ncanary", .trailing), ("", .incomplete), ("-", .incomplete), ("xx", .delimiter),
        ]
        for (end, fault) in ends {
            #expect(refusal(Self.body([.file()], end: end)) == UploadFault.form(fault).words)
        }
        #expect(!world.backend.received.dropFirst(before).contains { $0.hasPrefix("POST") })
        for fault in UploadFault.all { #expect(fault.words.hasPrefix("Not sent: ") && fault.words.hasSuffix(".")) }
    }

    @Test func theHeadDecidesFirst() throws {
        let world = try Self.world()
        for fields: HeaderFields in [
            ["Content-Type": "multipart/form-data"], ["Content-Type": "multipart/form-data; boundary=short"],
            ["Content-Type": "multipart/mixed; boundary=\(Self.boundary)"],
            ["Content-Type": Self.type.first("Content-Type") ?? "", "Content-Encoding": "gzip"],
            ["Content-Type": Self.type.first("Content-Type") ?? "", "content-type": "a/b"],
        ] {
            #expect(Self.send(world, Self.body([.file()]), fields)?["error"] == "pawl_media", "\(fields)")
        }
        #expect(Self.send(try Self.world(.required), Self.body([.file()]))?["error"] == "pawl_media")
        #expect(!world.backend.hasReceived("canary"))
        // Nothing is read where nothing is protected.
        let open = try Self.world(.observe)
        #expect(Self.send(open, Self.body([.file("other"), .file()]))?.status == 200)
        #expect(open.backend.files["f1"]?.body == Self.body([.file("other"), .file()]))
    }

    /// The size of the pieces in which a form comes changes nothing of what is sealed, and memory is bounded.
    @Test(arguments: [1, 7, 1000, 65_536, 1_000_000]) func theFormComesInPieces(_ size: Int) throws {
        let content = size == 1 ? Array(Self.content.prefix(2000)) : Self.content
        let header = SealedFile.Header(key: MessageID(1), prefix: [1, 2, 3, 4, 5, 6, 0])
        let bytes = [UInt8](repeating: 5, count: SealedFile.keySize)
        let key = SealedFile.Key(
            header, ContentKey(message: MessageID(1), digest: header.digest, expiresAt: .max, bytes: bytes))
        let form = FormSealer(key, try MultipartBoundary(Self.type), ["a": .pass, "file": .file])
        let body = Self.body([.field("a", "1"), .file("file", "n", content), .field("a", "2")])
        let sealed = try BodySealer(form: form).whole(body, in: size)
        let parts = try Self.parts(sealed)
        #expect(parts.map(\.head.name) == ["a", "file", "a"])
        #expect(try SealedFile.Opener(key).whole(ByteBuffer(bytes: parts[1].content)) == ByteBuffer(bytes: content))
        let description = try SealedFile.Opener(key).description(in: parts[1].content)
        #expect(description == SealedFile.Description(type: "image/png", name: "n"))
        // Of an unfinished field the backend gets nothing.
        var (sealer, output) = (BodySealer(form: form), [UInt8]())
        try body.getSlice(at: 0, length: 60)?.withUnsafeReadableBytes { try sealer.seal($0, into: &output) }
        #expect(output.isEmpty && !sealer.keepsLength)
    }

    /// Some clients send a body with every request; nothing of it goes on.
    @Test func aRequestForAFileMayHaveABody() throws {
        let world = try Self.world()
        #expect(Self.send(world, Self.body([.file()]))?.status == 200)
        try Self.publish(world, "f1")
        #expect(Self.read(world, "t-bob", [:], "{\"a\":\"canary\"}")?.bytes == ByteBuffer(bytes: Self.content))
        #expect(
            Self.read(world, "t-bob", ["X-HTTP-Method-Override": "POST"], "{}")?.bytes
                != ByteBuffer(bytes: Self.content))
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test func anAddressMayStandForALogin() throws {
        let world = try Self.world()
        #expect(Self.send(world, Self.body([.file()]))?.status == 200)
        try Self.publish(world, "f1")
        // Who may read it, the backend decides.
        #expect(Self.read(world, nil)?.status == 401)
        world.backend.areFilesPublic = true
        for token in [nil, "t-nobody"] {
            #expect(Self.read(world, token)?.bytes == ByteBuffer(bytes: Self.content))
        }
        world.backend.files["f1"] = ([:], ByteBuffer(string: "plain"))
        #expect(Self.read(world, nil)?.text == "plain")
        #expect(Self.read(world, nil, ["Range": "bytes=0-0"])?.text == "plain")
    }
}
