import CapableApp
import DeviceDirectory
import Devices
import Envelope
import JSONGateway
import Protection
import StorePort
import Testing

/// A device id is in the clear in each envelope. It stays its owner's, whoever publishes it.
@Suite struct JSONDeviceOwnerTests {
    @Test func aHostedIDIsRefused() throws {
        let store = InMemoryStore()
        let world = try JSONWorld(.hosted, store: store)
        for name in ["alice", "bob", "eve"] { world.send("GET", "/me", as: "t-\(name)") }
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"one"}"#)
        let read = try #require(world.backend.messages["pair"]?.first)
        let envelope = JSONWorld.Answer(status: 0, text: read.body).bytes("text")
        let id = try Envelope(envelope, in: .json).sender
        let device = AppDevice("eve", id: id.value)
        let answer = world.call("PUT", "device", as: "t-eve", device.publication(over: world.challenge("t-eve")))
        #expect(answer.status == 409 && answer["error"] == "pawl_refused")
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"two"}"#)
        // Elsewhere the device is published: its rows are those that a version without the check would have stored.
        let elsewhere = try JSONWorld(.hosted)
        _ = elsewhere.device("eve", id: id.value)
        let kinds: [RecordKind] = [.directoryAccount, .directoryDevice]
        let rows = try kinds.flatMap { try elsewhere.store.records($0) }
        #expect(rows.count == 2)
        for number in 0..<2 {
            let reader = number == 0 ? world : try JSONWorld(.hosted, backend: world.backend, store: store)
            for name in ["alice", "bob"] {
                let list = try #require(reader.send("GET", "/c/pair", as: "t-\(name)"))
                #expect(list["messages[0].data.text"] == "one" && list["messages[1].data.text"] == "two")
            }
            // Before the second start the collision stands in the store.
            _ = try store.commit([rows.map { .putRecord($0) }])
        }
    }

    /// Operators block an account that has published what was another account's: it can be published again.
    @Test func aBlockedAccountOwnsNothing() throws {
        let world = try JSONWorld(.hosted)
        _ = world.device("eve", id: 77)
        #expect(world.environment.directory.publishes(DeviceID(77), by: .services("eve")))
        #expect(world.environment.directory.publishes(DeviceID(77), by: nil))
        #expect(!world.environment.directory.publishes(DeviceID(77), by: .services("alice")))
        let block = { (isBlocked: Bool) in
            _ = world.perform(
                .directory(
                    DirectoryJob(
                        connection: ConnectionID(1), id: 1, account: .services("eve"),
                        request: .block(.services("eve"), isBlocked))))
        }
        block(true)
        #expect(world.environment.directory.publishes(DeviceID(77), by: .services("eve")), "eve's history stays")
        _ = world.device("alice", id: 77)
        block(false)
        #expect(world.environment.directory.publishes(DeviceID(77), by: .services("alice")))
        #expect(!world.environment.directory.publishes(DeviceID(77), by: .services("eve")))
    }
}
