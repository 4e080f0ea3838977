import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Files through the gateway and a real Synapse.
@Suite(.blocking, .serialized) struct MatrixFileTests {
    private static let files = "/_matrix/client/v1/media"

    private func client(_ token: String, _ port: UInt16) -> WebClient {
        let client = WebClient(port: port)
        client.headers = [("Authorization", "Bearer \(token)")]
        return client
    }

    private func upload(
        _ client: WebClient, _ type: String, _ body: [UInt8], name: String = "x"
    ) throws -> Substring {
        let answer = try client.request(
            "POST", "/_matrix/media/v3/upload?filename=\(name)", headers: [("Content-Type", type)], body: body)
        return try #require(answer.json["content_uri"].string, "\(answer.text)").dropFirst("mxc://".count)
    }

    @Test func filesAreSealedForTheServerAndOpenedForPeople() throws {
        let lab = try MatrixLab(policy: "hosted")
        defer { lab.stop() }
        let (alice, bob) = (try lab.synapse.register("alice"), try lab.synapse.register("bob"))
        let (sender, reader) = (client(alice, lab.gateway.port), client(bob, lab.gateway.port))
        let outsider = client(bob, lab.synapse.port)
        var random = SeededGenerator(seed: 3)
        let body = Array("Sumpfdotterblume ".utf8) + random.bytes(1_000_000) + Array(" Wiesenschaumkraut".utf8)
        let file = try upload(sender, "application/pdf", body, name: "Trollblume.pdf")

        // Nothing of it is at the server: not its bytes, not its name, not its type.
        for word in ["Sumpfdotterblume", "Wiesenschaumkraut", "Trollblume"] {
            #expect(lab.synapse.files(showing: word).isEmpty && !lab.tap.shows(word), "\(word)")
        }
        let stored = try outsider.request("GET", "\(Self.files)/download/\(file)")
        #expect(stored.status == 200 && stored.text.contains("This file is encrypted."))
        #expect(stored.header("content-type") == "application/octet-stream")
        #expect(Data(stored.body).range(of: Data(body.prefix(17))) == nil)

        for person in [sender, reader] {
            let read = try person.request("GET", "\(Self.files)/download/\(file)")
            #expect(read.status == 200 && read.body == body)
            #expect(read.header("content-type") == "application/pdf")
            #expect(read.header("content-disposition")?.contains("Trollblume.pdf") == true)
        }
        let part = try reader.request(
            "GET", "\(Self.files)/download/\(file)", headers: [("Range", "bytes=131000-131199")])
        #expect(part.status == 206 && part.body == Array(body[131_000..<131_200]))
        #expect(part.header("content-range") == "bytes 131000-131199/\(body.count)")
        let end = try reader.request("GET", "\(Self.files)/download/\(file)", headers: [("Range", "bytes=-18")])
        #expect(end.status == 206 && end.text == " Wiesenschaumkraut")

        // A file that the server had before.
        let old = try upload(outsider, "text/plain", Array("an old file".utf8))
        #expect(try reader.request("GET", "\(Self.files)/download/\(old)").text == "an old file")

        // The server makes no thumbnail of what it cannot read, and people see the picture.
        let picture = try #require(Data(base64Encoded: Self.pixel))
        let image = try upload(sender, "image/png", Array(picture), name: "pixel.png")
        let small = "\(Self.files)/thumbnail/\(image)?width=32&height=32&method=scale"
        #expect(try outsider.request("GET", small).status >= 400)
        let shown = try reader.request("GET", small)
        #expect(shown.status == 200 && shown.body == Array(picture) && shown.header("content-type") == "image/png")
        let plain = try upload(outsider, "image/png", Array(picture))
        let direct = try outsider.request("GET", "\(Self.files)/thumbnail/\(plain)?width=32&height=32&method=scale")
        let through = try reader.request("GET", "\(Self.files)/thumbnail/\(plain)?width=32&height=32&method=scale")
        #expect(through.status == direct.status && through.body == direct.body)

        // A file in a form with other parts is refused in words.
        let form = try sender.request(
            "POST", "/_matrix/media/v3/upload", headers: [("Content-Type", "multipart/form-data; boundary=b")],
            body: Array("--b--".utf8))
        #expect(form.status == 403 && form.json["errcode"] == "M_FORBIDDEN")

        // An announced file, an empty one, and one of exactly a chunk.
        let announced = try sender.request("POST", "/_matrix/media/v1/create", [:])
        let later = try #require(announced.json["content_uri"].string).dropFirst("mxc://".count)
        let put = try sender.request(
            "PUT", "/_matrix/media/v3/upload/\(later)", headers: [("Content-Type", "text/plain")],
            body: Array("Ackerwinde".utf8))
        #expect(put.status == 200, "\(put.text)")
        #expect(try reader.request("GET", "\(Self.files)/download/\(later)").text == "Ackerwinde")
        #expect(lab.synapse.files(showing: "Ackerwinde").isEmpty)
        let chunk = random.bytes(65_536)
        let whole = try upload(sender, "video/mp4", chunk)
        #expect(try reader.request("GET", "\(Self.files)/download/\(whole)").body == chunk)
    }

    /// A PNG of one pixel.
    private static let pixel =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
}
