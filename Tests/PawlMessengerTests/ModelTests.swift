import Foundation
import PawlMessenger
import Synchronization
import TestKit
import Testing

/// Five people with three devices each over a server with faults: devices are adopted, lost, revoked and replaced while
/// apps, networks and the server crash.
@Suite struct ModelTests {
    /// A device of a person, whose app ends and starts again.
    private final class ModelDevice: @unchecked Sendable {
        let person: Username
        let database = MessengerDatabase.inMemory()
        /// Whether it is the first device, which adds and removes the others.
        let isMaster: Bool
        var app: App?
        /// Whether the person has it no longer.
        var isLost = false
        /// Whether it has been there from the beginning, so that it has every text.
        var isOriginal = false
        /// What it has shown, over all its lives.
        var shown: [String] = []

        init(_ person: Username, isMaster: Bool) { (self.person, self.isMaster) = (person, isMaster) }

        func start(at server: SpoofServer) async throws {
            app = try await App.registerStubbornly(person, at: server, database, adopts: isMaster)
        }

        func crash() {
            shown += app?.handler.events.created.map { "\($0.chat) \($0.text)" } ?? []
            app?.close()
            app = nil
        }

        func demandApp() throws -> App {
            guard let app else { throw CypherTransportError.offline }
            return app
        }
    }

    /// Not all devices got the texts of a round.
    private struct NoConvergence: Error { var seed: UInt64 }

    /// The people, and what they have written.
    private final class Model {
        static let people: [Username] = ["alice", "bob", "carol", "dave", "erin"]
        /// Ours: so that a list stays below its limit of versions.
        private static let lossLimit = 2

        let server: SpoofServer
        let seed: UInt64
        var random: SeededGenerator
        var devices: [ModelDevice] = []
        /// Texts that were accepted, by the pair of people.
        var sent: [Set<Username>: Set<String>] = [:]
        /// Of those, texts of devices that were lost later: they may have been lost with them.
        var uncertain: Set<String> = []
        private var writtenBy: [ObjectIdentifier: Set<String>] = [:]
        private var losses: [Username: Int] = [:]

        init(_ seed: UInt64) {
            (self.seed, random) = (seed, SeededGenerator(seed: seed))
            server = SpoofServer(seed: seed, faults: .all(3))
        }

        var present: [ModelDevice] { devices.filter { !$0.isLost } }

        func master(of person: Username) throws -> ModelDevice {
            guard let master = devices.first(where: { $0.person == person && $0.isMaster }) else {
                throw CypherTransportError.notFound
            }
            return master
        }

        /// Adds a device, and waits until it is in the list of its account.
        func add(_ person: Username, isMaster: Bool) async throws -> ModelDevice {
            let device = ModelDevice(person, isMaster: isMaster)
            try await device.start(at: server)
            devices.append(device)
            try await eventuallyAsync("a device of \(person) is adopted, seed \(seed)") {
                await device.app?.messenger.isAdopted() == true
            }
            return device
        }

        func write(_ text: String, _ device: ModelDevice, to other: Username) async throws {
            try await device.demandApp().chat(other).sendText(text)
            sent[[device.person, other], default: []].insert(text)
            writtenBy[ObjectIdentifier(device), default: []].insert(text)
        }

        /// A person loses a device, removes it from the account, and adds another one.
        func lose(_ device: ModelDevice) async throws {
            guard losses[device.person, default: 0] < Self.lossLimit else { return }
            losses[device.person, default: 0] += 1
            device.isLost = true
            uncertain.formUnion(writtenBy[ObjectIdentifier(device)] ?? [])
            // Whoever has it keeps the app running, or not.
            let id = try device.demandApp().messenger.deviceId
            if Bool.random(using: &random) { device.crash() }
            try await master(of: device.person).demandApp().messenger.revokeDevice(id)
            _ = try await add(device.person, isMaster: false)
        }

        func step(_ number: Int) async throws {
            guard let device = present.randomElement(using: &random) else { return }
            switch Int.random(in: 0..<24, using: &random) {
            case 0...2:
                device.crash()
                try await device.start(at: server)
            case 3:
                guard let victim = present.filter({ !$0.isOriginal }).randomElement(using: &random) else { break }
                try await lose(victim)
            case 4...6: device.app?.transport?.supportsMultiRecipientMessages = Bool.random(using: &random)
            default: break
            }
            let others = Self.people.filter { $0 != device.person }
            guard !device.isLost, let other = others.randomElement(using: &random) else { return }
            try await write("\(device.person) to \(other), number \(number)", device, to: other)
        }

