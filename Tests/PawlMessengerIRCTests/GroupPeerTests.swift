import Foundation
import PawlMessenger
import PawlMessengerIRC
import PeerKit
import TestKit
import TestThreads
import Testing

/// Groups of messengers on a real server, and what a messenger makes of rooms.
@Suite(.serialized) struct GroupPeerTests {
    private func exchangeKeys(_ one: IRCApp, _ other: IRCApp) async throws {
        try await one.chat(other.messenger.username).sendText("hello in the clear")
        try await one.hasKeys(of: other.messenger.username)
        try await other.hasKeys(of: one.messenger.username)
    }

    private func expect(_ text: String, in group: GroupChatId, at app: IRCApp) async throws {
        try await eventuallyAsync("\(app.messenger.username) has \(text)") {
            try await texts(in: group, at: app).contains(text)
        }
    }

    private func texts(in group: GroupChatId, at app: IRCApp) async throws -> [String] {
        guard let chat = try await app.messenger.groupChat(group) else { return [] }
        return try await chat.messages(limit: 200).map(\.text)
    }

    /// No server keeps the versions of a group: members hand them over to each other.
    @Test func groupsWorkInBand() async throws {
        let lab = try await IRCLab(.ngircd)
        defer { lab.stop() }
        let database = MessengerDatabase.inMemory()
        let (alice, bob) = (try await lab.app("alice"), try await lab.app("bob"))
        var carol = try await lab.app("carol", database)
        for (one, other) in [(alice, bob), (alice, carol), (bob, carol)] { try await exchangeKeys(one, other) }

        // Its version takes several lines.
        let group = try await alice.messenger.createGroupChat(
            with: ["bob", "carol"], name: "canary team", metadata: [UInt8](repeating: 7, count: 1024))
        try await group.sendText("canary hello")
        for app in [bob, carol] { try await expect("canary hello", in: group.id, at: app) }
        let atBob = try #require(try await bob.messenger.groupChat(group.id))
        try await atBob.sendText("canary of bob")
        for app in [alice, carol] { try await expect("canary of bob", in: group.id, at: app) }
        let info = try await atBob.info()
        #expect(info.name == "canary team" && info.metadata.count == 1024 && info.members["alice"] == .owner)

        // A member was away while the group has changed.
        carol.close()
        try await carol.transport.disconnect()
        try await group.rename("canary others")
        try await group.sendText("canary while carol is away")
        carol = try await lab.app("carol", database)
        try await expect("canary while carol is away", in: group.id, at: carol)
        #expect(try await carol.messenger.groupChat(group.id)?.info().name == "canary others")

        // Somebody behind a sidecar reads the texts as private ones.
        let sidecar = try await lab.sidecar()
        let dave = try await IRCPerson("dave", at: sidecar)
        try await alice.chat("dave").sendText("hello in the clear")
        try await alice.hasKeys(of: "dave")
        try await group.addMembers(["dave"])
        try await group.sendText("canary for dave")
        let shown = try await dave.expect("[e2e] canary for dave")
        #expect(shown.from == "alice" && shown.to == "dave")

        // A member that was removed gets nothing more.
        try await group.removeMembers(["carol"])
        try await group.sendText("canary without carol")
        try await expect("canary without carol", in: group.id, at: bob)
        try await eventuallyAsync("carol is told") {
            try await carol.messenger.groupChat(group.id)?.info().isMember == false
        }
        try await alice.chat("carol").sendText("canary for carol")
        try await carol.expect("canary for carol", from: "alice")
        #expect(try await !texts(in: group.id, at: carol).contains("canary without carol"))

        // Files need a server that keeps them.
        let file = FileManager.default.temporaryDirectory.appending(path: "pawl-\(UUID().uuidString)")
        try Data("canary".utf8).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        await #expect(throws: CypherMessengerError.unsupportedCall("publishBlob")) { try await group.sendFile(file) }
        #expect(!lab.tap.shows("canary"))
        for app in [alice, bob, carol] {
            #expect(app.handler.events.unreadable.isEmpty)
            app.close()
        }
    }

    /// A messenger joins no rooms. If its connection is in one nevertheless, people behind sidecars count it as a member that
    /// can read, it ignores what they write there, and its private chats go on.
    @Test func aMessengerInARoomIgnoresIt() async throws {
        let lab = try await IRCLab(.ngircd)
        defer { lab.stop() }
        let bob = try await IRCPerson("bob", at: lab.sidecar())
        let carol = try await IRCPerson("carol", at: lab.sidecar())
        let alice = try await lab.app("alice")
        try await bob.send("PRIVMSG carol :hello in the clear")
        try await carol.expect("hello in the clear")
        for name: Username in ["bob", "carol"] {
            try await alice.chat(name).sendText("hello in the clear")
            try await alice.hasKeys(of: name)
        }
        // The newest connection is that of the messenger.
        lab.tap.inject("JOIN #den", .fromClient)
        try await eventuallyAsync("the messenger is in the room") { lab.tap.shows("366 alice #den") }
        try await bob.join("#den")
        try await carol.join("#den")
        try await eventuallyAsync("the room is protected") {
            try await bob.send("PRIVMSG #den :a text")
            return try await carol.hears("[e2e] a text")
        }
        try await bob.send("PRIVMSG #den :canary of the room")
        try await carol.expect("[e2e] canary of the room")
        try await bob.send("PRIVMSG alice :canary for alice")
        try await alice.expect("canary for alice", from: "bob")
        #expect(try await alice.messenger.listPrivateChats().count == 2)
        for name: Username in ["bob", "carol"] {
            #expect(try await !alice.texts(with: name).contains { $0.contains("of the room") || $0.contains("a text") })
        }
        #expect(alice.handler.events.unreadable.isEmpty && alice.handler.events.withheld.isEmpty)
        #expect(!lab.tap.shows("canary"))
        alice.close()
    }
}
