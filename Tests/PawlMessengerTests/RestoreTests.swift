import PawlMessenger
import TestKit
import Testing

/// An app whose database is an earlier copy.
@Suite struct RestoreTests {
    @Test func aRestoredMessengerGoesOn() async throws {
        let server = SpoofServer(seed: 1)
        let alice = try await App.register("alice", at: server)
        let bob = try await App.register("bob", at: server)
        try await alice.chat("bob").sendText("one")
        try await eventuallyAsync("bob has it") { try await bob.texts(with: "alice") == ["one"] }
        let copy = bob.database.copied()
        try await bob.chat("alice").sendText("two")
        try await eventuallyAsync("alice has it") { try await alice.texts(with: "bob") == ["one", "two"] }
        bob.close()
        let restored = try await App.register("bob", at: server, copy.restored())
        #expect(restored.messenger.deviceId == bob.messenger.deviceId)
        try await alice.chat("bob").sendText("three")
        try await eventuallyAsync("bob has it") { try await restored.texts(with: "alice") == ["one", "three"] }
        try await restored.chat("alice").sendText("four")
        try await eventuallyAsync("alice has it") {
            try await alice.texts(with: "bob") == ["one", "two", "three", "four"]
        }
        for app in [alice, restored] { app.close() }
    }
}
