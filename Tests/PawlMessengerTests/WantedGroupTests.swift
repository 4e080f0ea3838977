import Foundation
import Messenger
import Synchronization
import TestKit
import Testing

@testable import PawlMessenger

/// Versions of groups whose signer has keys that the server does not give.
@Suite struct WantedGroupTests {
    private func expectVersion(_ name: String, of group: GroupChat, for app: App) async throws -> GroupChat {
        try await eventuallyAsync("\(app.messenger.username) has the version \(name)") {
            try await app.messenger.groupChat(group.id)?.info().name == name
        }
        return try #require(try await app.messenger.groupChat(group.id))
    }

    /// Else a stranger's group would be read for ever, and keep other groups from being read.
    @Test func keysThatAreReadInVainEndTheRead() async throws {
        let server = SpoofServer(seed: 8)
        let alice = try await App.register("alice", at: server)
        let bob = try await App.registerWithBlobs("bob", at: server)
        let carol = try await App.registerWithBlobs("carol", at: server)
        bob.blobs?.behaviour.withLock { $0.hidden = "carol" }
        carol.blobs?.behaviour.withLock { $0.hidden = "bob" }
        // Bob learns from alice of a version that carol has signed.
        let group = try await alice.messenger.createGroupChat(with: ["carol"], name: "one")
        try await group.setModerator("carol", true)
        try await eventuallyAsync("carol is a moderator") {
            try await carol.messenger.groupChat(group.id)?.info().members["carol"] == .moderator
        }
        let atCarol = try await expectVersion("one", of: group, for: carol)
        try await atCarol.addMembers(["bob"])
        try await eventuallyAsync("alice knows that bob is a member") {
            try await group.info().members["bob"] != nil
        }
        try await group.sendText("hello")
        try await eventuallyAsync("bob wants the version") {
            try await bob.messenger.engine.read(\.wantedGroups).count == 1
        }
        let reference = try #require(try await bob.messenger.engine.read(\.wantedGroups).first)
        var failures = 0
        for _ in 0..<CypherMessenger.keyAttempts {
            do {
                try await bob.messenger.read(reference, &failures)
                Issue.record("it was given up too early")
            } catch CypherTransportError.offline {
                // Once more.
            }
        }
        #expect(failures == CypherMessenger.keyAttempts)
        try await bob.messenger.read(reference, &failures)
        #expect(try await bob.messenger.engine.read(\.wantedGroups).isEmpty)
        try await eventuallyAsync("bob is told") { bob.handler.events.unavailableGroups.count == 1 }
        for app in [alice, bob, carol] { app.close() }
    }
}
