import Foundation
import PawlMessenger
import Synchronization
import TestKit
import Testing

/// Several people with several devices over a server with faults: crashes of the server, of networks and of apps.
@Suite struct ModelTests {
    /// A device of a person, whose app ends and starts again.
    private final class ModelDevice: @unchecked Sendable {
        let person: Username
        let database = MessengerDatabase.inMemory()
        let adopts: Bool
        var app: App?
        /// What it has shown, over all its lives.
        var shown: [String] = []

        init(_ person: Username, adopts: Bool) { (self.person, self.adopts) = (person, adopts) }

        func start(at server: SpoofServer) async throws {
            app = try await App.registerStubbornly(person, at: server, database, adopts: adopts)
        }

        func crash() {
            shown += app?.handler.events.created.map { "\($0.chat) \($0.text)" } ?? []
            app?.close()
            app = nil
        }
    }

    @Test(arguments: [UInt64(1), 2, 3])
    func allDevicesConvergeAndNothingIsShownTwice(_ seed: UInt64) async throws {
        var random = SeededGenerator(seed: seed)
        let server = SpoofServer(seed: seed)
        let people: [Username] = ["alice", "bob", "carol"]
        var devices: [ModelDevice] = []
        for person in people {
            for number in 0..<2 {
                let device = ModelDevice(person, adopts: number == 0)
                try await device.start(at: server)
                devices.append(device)
                if number == 1 {
                    try await eventuallyAsync("the device of \(person) is adopted, seed \(seed)") {
                        await device.app?.messenger.isAdopted() == true
                    }
                }
            }
        }
        server.setFaults(.all(8))
        // What was accepted, by the pair of people.
        var sent: [Set<Username>: [String]] = [:]
        for number in 0..<60 {
            guard let device = devices.randomElement(using: &random) else { continue }
            if Int.random(in: 0..<8, using: &random) == 0 {
                device.crash()
                try await device.start(at: server)
            }
            if Int.random(in: 0..<6, using: &random) == 0 {
                device.app?.transport?.supportsMultiRecipientMessages = Bool.random(using: &random)
            }
            let others = people.filter { $0 != device.person }
            guard let app = device.app, let to = others.randomElement(using: &random) else { continue }
            let text = "\(device.person) to \(to), number \(number)"
            try await app.chat(to).sendText(text)
            sent[[device.person, to], default: []].append(text)
        }
        server.setFaults(SpoofServer.Faults())
        for device in devices {
            for other in people where other != device.person {
                let expected = Set(sent[[device.person, other]] ?? [])
                try await eventuallyAsync("\(device.person) has all texts with \(other), seed \(seed)") {
                    Set(try await device.app?.texts(with: other) ?? []) == expected
                }
                let messages = try await device.app?.chat(other).messages(limit: 200) ?? []
                #expect(messages.count == expected.count, "a text is there twice, seed \(seed)")
                let unprotected = messages.filter { !$0.isEncrypted }
                #expect(unprotected.isEmpty)
            }
        }
        for device in devices {
            device.crash()
            #expect(Set(device.shown).count == device.shown.count, "a text was shown twice, seed \(seed)")
        }
        // The server has seen no text.
        let canary = Array(", number ".utf8)
        for bytes in server.receivedBytes {
            let isThere = bytes.indices.contains { bytes[$0...].starts(with: canary) }
            #expect(!isThere)
        }
    }

    /// Devices are lost and revoked while messages go on.
    @Test func aRevokedDeviceReadsNothingMoreUnderFaults() async throws {
        let server = SpoofServer(seed: 7, faults: .all(5))
        let alice = try await App.registerStubbornly("alice", at: server)
        let bob = try await App.registerStubbornly("bob", at: server, adopts: true)
        let phone = try await App.registerStubbornly("bob", at: server)
        try await eventuallyAsync("the phone is adopted") { await phone.messenger.isAdopted() }
        try await alice.chat("bob").sendText("for both")
        try await eventuallyAsync("both have it") {
            let one = try await bob.texts(with: "alice")
            let two = try await phone.texts(with: "alice")
            return one == ["for both"] && two == ["for both"]
        }
        try await bob.messenger.revokeDevice(phone.messenger.deviceId)
        try await bob.chat("alice").sendText("the phone is lost")
        try await eventuallyAsync("alice knows") {
            try await alice.texts(with: "bob").contains("the phone is lost")
        }
        for number in 0..<5 { try await alice.chat("bob").sendText("secret \(number)") }
        try await eventuallyAsync("bob has all") { try await bob.texts(with: "alice").count == 7 }
        #expect(try await phone.texts(with: "alice") == ["for both"])
        for app in [alice, bob, phone] { app.close() }
    }
}
