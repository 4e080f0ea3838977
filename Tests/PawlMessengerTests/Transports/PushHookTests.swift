import Foundation
import PawlMessenger
import PeerKit
import TestKit
import TestThreads
import Testing

/// The push hook of a real gateway, and a real receiver.
@Suite(.serialized) struct PushHookTests {
    private static let token = "apns:00ff \u{1F514} opaque"

    /// Two people with messengers, of whom bob has set a token and is away.
    private func people(_ lab: GatewayLab) async throws -> (alice: App, bob: App) {
        let (alice, bob) = (try await App.register("alice", at: lab), try await App.register("bob", at: lab))
        try await eventuallyAsync("bob's token is set") {
            (try? await bob.messenger.setPushToken(Self.token)) != nil
        }
        // He is connected: this makes no notice.
        try await alice.chat("bob").sendText("hello")
        try await eventuallyAsync("bob has it") { try await bob.texts(with: "alice") == ["hello"] }
        try await bob.messenger.transport.disconnect()
        return (alice, bob)
    }

    private func metric(_ name: String, _ port: FreePort) async throws -> String? {
        try await blocking {
            let page = try WebClient(port: port.number).request("GET", "/metrics").text
            return page.split(separator: "\n").first { $0.hasPrefix(name + " ") }.map {
                String($0.dropFirst(name.count + 1))
            }
        }
    }

    private func status(_ lab: GatewayLab) async throws -> String {
        try await blocking { try lab.gateway.admin(["status"]).stdout }
    }

    @Test(arguments: [false, true]) func aDeviceThatIsAwayIsWokenOnce(_ usesTLS: Bool) async throws {
        let receiver = try PushReceiver(usesTLS: usesTLS)
        try await receiver.start()
        defer { receiver.stop() }
        let port = try FreePort()
        let lab = try await GatewayLab.start(settings: receiver.settings, metrics: "127.0.0.1:\(port.number)")
        defer { lab.stop() }
        let (alice, bob) = try await people(lab)
        let began = ContinuousClock.now
        for number in 0..<20 { try await alice.chat("bob").sendText("number \(number), which is secret") }
        try await eventuallyAsync("the receiver has a notice") { !receiver.notices.isEmpty }
        let notice = try #require(receiver.notices.first)
        #expect(notice.path == "/wake?app=1")
        #expect(try JSONValue(notice.body.utf8) == ["version": 1, "token": .string(Self.token)])
        #expect(notice.headers["Authorization"] == "Bearer correct-horse")
        // The whole of what has left the gateway has neither names nor texts.
        let whole = "\(notice)".lowercased()
        for word in ["alice", "bob", "number", "secret", alice.messenger.deviceId.raw, bob.messenger.deviceId.raw] {
            #expect(!whole.contains(word), "\(word) in \(whole)")
        }
        let delivered = "pawl_push_notices_total{outcome=\"delivered\"}"
        try await eventuallyAsync("it is delivered") { (try await metric(delivered, port) ?? "0") != "0" }
        try await bob.messenger.transport.reconnect()
        try await eventuallyAsync("bob has fetched all") { try await bob.texts(with: "alice").count == 21 }
        // Messages that come half a minute after a notice make another one, and a notice that is answered too late comes again.
        let count = Int(try await metric(delivered, port) ?? "") ?? .max
        #expect(count <= 2 + Int((ContinuousClock.now - began) / .seconds(30)), "twenty messages, and one notice")
        #expect(Set(receiver.notices.map(\.body)).count == 1)
        for app in [alice, bob] { app.close() }
    }

