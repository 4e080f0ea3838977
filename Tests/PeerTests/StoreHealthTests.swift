import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// A disk that takes nothing more, and a data directory that is deleted under a running gateway.
@Suite(.blocking, .serialized) struct StoreHealthTests {
    private static let c = GenericLab.conversation
    private static let messages = "/conversations/\(c)/messages"
    private static let failing = "the store fails"

    /// Files of the process grow no further than this. Its log stays below, the log of the store is above.
    private static let bound = 32 << 10

    private func limitFiles(of gateway: PawlProcess, _ bytes: String) throws {
        let pid = try #require(gateway.pid)
        let output = try ChildProcess.run("/usr/bin/prlimit", ["--pid", "\(pid)", "--fsize=\(bytes):unlimited"])
        try #require(output.succeeded, "\(output.stderr)")
    }

    private func ready(_ port: FreePort) throws -> (status: Int, text: String) {
        let answer = try WebClient(port: port.number).request("GET", "/ready")
        return (answer.status, answer.text)
    }

    private func times(_ text: String, in gateway: PawlProcess) -> Int {
        gateway.output.components(separatedBy: text).count - 1
    }

    private func size(_ file: String, of gateway: PawlProcess) -> Int {
        let values = try? FileManager.default.attributesOfItem(atPath: gateway.dataDirectory + "/" + file)
        return (values?[.size] as? Int) ?? 0
    }

    @Test func aFullDiskIsReportedOnceAndEverywhere() throws {
        let metrics = try FreePort()
        let lab = try GenericLab(policy: "hosted", metrics: "127.0.0.1:\(metrics.number)")
        for number in 0..<20 { try lab.alice.post("warm \(number)", in: Self.c) }
        let gateway = lab.gateway
        try #require(size("pawl.sqlite-wal", of: gateway) > Self.bound)
        #expect(try ready(metrics).status == 200)
        #expect(try gateway.admin(["queue", "hold", "--account", "alice"]).succeeded)
        let waiting = try lab.begin("POST", Self.messages, ["id": "own-1", "text": "waits"])
        try lab.wait(for: 1)

        try limitFiles(of: gateway, "\(Self.bound)")
        for number in 0..<5 {
            let refused = try lab.alice.tryPosting("lost \(number)", in: Self.c)
            #expect(refused.status == 503, "\(refused.text)")
        }
        let (status, text) = try ready(metrics)
        #expect(status == 503 && text.contains(".sqlite"), "\(status) \(text)")
        let report = try gateway.admin(["status"])
        #expect(report.succeeded && report.stdout.contains("Messages that have to be stored are refused."), "\(report)")
        // What waits is still counted, and so is what was refused.
        #expect(report.stdout.contains("1 waiting") && report.stdout.contains("21 accepted"), "\(report.stdout)")
        let shares = try JSONValue(Array(try gateway.admin(["status", "--json"]).stdout.utf8))["shares"].array
        #expect((shares.first?["refused"].integer ?? 0) >= 5, "\(shares)")
        let page = try WebClient(port: metrics.number).request("GET", "/metrics").text
        #expect(page.contains("\npawl_store_failing 1\n") && page.contains("\npawl_requests_waiting 1\n"))
        #expect(times(Self.failing, in: gateway) == 1, "\(gateway.output)")

        try limitFiles(of: gateway, "unlimited")
        try eventually("it is ready again") { try ready(metrics).status == 200 }
        #expect(try gateway.admin(["queue", "release", "--account", "alice"]).succeeded)
        #expect(try waiting.answer(to: "POST").status == 201)
        try lab.alice.post("after", in: Self.c)
        #expect(try !gateway.admin(["status"]).stdout.contains("have to be stored"))
        // Once for each outage, however many were refused.
        #expect(times(Self.failing, in: gateway) == 1 && times("the store works again", in: gateway) == 1)
    }

    /// The same in front of IRC: nobody's message is lost without a word, and what is wrong is told in every place.
    @Test func inIRCAFullDiskIsReportedOnceAndEverywhere() throws {
        let metrics = try FreePort()
        let lab = try Lab(try NgIRCd(), policy: "hosted", arguments: ["--metrics", "127.0.0.1:\(metrics.number)"])
        defer { lab.stop() }
        let gateway = lab.gateway
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        for number in 0..<20 {
            alice.send("PRIVMSG bob :warm \(number)")
            try bob.expectMessage("warm \(number)")
        }
        try #require(size("pawl.sqlite-wal", of: gateway) > Self.bound)
        #expect(try ready(metrics).status == 200)

        try limitFiles(of: gateway, "\(Self.bound)")
        for number in 0..<5 {
            alice.send("PRIVMSG bob :lost \(number)")
            try alice.expect("a refusal") { $0.body.contains(Notices.notCommitted(target: "bob")) }
        }
        let (status, text) = try ready(metrics)
        #expect(status == 503 && text.contains("pawl.sqlite"), "\(status) \(text)")
        let report = try gateway.admin(["status"])
        #expect(report.succeeded && report.stdout.contains("Messages that have to be stored are refused."), "\(report)")
        let page = try WebClient(port: metrics.number).request("GET", "/metrics").text
        #expect(page.contains("\npawl_store_failing 1\n"), "\(page)")
        #expect(times(Self.failing, in: gateway) == 1, "\(gateway.output)")
        #expect(!lab.tap.shows("lost "))

        try limitFiles(of: gateway, "unlimited")
        try eventually("it is ready again") { try ready(metrics).status == 200 }
        alice.send("PRIVMSG bob :after")
        try bob.expectMessage("after")
        #expect(try !gateway.admin(["status"]).stdout.contains("have to be stored"))
        #expect(times(Self.failing, in: gateway) == 1 && times("the store works again", in: gateway) == 1)
        #expect(!bob.transcript.contains { $0.body.hasPrefix("lost ") })
    }

    @Test func aDeletedDataDirectoryAcceptsNothing() throws {
        let metrics = try FreePort()
        let lab = try GenericLab(policy: "hosted", metrics: "127.0.0.1:\(metrics.number)")
        try lab.alice.post("before", in: Self.c)
        try FileManager.default.removeItem(atPath: lab.gateway.dataDirectory)
        let (status, text) = try ready(metrics)
        #expect(status == 503 && text.contains("is not there any more"), "\(status) \(text)")
        #expect(try lab.alice.tryPosting("nowhere", in: Self.c).status == 503)
        #expect(try lab.backend.messages().count == 1)
        #expect(times(Self.failing, in: lab.gateway) == 1, "\(lab.gateway.output)")
    }

    /// Without a message and without a question it is told as well.
    @Test func inIRCADeletedDataDirectoryIsReported() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        alice.send("PRIVMSG bob :before")
        try bob.expectMessage("before")
        try FileManager.default.removeItem(atPath: lab.gateway.dataDirectory)
        try eventually("the log names it") { times(Self.failing, in: lab.gateway) == 1 }
        alice.send("PRIVMSG bob :nowhere")
        try alice.expect("a refusal") { $0.body.contains(Notices.notCommitted(target: "bob")) }
        #expect(times(Self.failing, in: lab.gateway) == 1)
    }
}