        /// Every person writes to every other one, until a round reaches all devices.
        ///
        /// The first rounds may use lists that have changed meanwhile.
        ///
        /// - Returns: the texts of the last round, and what the server has received since its begin.
        func converge() async throws -> (texts: Set<String>, tapped: ArraySlice<[UInt8]>) {
            for round in 1...6 {
                let before = server.receivedBytes.count
                var texts: [Set<Username>: Set<String>] = [:]
                for person in Self.people {
                    for other in Self.people where other != person {
                        let text = "\(person) to \(other), number of the round \(round)"
                        try await write(text, master(of: person), to: other)
                        texts[[person, other], default: []].insert(text)
                    }
                }
                do {
                    try await eventuallyAsync("round \(round) is complete, seed \(seed)", timeout: .seconds(6)) {
                        for device in self.present {
                            for other in Self.people where other != device.person {
                                let expected = texts[[device.person, other]] ?? []
                                let there = Set(try await device.app?.texts(with: other) ?? [])
                                guard expected.isSubset(of: there) else { return false }
                            }
                        }
                        return true
                    }
                    let all = texts.values.reduce(into: Set<String>()) { $0.formUnion($1) }
                    return (all, server.receivedBytes.dropFirst(before))
                } catch is TimeoutError {
                    continue
                }
            }
            throw NoConvergence(seed: seed)
        }
    }

    /// Two seeds; with `PAWL_LONG` twenty.
    private static let seeds: [UInt64] = Array(
        1...(ProcessInfo.processInfo.environment["PAWL_LONG"] == nil ? 2 : 20))

    @Test(arguments: seeds)
    func allDevicesConvergeAndNoRemovedOneReads(_ seed: UInt64) async throws {
        let model = Model(seed)
        for person in Model.people {
            for number in 0..<3 {
                let device = try await model.add(person, isMaster: number == 0)
                device.isOriginal = number < 2
            }
        }
        model.server.setFaults(.all(8))
        for number in 0..<120 { try await model.step(number) }
        model.server.setFaults(SpoofServer.Faults())
        let (last, tapped) = try await model.converge()
        let lost = model.devices.filter(\.isLost)
        #expect(!lost.isEmpty, "no device was lost, seed \(seed)")

        // Devices from the beginning have all texts, and later ones no others; each text once.
        for device in model.present {
            for other in Model.people where other != device.person {
                let sent = model.sent[[device.person, other]] ?? []
                if device.isOriginal {
                    let certain = sent.subtracting(model.uncertain)
                    try await eventuallyAsync("\(device.person) has all texts with \(other), seed \(seed)") {
                        Set(try await device.app?.texts(with: other) ?? []).isSuperset(of: certain)
                    }
                }
                let messages = try await device.demandApp().chat(other).messages(limit: 200)
                #expect(Set(messages.map(\.text)).isSubset(of: sent), "a text of nobody, seed \(seed)")
                #expect(Set(messages.map(\.text)).count == messages.count, "a text is there twice, seed \(seed)")
                #expect(!messages.contains { !$0.isEncrypted }, "a text was not encrypted, seed \(seed)")
            }
        }

        // The latch: a text without protection is withheld by every device.
        for device in model.present {
            guard let other = Model.people.first(where: { $0 != device.person }) else { continue }
            let app = try device.demandApp()
            try await app.messenger.receiveServerEvent(.plaintextReceived("unprotected", id: nil, byUser: other))
            #expect(try await !app.texts(with: other).contains("unprotected"), "the latch fell, seed \(seed)")
        }

        // Whoever has a removed device gets all that the server has seen, and opens nothing of the last round.
        for device in lost {
            if device.app == nil { try await device.start(at: model.server) }
            let app = try device.demandApp()
            for bytes in tapped {
                for person in Model.people {
                    try? await app.messenger.receiveServerEvent(
                        .messageSent(
                            RatchetedCypherMessage(bytes: bytes), id: "0", byUser: person,
                            deviceId: app.messenger.deviceId))
                }
            }
            for other in Model.people where other != device.person {
                let texts = Set(try await app.texts(with: other))
                #expect(texts.isDisjoint(with: last), "a removed device reads, seed \(seed)")
            }
        }
        for device in model.devices {
            device.crash()
            #expect(Set(device.shown).count == device.shown.count, "a text was shown twice, seed \(seed)")
        }
        // The server has seen no text.
        for bytes in model.server.receivedBytes {
            #expect(Data(bytes).range(of: Data(", number ".utf8)) == nil)
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