    /// The hook is down, then fails, then works: the notice comes, no message waits for it, and the operator is told.
    @Test func aHookThatFailsIsTriedAgain() async throws {
        let receiver = try PushReceiver()
        defer { receiver.stop() }
        let port = try FreePort()
        let lab = try await GatewayLab.start(settings: receiver.settings, metrics: "127.0.0.1:\(port.number)")
        defer { lab.stop() }
        let (alice, bob) = try await people(lab)
        let carol = try await App.register("carol", at: lab)
        try await alice.chat("bob").sendText("are you there?")
        try await eventuallyAsync("the operator is told") { try await status(lab).contains("push hook fails") }
        try await receiver.start(500)
        try await eventuallyAsync("it is tried again") { !receiver.notices.isEmpty }
        try receiver.answer(200, after: 2)
        let failed = receiver.notices.count
        try await eventuallyAsync("and again") { receiver.notices.count > failed }
        // A hook that is slow delays no delivery.
        try await alice.chat("carol").sendText("meanwhile")
        try await eventuallyAsync("carol has it") { try await carol.texts(with: "alice") == ["meanwhile"] }
        try await eventuallyAsync("it was delivered") {
            try await metric("pawl_push_notices_total{outcome=\"delivered\"}", port) == "1"
        }
        #expect(try await status(lab).contains("push hook fails") == false)
        #expect(try await metric("pawl_push_pending", port) == "0")
        #expect(Set(receiver.notices.map(\.body)).count == 1)
        for app in [alice, bob, carol] { app.close() }
    }

    /// 410 removes the token, for good; the app sets a new one.
    @Test func aTokenThatIsGoneIsRemoved() async throws {
        let receiver = try PushReceiver()
        try await receiver.start(410)
        defer { receiver.stop() }
        let port = try FreePort()
        let lab = try await GatewayLab.start(settings: receiver.settings, metrics: "127.0.0.1:\(port.number)")
        defer { lab.stop() }
        let (alice, bob) = try await people(lab)
        #expect(try await metric("pawl_push_tokens", port) == "1")
        try await alice.chat("bob").sendText("one")
        try await eventuallyAsync("the token is removed") { try await metric("pawl_push_tokens", port) == "0" }
        try await blocking { try lab.gateway.restart() }
        #expect(try await metric("pawl_push_tokens", port) == "0")
        try await bob.messenger.transport.reconnect()
        try await eventuallyAsync("bob sets another one") {
            (try? await bob.messenger.setPushToken("another")) != nil
        }
        #expect(try await metric("pawl_push_tokens", port) == "1")
        try await bob.messenger.setPushToken(nil)
        #expect(try await metric("pawl_push_tokens", port) == "0")
        for app in [alice, bob] { app.close() }
    }

    /// A gateway that was killed notifies a device of what came before.
    @Test func aNoticeOutlivesTheGateway() async throws {
        let receiver = try PushReceiver()
        try await receiver.start()
        defer { receiver.stop() }
        let lab = try await GatewayLab.start(settings: receiver.settings)
        defer { lab.stop() }
        let (alice, bob) = try await people(lab)
        try await alice.chat("bob").sendText("one")
        try await eventuallyAsync("the gateway has it") {
            try await alice.chat("bob").messages(limit: 9).allSatisfy { ![.waiting, .undelivered].contains($0.state) }
        }
        lab.gateway.crash()
        try await blocking { try lab.gateway.start() }
        try await eventuallyAsync("the receiver has a notice") { !receiver.notices.isEmpty }
        for app in [alice, bob] { app.close() }
    }

    @Test func aGatewayWithoutAHookTakesNoToken() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let bob = try await App.register("bob", at: lab)
        try await eventuallyAsync("it is refused") {
            do {
                try await bob.messenger.setPushToken("token")
                return false
            } catch CypherMessengerError.serverFailed(let words) {
                return words.contains("no push hook")
            }
        }
        bob.close()
    }

    /// What a configuration may name.
    @Test(arguments: [
        ("http://push.example.org/", "plain text beyond loopback"), ("ftp://localhost/", "scheme is not known"),
        ("https://user@push.example.org/", "with a user"), ("https://", "without a host"),
    ]) func aHookIsOnLoopbackOrOverTLS(_ url: String, _ reason: String) async throws {
        let checked = try await blocking {
            let scratch = try ScratchDirectory()
            let file = scratch.file("pawl.yaml")
            try "policy: observe\n".write(toFile: file, atomically: true, encoding: .utf8)
            return try PawlProcess.run(["config", "check", file], environment: ["PAWL_PUSH_URL": url])
        }
        #expect(!checked.succeeded && (checked.stdout + checked.stderr).contains(reason), "\(checked)")
    }
}
