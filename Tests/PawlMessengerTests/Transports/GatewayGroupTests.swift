import Foundation
import PawlMessenger
import PeerKit
import TestKit
import TestThreads
import Testing

/// Groups and files over a real gateway and a real backend, with histories on disk.
@Suite(.serialized) struct GatewayGroupTests {
    /// Devices whose messengers are closed and opened again. Each has a directory and a login of its own.
    private final class Devices {
        let lab: GatewayLab
        let scratch: ScratchDirectory
        private(set) var apps: [String: App] = [:]
        private var people: [String: Username] = [:]

        init(_ lab: GatewayLab) throws { (self.lab, scratch) = (lab, try ScratchDirectory()) }

        @discardableResult
        func open(_ device: String, of person: Username) async throws -> App {
            let database = MessengerDatabase.directory(scratch.file(device)).with(.least)
            let app = try await App.register(person, at: lab, database, adopts: true)
            (apps[device], people[device]) = (app, person)
            return app
        }

        func reopenAll() async throws {
            for (device, person) in people.sorted(by: { $0.key < $1.key }) {
                apps[device]?.close()
                try await open(device, of: person)
            }
        }

        func chat(_ device: String, _ id: GroupChatId) async throws -> GroupChat? {
            try await apps[device]?.messenger.groupChat(id)
        }

        /// Waits until a device has texts in a group, in any order, and nothing else.
        func expect(_ texts: [String], in group: GroupChatId, at devices: String...) async throws {
            for device in devices {
                try await eventuallyAsync("\(device) has \(texts.count) texts") {
                    try await self.chat(device, group)?.messages(limit: 200).count ?? 0 >= texts.count
                }
                let found = try await chat(device, group)?.messages(limit: 200) ?? []
                #expect(found.map(\.text).sorted() == texts.sorted(), "\(device)")
                #expect(!found.contains { !$0.isEncrypted })
            }
        }
    }

