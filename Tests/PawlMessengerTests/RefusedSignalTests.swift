import Foundation
import Messenger
import Synchronization
import TestKit
import Testing

@testable import PawlMessenger

/// Signals to people without a session: none waits, and the keys are read for the next one.
@Suite struct RefusedSignalTests {
    private let server = SpoofServer()
    private let signal = SignalJob(to: "bob", kind: "test", text: "hello", lifetime: 30)

    @Test func theKeysAreReadForALaterSignal() async throws {
        let (alice, bob) = (try await App.register("alice", at: server), try await App.register("bob", at: server))
        let received = Mutex<[ReceivedSignal]>([])
        bob.messenger.handleSignals("test") { signal in received.withLock { $0.append(signal) } }
        await #expect(throws: CypherMessengerError.keysMissing) { try await alice.messenger.send(signal) }
        #expect(server.receivedBytes.isEmpty)
        try await eventuallyAsync("a later one is taken") { (try? await alice.messenger.send(signal)) != nil }
        try await eventuallyAsync("it has come") { !received.withLock { $0.isEmpty } }
        let signals = received.withLock { $0 }
        #expect(signals.map(\.user) == ["alice"] && signals.map(\.text) == ["hello"])
        // No text was sent, and none is shown.
        for (app, other) in [(alice, "bob"), (bob, "alice")] as [(App, Username)] {
            #expect(try await app.texts(with: other).isEmpty)
            app.close()
        }
    }

    /// A person without keys is asked for again with each signal, and none of them goes out later.
    @Test func nothingIsKeptForAPersonWithoutKeys() async throws {
        let alice = try await App.register("alice", at: server)
        for _ in 0..<3 {
            await #expect(throws: CypherMessengerError.keysMissing) { try await alice.messenger.send(signal) }
        }
        let bob = try await App.register("bob", at: server)
        let received = Mutex(0)
        bob.messenger.handleSignals("test") { _ in received.withLock { $0 += 1 } }
        try await eventuallyAsync("a later one is taken") { (try? await alice.messenger.send(signal)) != nil }
        try await eventuallyAsync("it has come") { received.withLock { $0 } > 0 }
        let count = received.withLock { $0 }
        #expect(count == 1)
        for app in [alice, bob] { app.close() }
    }
}
