import Devices
import DoubleRatchet
import Foundation
import PawlMessenger
import PeerKit
import TestKit
import TestThreads
import Testing

/// One-time prekeys of messengers at a real gateway.
@Suite(.serialized) struct GatewayPreKeyTests {
    /// A device of a person with prekeys of its own, connected and proven.
    private func connect(_ name: Username, _ id: UInt64, at lab: GatewayLab) async throws -> (
        device: KeyedDevice, client: GatewayTransportClient
    ) {
        let device = KeyedDevice(name, id)
        let client = try await lab.client(for: device.request())
        try await client.reconnect()
        try await client.publishKeyBundle(KeyedDevice.config(device.list(), of: [device]))
        return (device, client)
    }

    private static func keys(_ count: Int, of device: KeyedDevice) -> [OneTimePreKeyConfig] {
        var (random, store, changes) = (SystemRandomSource(), PreKeyStore(), [PreKeyChange]())
        return store.makeOneTimeKeys(count, at: 0, random: &random, &changes).map { key in
            var bytes: [UInt8] = []
            key.serialize(into: &bytes)
            return OneTimePreKeyConfig(bytes: bytes, of: device.deviceId)
        }
    }

    /// How many one-time prekeys the gateway has for the device of a login.
    private func left(_ login: GatewayCredential, at lab: GatewayLab) async throws -> Int? {
        let port = lab.gateway.port
        return try await blocking {
            let client = WebClient(port: port)
            client.headers = [(login.header, login.value)]
            return try client.request("GET", "/_pawl/v1/me", [:]).json["one_time"].integer
        }
    }

    @Test func firstMessagesUsePrekeysThatAreReplenished() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let url = try lab.url
        let login = try await lab.login("bob")
        let bob = try await CypherMessenger.registerMessenger(
            username: "bob", authenticationMethod: .identity, appPassword: "open sesame",
            usingTransport: { GatewayTransportClient(url: url, for: $0) { _ in login } }, database: .inMemory(),
            eventHandler: RecordingHandler())
        try await eventuallyAsync("bob's messenger has published prekeys") { try await left(login, at: lab) == 50 }
        let alice = try await App.register("alice", at: lab)
        try await alice.chat("bob").sendText("hello")
        try await eventuallyAsync("it has come") {
            try await bob.createPrivateChat(with: "alice").messages(limit: 9).map(\.text) == ["hello"]
        }
        #expect(try await left(login, at: lab) == 49)
        // A gateway that was killed has those that nobody has got, also after the devices have proven themselves again.
        lab.gateway.crash()
        try await blocking { try lab.gateway.start() }
        try await eventuallyAsync("bob is proven again") { try await left(login, at: lab) == 49 }
        try await bob.createPrivateChat(with: "alice").sendText("hello, alice")
        try await eventuallyAsync("the answer has come") { try await alice.texts(with: "bob").count == 2 }
        alice.close()
        bob.close()
    }

    /// Askers at the same time, while the gateway is killed again and again: no prekey goes to two of them.
    @Test func noPrekeyIsHandedOutTwice() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let bob = try await connect("bob", 1, at: lab)
        try await bob.client.publishOneTimePreKeys(Self.keys(100, of: bob.device))
        var askers: [GatewayTransportClient] = []
        for number in 0..<5 {
            askers.append(try await connect(Username("asker\(number)"), UInt64(10 + number), at: lab).client)
        }
        var taken: [OneTimePreKeyConfig] = []
        for round in 0..<4 {
            taken += try await withThrowingTaskGroup(of: [OneTimePreKeyConfig].self) { group in
                for asker in askers {
                    for _ in 0..<3 {
                        group.addTask { (try? await asker.takeOneTimePreKeys(ofUser: "bob")) ?? [] }
                    }
                }
                try await Task.sleep(for: .milliseconds(10 * round))
                lab.gateway.crash()
                var all: [OneTimePreKeyConfig] = []
                for try await some in group { all += some }
                return all
            }
            try await blocking { try lab.gateway.start() }
        }
        for asker in askers {
            try await eventuallyAsync("the asker is proven again") {
                (try? await asker.takeOneTimePreKeys(ofUser: "bob")) != nil
            }
            for _ in 0..<10 { taken += try await asker.takeOneTimePreKeys(ofUser: "bob") }
        }
        #expect(!taken.isEmpty && Set(taken).count == taken.count)
        #expect(taken.count <= 5 * 8, "each asking account has its share")
    }

    /// A gateway that is set back to a backup has no prekey that was handed out after it, nor one from before.
    @Test func aRestoredGatewayHandsOutNoUsedPrekey() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let bob = try await connect("bob", 1, at: lab)
        let asker = try await connect("carol", 2, at: lab).client
        try await bob.client.publishOneTimePreKeys(Self.keys(30, of: bob.device))
        let scratch = try ScratchDirectory()
        let file = scratch.file("backup")
        let saved = try await blocking { try lab.gateway.admin(["backup", file]) }
        #expect(saved.succeeded)
        let first = try await asker.takeOneTimePreKeys(ofUser: "bob")
        #expect(first.count == 1)
        try await blocking {
            lab.gateway.crash()
            let restored = try PawlProcess.run(["restore", file, "--data", lab.gateway.dataDirectory, "--force"])
            #expect(restored.succeeded)
            try lab.gateway.start()
        }
        try await eventuallyAsync("the asker is proven again") {
            (try? await asker.takeOneTimePreKeys(ofUser: "bob")) != nil
        }
        #expect(try await asker.takeOneTimePreKeys(ofUser: "bob").isEmpty)
        try await bob.client.publishOneTimePreKeys(Self.keys(1, of: bob.device))
        let next = try await asker.takeOneTimePreKeys(ofUser: "bob")
        #expect(next.count == 1 && next != first)
    }
}