    @Test func aGroupWithFilesOutlivesGatewayAndProcesses() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let devices = try Devices(lab)
        let alice = try await devices.open("alice", of: "alice")
        try await devices.open("bob", of: "bob")
        try await devices.open("carol", of: "carol")
        let group = try await alice.messenger.createGroupChat(with: ["bob", "carol"], name: "surprise party")
        let id = group.id
        try await group.sendText("welcome to the party")
        try await devices.expect(["welcome to the party"], in: id, at: "alice", "bob", "carol")
        try await alice.chat("bob").sendText(String(repeating: "private ", count: 7000))
        try await eventuallyAsync("bob has the long text") {
            try await devices.apps["bob"]?.texts(with: "alice").count == 1
        }
        // A tablet that is added later has the history, and takes part.
        let tabletApp = try await devices.open("tablet", of: "alice")
        try await eventuallyAsync("the tablet knows the group") { try await devices.chat("tablet", id) != nil }
        try await eventuallyAsync("the tablet has the history") {
            let (isAdopted, waits) = (await tabletApp.messenger.isAdopted(), await tabletApp.messenger.awaitsHistory())
            return isAdopted && !waits
        }
        #expect(try await devices.chat("tablet", id)?.messages().map(\.text) == ["welcome to the party"])
        #expect(try await tabletApp.texts(with: "bob") == alice.texts(with: "bob"))
        // Others learn of the tablet with the account's next message.
        try await devices.chat("tablet", id)?.sendText("hello from the tablet")
        try await devices.expect(
            ["welcome to the party", "hello from the tablet"], in: id, at: "alice", "bob", "carol")
        try await devices.chat("bob", id)?.sendText("who brings the cake?")
        try await eventuallyAsync("the tablet has it") {
            try await devices.chat("tablet", id)?.messages().contains { $0.text == "who brings the cake?" } == true
        }
        // A file of three parts, from the tablet.
        let source = URL(fileURLWithPath: devices.scratch.file("cake.png"))
        var random = SeededGenerator(seed: 3)
        let noise = (0..<300_000).map { _ in UInt8.random(in: 0...255, using: &random) }
        let bytes = Data("a canary in the cake".utf8) + noise
        try bytes.write(to: source)
        let tablet = try #require(try await devices.chat("tablet", id))
        let sent = try await tablet.sendFile(source, type: "image/png")
        try await devices.expect(
            ["welcome to the party", "hello from the tablet", "who brings the cake?", ""], in: id, at: "alice", "bob",
            "carol")
        // The gateway crashes, and all messengers are opened again.
        lab.gateway.crash()
        try await devices.chat("bob", id)?.sendText("written while all is down")
        try await blocking { try lab.gateway.start() }
        try await devices.reopenAll()
        try await devices.expect(
            [
                "welcome to the party", "hello from the tablet", "who brings the cake?", "",
                "written while all is down",
            ], in: id, at: "alice", "bob", "carol")
        for device in ["alice", "bob", "carol"] {
            let app = try #require(devices.apps[device])
            let message = try #require(
                try await devices.chat(device, id)?.messages().first { $0.attachment == sent.attachment })
            let copy = URL(fileURLWithPath: devices.scratch.file("\(device).png"))
            try await app.messenger.readFile(of: message, to: copy)
            #expect(try Data(contentsOf: copy) == bytes)
        }
        // Its sender deletes it, and with it its blobs at the gateway.
        let all = try #require(try await devices.chat("tablet", id)?.messages())
        let own = try #require(all.first { $0.attachment == sent.attachment })
        let bob = try #require(devices.apps["bob"])
        let kept = try #require(
            try await devices.chat("bob", id)?.messages().first { $0.attachment == sent.attachment })
        try await devices.chat("tablet", id)?.delete(own)
        let gone = URL(fileURLWithPath: devices.scratch.file("gone.png"))
        try await eventuallyAsync("the blobs are removed") {
            (try? await bob.messenger.readFile(of: kept, to: gone)) == nil
        }
        // Roles, removal, and what a removed member reads.
        let owner = try #require(try await devices.chat("alice", id))
        try await owner.setModerator("bob", true)
        try await eventuallyAsync("bob is a moderator") {
            try await devices.chat("bob", id)?.info().members["bob"] == .moderator
        }
        try await devices.chat("bob", id)?.removeMembers(["carol"])
        try await eventuallyAsync("all know that carol is out") {
            for device in ["alice", "tablet", "bob", "carol"] {
                guard try await devices.chat(device, id)?.info().members["carol"] == nil else { return false }
            }
            return true
        }
        try await owner.sendText("carol must not read this")
        try await eventuallyAsync("bob has it") {
            try await devices.chat("bob", id)?.messages().last?.text == "carol must not read this"
        }
        #expect(try await devices.chat("carol", id)?.messages().contains { $0.text.contains("must not") } == false)
        for word in ["surprise party", "who brings the cake?", "carol must not read this", "a canary in the cake"] {
            #expect(try lab.backend.knows(word) == false)
            let search = PlaintextSearch(word)
            #expect(search.files(under: lab.gateway.dataDirectory).isEmpty)
            #expect(!search.finds(in: Data(lab.gateway.output.utf8)))
        }
        for app in devices.apps.values { app.close() }
    }

    /// More changes of a group than the gateway had once kept blobs of an account.
    @Test func aGroupMayChangeOften() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let devices = try Devices(lab)
        let alice = try await devices.open("alice", of: "alice")
        try await devices.open("bob", of: "bob")
        let group = try await alice.messenger.createGroupChat(with: ["bob"], name: "0")
        for number in 1...70 { try await group.rename("\(number)") }
        try await eventuallyAsync("bob has the last name") {
            try await devices.chat("bob", group.id)?.info().name == "70"
        }
        for app in devices.apps.values { app.close() }
    }
}
