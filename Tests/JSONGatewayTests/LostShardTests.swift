import CapableApp
import DeviceDirectory
import Envelope
import JSONGateway
import Protection
import RequestQueue
import StorePort
import Testing
import Vault

/// Another gateway takes over a shard: jobs of that shard are refused, each with its reply, and others are done.
@Suite struct LostShardTests {
    private let all = AccountID.room("all")

    private func text(_ id: String) -> String { #"{"id":"\#(id)","text":"hello"}"# }

    /// The first write finds out in its commit; the second is refused without one.
    @Test func aWriteOfTheLostShardIsRefusedAndAnotherIsQueued() throws {
        let store = InMemoryStore(.shared)
        let world = try JSONWorld(.hosted, store: store)
        for token in ["t-alice", "t-bob"] { world.send("GET", "/me", as: token) }
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1"))?.status == 201)
        store.take(store.sharding.shard(from: .services("alice"), to: all))
        for id in ["2", "3"] {
            let answer = try #require(world.send("POST", "/c/all", as: "t-alice", text(id)))
            #expect(answer.status == 503, "\(answer)")
        }
        #expect(world.waiting.isEmpty)
        #expect(try store.queueContents().requests.isEmpty)
        #expect(world.send("POST", "/c/pair", as: "t-alice", text("4"))?.status == 201)
        #expect(world.send("GET", "/c/pair", as: "t-bob")?["messages[0].data.text"] == "hello")
    }

    /// The rows of a person's device and mailbox are in the shard of the account.
    @Test func jobsOfALostAccountAreRefused() throws {
        let store = InMemoryStore(.shared)
        let world = try JSONWorld(.hosted, store: store)
        let (alice, bob) = (world.device("alice", id: 1), world.device("bob", id: 2))
        func call(_ method: String, _ path: String, as name: String, _ json: String = "") -> Int? {
            world.send(method, "/_pawl/v1/" + path, as: "t-\(name)", json)?.status
        }
        func post(_ id: String, to device: AppDevice, as name: String) -> Int? {
            let recipient = #"{"account":"\#(device.account)","device":"\#(device.name)","message":"AAAA"}"#
            return call("POST", "messages", as: name, #"{"id":"\#(id)","recipients":[\#(recipient)]}"#)
        }
        let acknowledgement = #"{"through":1}"#
        #expect(post("1", to: alice, as: "bob") == 200)
        store.take(store.sharding.shard(of: .services("alice")))
        // The store refuses the first commit, and the rest is refused without one.
        for _ in 0..<2 { #expect(call("PUT", "messages/acknowledged", as: "alice", acknowledgement) == 503) }
        #expect(call("GET", "messages", as: "alice") == 503)
        #expect(world.call("PUT", "keys", as: "t-alice", alice.replenishment(1)).status != 200)
        #expect(post("2", to: bob, as: "alice") == 200, "its rows are in bob's shard")
        #expect(call("PUT", "messages/acknowledged", as: "bob", acknowledgement) == 200)
    }
}
