import Foundation
import PawlMessenger
import PeerKit
import TestKit
import TestThreads
import Testing

/// Messengers over a real gateway and a real backend, which runs in a process of its own.
@Suite(.serialized) struct GatewayMessengerTests {
    /// Two people with two devices each.
    private struct People {
        var alice, tablet, bob, phone: App

        var all: [App] { [alice, tablet, bob, phone] }

        static func register(at lab: GatewayLab) async throws -> People {
            let alice = try await App.register("alice", at: lab, adopts: true)
            let bob = try await App.register("bob", at: lab, adopts: true)
            let people = People(
                alice: alice, tablet: try await App.register("alice", at: lab), bob: bob,
                phone: try await App.register("bob", at: lab))
            for device in [people.tablet, people.phone] {
                try await eventuallyAsync("\(device.messenger.username)'s device is adopted") {
                    await device.messenger.isAdopted()
                }
            }
            return people
        }
    }

    private func expect(_ texts: [String], of other: Username, at apps: [App]) async throws {
        for app in apps {
            try await eventuallyAsync("\(texts.count) texts for \(app.messenger.username)") {
                try await app.texts(with: other).count >= texts.count
            }
            #expect(try await app.texts(with: other).sorted() == texts.sorted())
        }
    }

    @Test func twoPeopleWithTwoDevicesEach() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        // A person with the client of before the upgrade uses the same gateway, with the same account.
        let port = lab.gateway.port
        try await blocking {
            let (olga, alice) = (try ChatPerson("olga", port: port), try ChatPerson("alice", port: port))
            try olga.open("c1", with: ["alice"])
            try olga.post("as ever", in: "c1")
            try alice.post("hello, olga", in: "c1")
            #expect(try olga.texts("c1") == ["as ever", "hello, olga"])
        }
        let people = try await People.register(at: lab)
        try await people.alice.chat("bob").sendText("one")
        try await expect(["one"], of: "alice", at: [people.bob, people.phone])
        try await people.phone.chat("alice").sendText("two")
        try await expect(["one", "two"], of: "bob", at: [people.alice])
        try await expect(["one", "two"], of: "alice", at: [people.bob, people.phone])
        #expect(people.alice.chat("bob").safetyNumber() == people.phone.chat("alice").safetyNumber())
        try await eventuallyAsync("a receipt has come") {
            try await people.alice.chat("bob").messages().first?.state == .received
        }
        try await people.bob.chat("alice").markAsRead()
        try await eventuallyAsync("it is read") {
            try await people.alice.chat("bob").messages().first?.state == .read
        }
        // Revoked: what is written from now on does not reach it, and it writes nothing.
        try await people.bob.messenger.revokeDevice(people.phone.messenger.deviceId)
        try await eventuallyAsync("alice knows the new list") {
            try await people.alice.messenger.transport.readKeyBundle(forUsername: "bob").devices.count == 1
        }
        try await people.bob.chat("alice").sendText("the phone is lost")
        try await expect(["one", "two", "the phone is lost"], of: "bob", at: [people.alice])
        try await people.alice.chat("bob").sendText("not for the phone")
        try await expect(["one", "two", "the phone is lost", "not for the phone"], of: "alice", at: [people.bob])
        #expect(try await !people.phone.texts(with: "alice").contains("not for the phone"))
        // Neither the backend nor what the gateway leaves on its disk has a text.
        for word in ["the phone is lost", "not for the phone"] {
            #expect(try lab.backend.knows(word) == false)
            let search = PlaintextSearch(word)
            #expect(
                search.files(under: lab.gateway.dataDirectory).isEmpty
                    && !search.finds(in: Data(lab.gateway.output.utf8)))
        }
        for app in people.all {
            app.close()
        }
    }

    /// Messages wait at the gateway for a device that is away, over a restart and a crash of the gateway. Proofs of
    /// devices are forgotten then, and made again.
    @Test func messagesOutliveTheGateway() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let alice = try await App.register("alice", at: lab)
        let bob = try await App.register("bob", at: lab)
        try await alice.chat("bob").sendText("0")
        try await expect(["0"], of: "alice", at: [bob])
        try await bob.messenger.transport.disconnect()
        for number in 1...3 { try await alice.chat("bob").sendText("\(number)") }
        try await eventuallyAsync("the gateway has them") {
            try await alice.chat("bob").messages().allSatisfy { ![.waiting, .undelivered].contains($0.state) }
        }
        lab.gateway.crash()
        // While there is no gateway, messages wait at the sender.
        try await alice.chat("bob").sendText("4")
        try await eventuallyAsync("alice knows that she is offline") {
            alice.messenger.transport.authenticated == .unauthenticated
        }
        try await blocking { try lab.gateway.start() }
        try? await bob.messenger.transport.reconnect()
        try await eventuallyAsync("all have come") {
            try await bob.texts(with: "alice") == (0...4).map { "\($0)" }
        }
        try await bob.chat("alice").sendText("all here")
        try await eventuallyAsync("the answer has come") { try await alice.texts(with: "bob").last == "all here" }
        #expect(try await bob.texts(with: "alice") == (0...4).map { "\($0)" } + ["all here"])
        for app in [alice, bob] { app.close() }
    }

    /// A device that was added while it was closed gets a mailbox, and stops nobody's messages meanwhile.
    @Test func aDeviceIsAddedWhileItIsClosed() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let alice = try await App.register("alice", at: lab)
        let bob = try await App.register("bob", at: lab)
        let phone = try await App.register("bob", at: lab)
        try await eventuallyAsync("the phone has asked") { bob.handler.events.requests.count == 1 }
        phone.close()
        try await bob.messenger.addDevice(bob.handler.events.requests[0])
        try await eventuallyAsync("the new list is published") {
            try await alice.messenger.transport.readKeyBundle(forUsername: "bob").devices.count == 2
        }
        try await bob.chat("alice").sendText("from the desk")
        try await expect(["from the desk"], of: "bob", at: [alice])
        try await alice.chat("bob").sendText("to the desk")
        try await expect(["from the desk", "to the desk"], of: "alice", at: [bob])
        let opened = try await App.register("bob", at: lab, phone.database)
        try await expect(["from the desk", "to the desk"], of: "alice", at: [opened])
        for app in [alice, bob, opened] { app.close() }
    }

    /// What came while the device was closed was sealed in a session that the copy does not have. It comes again under its
    /// id, sealed in a new one.
    @Test func aRestoredMessengerGetsWhatItHasMissed() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let alice = try await App.register("alice", at: lab)
        let bob = try await App.register("bob", at: lab)
        try await alice.chat("bob").sendText("one")
        try await expect(["one"], of: "alice", at: [bob])
        let copy = bob.database.copied()
        bob.close()
        try await alice.chat("bob").sendText("two")
        try await eventuallyAsync("the gateway has it") {
            try await alice.chat("bob").messages().allSatisfy { ![.waiting, .undelivered].contains($0.state) }
        }
        let restored = try await App.register("bob", at: lab, copy.restored())
        try await expect(["one", "two"], of: "alice", at: [restored])
        for app in [alice, restored] { app.close() }
    }

    /// Something that comes is fetched at once, without a WebSocket and without polling.
    @Test func messagesComeAtOnce() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let alice = try await App.register("alice", at: lab)
        let bob = try await App.register("bob", at: lab)
        try await alice.chat("bob").sendText("first")
        try await expect(["first"], of: "alice", at: [bob])
        // Bob's call waits at the gateway by now.
        try await Task.sleep(for: .seconds(2))
        let begin = ContinuousClock.now
        try await alice.chat("bob").sendText("second")
        try await eventuallyAsync("it has come") { try await bob.texts(with: "alice").count == 2 }
        #expect(begin.duration(to: .now) < .seconds(10), "less than the 20 seconds of a call")
        for app in [alice, bob] { app.close() }
    }

    /// A login that the backend has ended.
    @Test func aRefusedLoginIsMadeAgain() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let (good, url) = (try await lab.login("alice"), try lab.url)
        let messenger = try await CypherMessenger.registerMessenger(
            username: "alice", authenticationMethod: .identity, appPassword: "open sesame",
            usingTransport: {
                GatewayTransportClient(url: url, for: $0) { isRefused in
                    isRefused ? good : .bearer("a token of yesterday")
                }
            }, database: .inMemory(), eventHandler: RecordingHandler())
        try await eventuallyAsync("alice is logged in") { messenger.transport.authenticated == .authenticated }
        try await eventuallyAsync("the keys are published") {
            (try? await messenger.transport.readKeyBundle(forUsername: "alice")) != nil
        }
        messenger.close()
        // A login of somebody else is none.
        let other = try await lab.login("bob")
        let client = GatewayTransportClient(url: url, for: KeyedDevice("alice", 5).request()) { _ in other }
        await #expect(throws: CypherTransportError.offline) { try await client.reconnect() }
        #expect(client.authenticated == .authenticationFailure)
    }
}
