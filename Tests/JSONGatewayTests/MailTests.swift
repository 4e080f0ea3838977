import CapableApp
import DeviceDirectory
import Envelope
import Foundation
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import StorePort
import Testing
import Vault

/// Letters, receipts, multi-recipient messages and blobs of capable clients.
@Suite struct MailTests {
    private let world: JSONWorld
    private let alice: AppDevice
    private let bob: AppDevice

    init() throws {
        world = try JSONWorld(.hosted)
        alice = world.device("alice", id: 1)
        bob = world.device("bob", id: 2)
    }

    /// A store that does not read all blobs at once.
    private struct PagedStore: ForwardingStore {
        let store: any Store

        func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow] {
            if kind == .blob { throw .unavailable("too large") }
            return try store.records(kind)
        }
    }

    @Test func blobsAreReadInPages() throws {
        let store = InMemoryStore()
        var (mailboxes, changes) = (try Mailboxes(store: store, above: 0), [StoreChange]())
        let names = (0..<200).map { DeviceID(UInt64($0) &* 0x9E37_79B9_7F4A_7C15).name + DeviceID(0).name }
        for name in names {
            try mailboxes.withBlobs { blobs throws(MailRefusal) in
                try blobs.publish([1], as: name, by: .services("alice"), &changes)
            }
        }
        _ = try store.commit([changes])
        let again = try Mailboxes(store: PagedStore(store: store), above: 0)
        #expect(try names.allSatisfy { try again.blobs.read($0, store) == [1] })
    }

    /// Devices may have fetched entries that a restored state does not know, and ask for those behind them only.
    @Test func numbersLeapWithARestoredState() throws {
        let leap: UInt64 = 1 << 32
        let entry = MailboxEntry(
            kind: .message, at: 0, from: .services("alice"), device: DeviceID(1), id: "m", content: [1])
        for (floor, wanted) in [
            (0, ["0000000000000001", "0000000000000002"]), (leap, ["0000000100000001", "0000000100000002"]),
        ] {
            var mailboxes = try Mailboxes(store: InMemoryStore(), above: floor)
            var changes: [StoreChange] = []
            for _ in 0..<2 { try mailboxes.post([(DeviceID(2), entry)], body: [], &changes) }
            let names = changes.compactMap { if case .rare(.putRecord(let row)) = $0 { row.name } else { nil } }
            #expect(names == wanted.map { DeviceID(2).name + " " + $0 })
        }
    }

    private func call(_ method: String, _ path: String, as name: String, _ json: String = "") -> JSONWorld.Answer {
        world.send(method, "/_pawl/v1/" + path, as: "t-\(name)", json) ?? .init(status: 0, text: "")
    }

    private func post(
        _ id: String, _ text: String = "sealed", to device: AppDevice, as name: String = "alice", body: String? = nil
    ) -> JSONWorld.Answer {
        let message = JSONWorld.base64(Array(text.utf8))
        let common = body.map { #","body":"\#(JSONWorld.base64(Array($0.utf8)))""# } ?? ""
        return call(
            "POST", "messages", as: name,
            #"{"id":"\#(id)","recipients":[{"account":"\#(device.account)","device":"\#(device.name)","message":"\#(message)"}]\#(common)}"#
        )
    }

    private func texts(_ answer: JSONWorld.Answer) -> [String] {
        (0..<60).compactMap { answer["messages[\($0)].message"] == nil ? nil : answer.bytes("messages[\($0)].message") }
            .map { String(decoding: $0, as: UTF8.self) }
    }

    @Test func mailboxEntriesWaitInOrderUntilTheDeviceHasThem() throws {
        for number in 1...60 { #expect(post("m\(number)", "text \(number)", to: bob).status == 200) }
        #expect(post("m60", "text 60", to: bob).status == 200, "a repeated call does nothing")
        let first = call("GET", "messages", as: "bob")
        #expect(texts(first) == (1...50).map { "text \($0)" })
        #expect(first["more"] == "true")
        #expect(first["messages[0].from"] == "alice" && first["messages[0].device"] == alice.name)
        #expect(first["messages[0].id"] == "m1" && first["messages[0].kind"] == "message")
        #expect(texts(call("GET", "messages?after=50", as: "bob")) == (51...60).map { "text \($0)" })
        #expect(call("PUT", "messages/acknowledged", as: "bob", #"{"through":58}"#).status == 200)
        #expect(texts(call("GET", "messages", as: "bob")) == ["text 59", "text 60"])
        #expect(call("GET", "messages", as: "alice")["more"] == "false")
        // Numbers go on, also when nothing has been left.
        _ = call("PUT", "messages/acknowledged", as: "bob", #"{"through":60}"#)
        let again = try JSONWorld(.hosted, store: world.store)
        _ = again.call("PUT", "device", as: "t-bob", bob.publication(over: again.challenge("t-bob")))
        _ = again.call("PUT", "device", as: "t-alice", alice.publication(over: again.challenge("t-alice")))
        #expect(
            again.send(
                "POST", "/_pawl/v1/messages", as: "t-alice",
                #"{"id":"n","recipients":[{"account":"bob","device":"\#(bob.name)","message":"AAAA"}]}"#)?.status == 200
        )
        #expect(again.call("GET", "messages", as: "t-bob")["messages[0].sequence"] == "61")
    }

    @Test func whatIsAcknowledgedIsCommitted() throws {
        #expect(post("m1", "kept", to: bob, body: "common").status == 200)
        let blob = call("POST", "blobs", as: "alice", #"{"blob":"AAAA"}"#)["id"] ?? ""
        let again = try JSONWorld(.hosted, store: world.store)
        _ = again.call("PUT", "device", as: "t-bob", bob.publication(over: again.challenge("t-bob")))
        let read = again.call("GET", "messages", as: "t-bob")
        #expect(texts(read) == ["kept"])
        #expect(read.bytes("messages[0].body") == Array("common".utf8))
        #expect(again.call("GET", "blobs/\(blob)", as: "t-bob").bytes("blob") == [0, 0, 0])
    }

    @Test func oneBodyForManyDevices() throws {
        let carol = world.device("carol", id: 3)
        let entries = [bob, carol].map {
            #"{"account":"\#($0.account)","device":"\#($0.name)","message":"\#(JSONWorld.base64([UInt8($0.id)]))"}"#
        }.joined(separator: ",")
        let body = JSONWorld.base64([9, 9, 9])
        #expect(
            call("POST", "messages", as: "alice", #"{"id":"x","recipients":[\#(entries)],"body":"\#(body)"}"#)[
                "accepted"]
                == "2")
        #expect(try world.store.records(.sharedCiphertext).count == 1, "the body lies in the store once")
        for (device, key) in [(bob, UInt8(2)), (carol, 3)] {
            let read = call("GET", "messages", as: device.account)
            #expect(read.bytes("messages[0].message") == [key] && read.bytes("messages[0].body") == [9, 9, 9])
            _ = call("PUT", "messages/acknowledged", as: device.account, #"{"through":1}"#)
        }
        #expect(try world.store.records(.sharedCiphertext).isEmpty && world.store.records(.mailboxEntry).isEmpty)
    }

    @Test func receiptsReachAllDevices() throws {
        #expect(call("POST", "receipts", as: "bob", #"{"to":"alice","id":"m1","kind":"read"}"#)["accepted"] == "1")
        #expect(call("POST", "receipts", as: "bob", #"{"to":"alice","id":"m1","kind":"read"}"#).status == 200)
        #expect(call("POST", "receipts", as: "bob", #"{"to":"alice","id":"m1","kind":"received"}"#).status == 200)
        #expect(call("POST", "receipts", as: "bob", #"{"to":"alice","id":"m1","kind":"message"}"#).status == 400)
        #expect(call("POST", "receipts", as: "bob", #"{"to":"carol","id":"m1","kind":"read"}"#).status == 404)
        let read = call("GET", "messages", as: "alice")
        #expect(read["messages[0].kind"] == "read" && read["messages[1].kind"] == "received")
        #expect(read["messages[0].id"] == "m1" && read["messages[2].kind"] == nil)
    }

    @Test func blobsAreReadByWhoeverHasTheirIDAndRemovedByTheirOwner() throws {
        let made = call("POST", "blobs", as: "alice", #"{"blob":"\#(JSONWorld.base64([1, 2, 3]))"}"#)
        let id = try #require(made["id"])
        #expect(id.count == 32)
        #expect(call("GET", "blobs/\(id)", as: "bob").bytes("blob") == [1, 2, 3])
        #expect(call("DELETE", "blobs/\(id)", as: "bob").status == 404, "somebody else's")
        #expect(call("GET", "blobs/0", as: "bob").status == 404)
        #expect(call("DELETE", "blobs/\(id)", as: "alice").status == 200)
        #expect(call("GET", "blobs/\(id)", as: "bob").status == 404)
        let large = JSONWorld.base64([UInt8](repeating: 7, count: (256 << 10) + 1))
        #expect(call("POST", "blobs", as: "alice", #"{"blob":"\#(large)"}"#).status == 413)
        let largest = JSONWorld.base64([UInt8](repeating: 7, count: 256 << 10))
        var last = 200
        for _ in 0..<80 where last == 200 {
            last = call("POST", "blobs", as: "alice", #"{"blob":"\#(largest)"}"#).status
        }
        #expect(last == 429)
        #expect(try world.store.records(.blob).count == 63, "16 MiB, with the name of the owner")
        #expect(call("POST", "blobs", as: "bob", #"{"blob":"AAAA"}"#).status == 200, "others are not concerned")
    }

    /// A device that its account's others have not adopted is mute: it may ask to be taken in, and nothing else.
    @Test func unadoptedDevicesAreMute() throws {
        world.backend.tokens["t-bob-tablet"] = "bob"
        _ = post("m1", to: bob)
        for (method, path, json) in [
            ("GET", "messages", ""), ("PUT", "messages/acknowledged", #"{"through":9}"#),
            ("POST", "receipts", #"{"to":"alice","id":"m1","kind":"read"}"#), ("POST", "blobs", #"{"blob":"AAAA"}"#),
            ("GET", "blobs/0", ""), ("POST", "accounts/alice/bundles", ""),
        ] {
            #expect(call(method, path, as: "bob-tablet", json)["error"] == "pawl_not_proven", "\(path)")
        }
        let tablet = AppDevice("bob", id: 4)
        #expect(post("m2", to: tablet)["error"] == "pawl_unknown_devices")
        #expect(post("m2", to: tablet)["devices[0]"] == tablet.name)
        #expect(call("POST", "registrations", as: "bob-tablet", #"{"registration":"AAAA"}"#)["accepted"] == "1")
        #expect(call("GET", "messages", as: "bob")["messages[1].kind"] == "registration")
        for _ in 0..<3 { _ = call("POST", "registrations", as: "bob-tablet", #"{"registration":"AAAA"}"#) }
        #expect(call("POST", "registrations", as: "bob-tablet", #"{"registration":"AAAA"}"#)["error"] == "pawl_full")
        #expect(call("POST", "registrations", as: "eve", #"{"registration":"AAAA"}"#).status == 404)
    }

    /// A device in the list has a mailbox before it has been online: one that never comes stops no message to others.
    @Test func listedDevicesHaveMailboxes() throws {
        let tablet = AppDevice("bob", id: 4)
        #expect(post("m1", to: tablet)["error"] == "pawl_unknown_devices")
        #expect(world.call("PUT", "list", as: "t-bob", bob.adopting(tablet)).status == 200)
        let entries = [bob, tablet].map { #"{"account":"bob","device":"\#($0.name)","message":""}"# }
        let json = #"{"id":"m1","recipients":[\#(entries.joined(separator: ","))],"body":"AAAA"}"#
        #expect(call("POST", "messages", as: "alice", json)["accepted"] == "2")
        // Receipts go to devices that have been online.
        #expect(call("POST", "receipts", as: "alice", #"{"to":"bob","id":"m0","kind":"read"}"#)["accepted"] == "1")
        // Nobody else gets the device, or what waits for it.
        let thief = AppDevice("alice", id: 4)
        #expect(
            world.call("PUT", "list", as: "t-alice", alice.adopting(thief))["message"]?
                .contains("belongs to another account") == true)
        let proof = thief.publication(over: world.challenge("t-alice"))
        #expect(world.call("PUT", "device", as: "t-alice", proof)["error"] == "pawl_refused")
        #expect(
            call(
                "POST", "messages", as: "bob",
                #"{"id":"b1","recipients":[{"account":"alice","device":"\#(tablet.name)","message":"AAAA"}]}"#)["error"]
                == "pawl_unknown_devices")
        // It waits over a restart, until the device comes.
        world.now.monotonic += 61_000_000_000
        _ = world.perform(.tick)
        let again = try JSONWorld(.hosted, store: world.store)
        _ = again.perform(.tick)
        again.backend.tokens["t-bob-tablet"] = "bob"
        _ = again.call("PUT", "device", as: "t-bob-tablet", tablet.publication(over: again.challenge("t-bob-tablet")))
        let page = again.call("GET", "messages", as: "t-bob-tablet")
        #expect(page.bytes("messages[0].body") == [0, 0, 0] && page["messages[1].kind"] == nil)
    }

    /// What waits for a device that never comes goes with it, at once: another account may take the id.
    @Test func removedDevicesHaveNoMailboxes() throws {
        let tablet = AppDevice("bob", id: 4)
        _ = world.call("PUT", "list", as: "t-bob", bob.adopting(tablet))
        #expect(post("m1", to: tablet, body: "common").status == 200)
        let removal = bob.removing(tablet)
        world.store.failNextCommit()
        #expect(world.call("PUT", "list", as: "t-bob", removal).status != 200)
        #expect(post("m2", to: tablet).status == 200, "nothing was removed")
        #expect(try world.store.records(.mailboxEntry).count == 2)
        #expect(world.call("PUT", "list", as: "t-bob", removal).status == 200)
        #expect(try world.store.records(.mailboxEntry).isEmpty && world.store.records(.sharedCiphertext).isEmpty)
        #expect(post("m3", to: tablet)["error"] == "pawl_unknown_devices")
        // The answer to what was accepted before was lost.
        #expect(post("m2", to: tablet)["accepted"] == "1")
        _ = world.device("carol", id: 4)
        #expect(call("GET", "messages", as: "carol")["messages[0].sequence"] == nil)
    }

    /// With all devices of an account goes what waits for them.
    @Test func devicesThatAnOperatorRemovesLeaveNothing() throws {
        #expect(post("m1", to: bob).status == 200)
        _ = world.perform(
            .directory(
                DirectoryJob(
                    connection: ConnectionID(0), id: 0, account: .services("bob"),
                    request: .remove(.services("bob"), nil))))
        #expect(try world.store.records(.mailboxEntry).isEmpty && world.store.records(.mailbox).isEmpty)
    }

    @Test func nobodyFillsABoxAlone() throws {
        let carol = world.device("carol", id: 3)
        var count = 0
        while post("m\(count)", to: bob).status == 200, count < 400 {
            count += 1
            world.now.monotonic += 1_000_000_000
        }
        #expect(count == 250)
        #expect(post("c1", to: bob, as: "carol").status == 200)
        #expect(post("m1", to: carol).status == 200)
        // A name of an account that is not the device's is no way in.
        #expect(
            call(
                "POST", "messages", as: "alice",
                #"{"id":"z","recipients":[{"account":"carol","device":"\#(bob.name)","message":"AAAA"}]}"#)["error"]
                == "pawl_unknown_devices")
    }

    @Test func whatNobodyFetchesGoes() throws {
        _ = post("m1", to: bob, body: "x")
        _ = world.perform(.tick)
        #expect(try world.store.records(.mailboxEntry).count == 1)
        world.now.wall += 31 * 86_400_000
        world.now.monotonic += 61_000_000_000
        _ = world.perform(.tick)
        #expect(try world.store.records(.sharedCiphertext).isEmpty)
        _ = post("m2", to: bob)
        let page = call("GET", "messages", as: "bob")
        #expect(page["messages[0].kind"] == "lost" && page["messages[0].count"] == "1")
        #expect(page["messages[0].device"] == alice.name && page["messages[0].message"] == nil)
        #expect(page["messages[1].sequence"] == "2")
        // With the device goes what waits for it.
        _ = world.perform(
            .directory(
                DirectoryJob(
                    connection: ConnectionID(0), id: 0, account: .services("bob"),
                    request: .remove(.services("bob"), nil))))
        world.now.monotonic += 61_000_000_000
        _ = world.perform(.tick)
        #expect(try world.store.records(.mailboxEntry).isEmpty && world.store.records(.mailbox).isEmpty)
    }

    @Test(arguments: [
        #"{"id":"x","recipients":[]}"#, #"{"recipients":[{}]}"#, #"[]"#, #"{"id":"x","id":"y"}"#, #"{"id":"x"}"#, "",
        #"{"id":"x","recipients":[{"account":"bob","device":"zz","message":"AAAA"}]}"#,
        #"{"id":"x","recipients":[{"account":"bob","device":"0000000000000002","message":"A"}]}"#,
        #"{"id":"x","recipients":[{"account":"bob","device":"2","message":"AAAA"}]}"#,
        #"{"id":"x","recipients":[{"account":"bob","device":"+000000000000002","message":"AAAA"}]}"#,
        #"{"id":"x","recipients":[{"account":"bob","device":"00000000000000AB","message":"AAAA"}]}"#,
    ]) func malformedCallsChangeNothing(_ json: String) throws {
        #expect(call("POST", "messages", as: "alice", json).status == 400)
        #expect(try world.store.records(.mailboxEntry).isEmpty)
    }

    /// Neither large letters for one device nor large bodies for several of them close the mail of others.
    @Test func nobodyFillsBytesAlone() throws {
        let large = String(repeating: "x", count: 60 << 10)
        #expect((1...4).map { post("m\($0)", large, to: bob).status } == [200, 200, 200, 200])
        #expect(post("m5", large, to: bob)["error"] == "pawl_full")
        let carol = world.device("carol", id: 3)
        #expect(post("c1", large, to: bob, as: "carol").status == 200)
        // A body lies there once, and counts for its sender wherever it waits.
        let body = String(repeating: "y", count: 256 << 10)
        var sent = 0
        while sent < 40, post("b\(sent)", to: carol, body: body).status == 200 {
            sent += 1
            world.now.monotonic += 1_000_000_000
        }
        #expect(sent == 31, "8 MiB, with what waits for bob")
        #expect(post("c2", to: alice, as: "carol", body: body).status == 200)
        // The same counts after a restart, and no longer when it has been fetched.
        let again = try JSONWorld(.hosted, store: world.store)
        for device in [alice, carol] {
            _ = again.call(
                "PUT", "device", as: "t-\(device.account)",
                device.publication(over: again.challenge("t-\(device.account)")))
        }
        let next =
            #"{"id":"n","recipients":[{"account":"carol","device":"\#(carol.name)","message":"AAAA"}],"body":"\#(JSONWorld.base64(Array(body.utf8)))"}"#
        #expect(again.send("POST", "/_pawl/v1/messages", as: "t-alice", next)?["error"] == "pawl_full")
        _ = again.send("PUT", "/_pawl/v1/messages/acknowledged", as: "t-carol", #"{"through":1}"#)
        #expect(again.send("POST", "/_pawl/v1/messages", as: "t-alice", next)?.status == 200)
    }

    // MARK: Devices that are away

    /// Lets the time pass after which a device that has fetched nothing is away.
    private func passAway() {
        world.now.wall += Mailboxes.awayTime + 1
        world.now.monotonic += 61_000_000_000
        _ = world.perform(.tick)
    }

    private func fill(_ count: Int, _ prefix: String, as name: String = "alice") {
        for number in 1...count {
            #expect(post("\(prefix)\(number)", "\(prefix)\(number)", to: bob, as: name).status == 200)
            world.now.monotonic += 1_000_000_000
        }
    }

    /// What a device is told of lost messages: the number for each sending device, and the texts that it gets.
    private func whatIsLeft(_ device: AppDevice, in world: JSONWorld) -> (lost: [String: Int], texts: [String]) {
        var (lost, texts, after): ([String: Int], [String], String) = ([:], [], "0")
        while true {
            let page = world.call("GET", "messages?after=\(after)", as: "t-\(device.account)")
            for index in 0..<50 {
                guard let kind = page["messages[\(index)].kind"] else { return (lost, texts) }
                after = page["messages[\(index)].sequence"] ?? after
                if kind == "lost" {
                    let sender = page["messages[\(index)].device"] ?? ""
                    lost[sender, default: 0] += Int(page["messages[\(index)].count"] ?? "") ?? 0
                } else if kind == "message" {
                    texts.append(String(decoding: page.bytes("messages[\(index)].message"), as: UTF8.self))
                }
            }
        }
    }

    /// A device that does not come stops its senders for some days only. The oldest goes first, and the device is told.
    @Test func theOldestGoesWhenADeviceStaysAway() throws {
        fill(250, "a")
        #expect(post("early", to: bob)["error"] == "pawl_full", "it may come back soon")
        passAway()
        fill(3, "b")
        // It is away still, although its oldest message is a new one.
        fill(250, "c")
        let expected = (1...249).map { "c\($0 + 1)" }
        let (lost, texts) = whatIsLeft(bob, in: world)
        #expect(lost == [alice.name: 254] && texts == expected)
        // The same after a restart.
        let again = try JSONWorld(.hosted, store: world.store)
        _ = again.call("PUT", "device", as: "t-bob", bob.publication(over: again.challenge("t-bob")))
        let (lostAgain, textsAgain) = whatIsLeft(bob, in: again)
        #expect(lostAgain == lost && textsAgain == texts)
        // It has come, so its senders wait again when its mailbox is full.
        #expect(call("PUT", "messages/acknowledged", as: "bob", #"{"through":9999}"#).status == 200)
        fill(250, "d")
        #expect(post("more", to: bob)["error"] == "pawl_full")
        #expect(whatIsLeft(bob, in: world).lost.isEmpty)
    }

    /// In a mailbox that others have filled, the sender that has most of it makes room.
    @Test func aFullMailboxIsSharedFairly() throws {
        let carol = world.device("carol", id: 3)
        world.backend.people.formUnion((10...13).map { "crowd\($0)" })
        let crowd = (10...13).map { world.device("crowd\($0)", id: $0) }
        fill(50, "c", as: "carol")
        for device in crowd.dropLast() { fill(250, "x", as: device.account) }
        fill(200, "x", as: crowd[3].account)
        passAway()
        fill(30, "y", as: "carol")
        let (lost, texts) = whatIsLeft(bob, in: world)
        #expect(lost[carol.name] == nil)
        #expect(texts.filter { $0.hasPrefix("c") || $0.hasPrefix("y") }.count == 80)
        #expect(crowd.reduce(0) { $0 + (lost[$1.name] ?? 0) } >= 30)
        #expect(lost[crowd[3].name] == nil, "it has a smaller part")
    }

    /// Bodies that wait for a device that never comes do not stop their sender for all others.
    @Test func bodiesOfDevicesThatAreAwayMakeRoom() throws {
        let carol = world.device("carol", id: 3)
        let body = String(repeating: "y", count: 256 << 10)
        var sent = 0
        while sent < 40, post("b\(sent)", to: carol, body: body).status == 200 {
            sent += 1
            world.now.monotonic += 1_000_000_000
        }
        #expect(sent == 31)
        #expect(post("stopped", to: bob, body: body)["error"] == "pawl_full")
        passAway()
        #expect(post("free", to: bob, body: body).status == 200)
        #expect(try world.store.records(.sharedCiphertext).count == 31, "one body has gone")
        #expect(whatIsLeft(bob, in: world).lost.isEmpty)
        #expect(whatIsLeft(carol, in: world).lost == [alice.name: 1])
    }

    /// A receipt takes the place of no message, and receipts go before messages.
    @Test func receiptsMakeRoomFirst() throws {
        func receipt(_ id: String) -> JSONWorld.Answer {
            world.now.monotonic += 1_000_000_000
            return call("POST", "receipts", as: "alice", #"{"to":"bob","id":"\#(id)","kind":"read"}"#)
        }
        fill(249, "a")
        #expect(receipt("r1").status == 200)
        passAway()
        #expect(post("b1", to: bob).status == 200)
        #expect(whatIsLeft(bob, in: world).lost.isEmpty)
        #expect(receipt("r2").status == 200)
        let (lost, texts) = whatIsLeft(bob, in: world)
        #expect(lost.isEmpty && texts.count == 250)
        #expect(try world.store.records(.mailboxEntry).count == 250)
    }

    /// A commit that fails drops nothing.
    @Test func nothingIsDroppedByACommitThatFails() throws {
        fill(250, "a")
        passAway()
        world.store.failNextCommit()
        #expect(post("b1", "b1", to: bob).status == 503)
        #expect(whatIsLeft(bob, in: world).texts == (1...250).map { "a\($0)" })
        #expect(post("b1", "b1", to: bob).status == 200)
        let (lost, texts) = whatIsLeft(bob, in: world)
        // One makes room for the entry that stands for both.
        #expect(lost == [alice.name: 2] && texts == (3...250).map { "a\($0)" } + ["b1"])
    }

    /// Receipts are letters as well.
    @Test func receiptsCountWithTheOthers() throws {
        for number in 1...250 {
            world.now.monotonic += 1_000_000_000
            #expect(
                call("POST", "receipts", as: "alice", #"{"to":"bob","id":"\#(number)","kind":"read"}"#).status == 200)
        }
        #expect(post("m1", to: bob)["error"] == "pawl_full")
    }

    /// An id counts once, over a restart and a commit that fails as well.
    @Test func anIDCountsOnce() throws {
        #expect(post("m1", to: bob).status == 200)
        world.store.failNextCommit()
        #expect(post("m2", to: bob).status == 503)
        #expect(post("m1", to: bob).status == 200)
        #expect(post("m2", to: bob).status == 200, "what was not stored is said again")
        let again = try JSONWorld(.hosted, store: world.store)
        _ = again.call("PUT", "device", as: "t-alice", alice.publication(over: again.challenge("t-alice")))
        for id in ["m1", "m2", "m3"] {
            let json = #"{"id":"\#(id)","recipients":[{"account":"bob","device":"\#(bob.name)","message":"AAAA"}]}"#
            #expect(again.send("POST", "/_pawl/v1/messages", as: "t-alice", json)?.status == 200)
        }
        #expect(try again.store.records(.mailboxEntry).count == 3)
        // With the device goes what it has sent.
        _ = again.perform(
            .directory(
                DirectoryJob(
                    connection: ConnectionID(0), id: 0, account: .services("alice"),
                    request: .remove(.services("alice"), nil))))
        again.now.monotonic += 61_000_000_000
        _ = again.perform(.tick)
        #expect(try again.store.records(.sent).isEmpty)
    }

    // MARK: Configurations

    /// Kept byte for byte, replaced by the device that has made the list only, and removed with the account's devices.
    @Test func aConfigurationIsKeptAsItIs() throws {
        let config = (0..<3000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        func body(_ bytes: [UInt8]) -> String { #"{"config":"\#(JSONWorld.base64(bytes))"}"# }
        #expect(call("GET", "accounts/alice/config", as: "bob").status == 404)
        #expect(call("PUT", "config", as: "alice", body(config)).status == 200)
        #expect(call("GET", "accounts/alice/config", as: "bob").bytes("config") == config)
        #expect(call("PUT", "config", as: "alice", body([1, 2])).status == 200)
        #expect(call("GET", "accounts/alice/config", as: "bob").bytes("config") == [1, 2])
        let large = [UInt8](repeating: 1, count: (32 << 10) + 1)
        #expect(call("PUT", "config", as: "alice", body(large)).status == 413)
        // A login that has proven nothing reads its own account's, and no other; and publishes none.
        world.backend.tokens["t-alice-tablet"] = "alice"
        #expect(call("GET", "accounts/alice/config", as: "alice-tablet").bytes("config") == [1, 2])
        #expect(call("GET", "accounts/bob/config", as: "alice-tablet")["error"] == "pawl_not_proven")
        #expect(call("PUT", "config", as: "alice-tablet", body([9]))["error"] == "pawl_not_proven")
        // An adopted device is not the one that has made the list.
        let tablet = AppDevice("alice", id: 7)
        #expect(world.call("PUT", "list", as: "t-alice", alice.adopting(tablet)).status == 200)
        let challenge = world.challenge("t-alice-tablet")
        #expect(world.call("PUT", "device", as: "t-alice-tablet", tablet.publication(over: challenge)).status == 200)
        #expect(call("PUT", "config", as: "alice-tablet", body([9]))["error"] == "pawl_refused")
        #expect(call("GET", "accounts/alice/config", as: "bob").bytes("config") == [1, 2])
        // It is in the store, and is removed with the devices.
        let again = try JSONWorld(.hosted, store: world.store)
        #expect(again.call("GET", "accounts/alice/config", as: "t-alice").bytes("config") == [1, 2])
        _ = world.perform(
            .directory(
                DirectoryJob(
                    connection: ConnectionID(0), id: 0, account: .services("alice"),
                    request: .remove(.services("alice"), nil))))
        #expect(try world.store.records(.publishedConfig).isEmpty)
    }

    /// A list that has nothing to do with the one before leaves no configuration of the one before.
    @Test func aNewListEndsTheConfiguration() throws {
        #expect(call("PUT", "config", as: "alice", #"{"config":"AAAA"}"#).status == 200)
        let other = AppDevice("alice", id: 99)
        let challenge = world.challenge("t-alice")
        #expect(world.call("PUT", "device", as: "t-alice", other.publication(over: challenge)).status == 200)
        #expect(call("GET", "accounts/alice/config", as: "bob").status == 404)
    }

    // MARK: Calls that wait

    private func fetch(_ id: UInt32, of device: AppDevice, waits: Bool = true) -> [JSONReply] {
        world.perform(
            .mail(
                MailJob(
                    connection: ConnectionID(70), id: id, account: .services(device.account),
                    device: DeviceID(device.id), request: .fetch(after: 0, waits: waits))))
    }

    private func post(_ id: String, by sender: AppDevice, to devices: [AppDevice]) -> JSONJob {
        .mail(
            MailJob(
                connection: ConnectionID(71), id: 1000, account: .services(sender.account),
                device: DeviceID(sender.id),
                request: .post(
                    id: id,
                    devices.map { .init(account: .services($0.account), device: DeviceID($0.id), content: [1]) },
                    body: [])))
    }

    /// The numbers of the calls that were woken by jobs.
    private func woken(_ replies: [JSONReply]) -> [UInt32] {
        replies.compactMap { reply in
            guard case .mail(let id, .entries(let entries, more: true)) = reply, entries.isEmpty else { return nil }
            return id
        }
    }

    @Test func aCallWaitsForAMessage() throws {
        #expect(fetch(1, of: bob).count == 1)
        #expect(fetch(2, of: alice).count == 1)
        #expect(fetch(3, of: bob, waits: false).count == 1)
        #expect(woken(world.perform(post("m1", by: alice, to: [bob]))) == [1])
        #expect(woken(world.perform(post("m2", by: alice, to: [bob]))).isEmpty, "a call is woken once")
        // What is there is answered at once.
        guard case .mail(9, .entries(let entries, more: false))? = fetch(9, of: bob).first else {
            Issue.record("no entries")
            return
        }
        #expect(entries.map(\.sequence) == [1, 2])
        // Receipts wake all devices of a person; a registration too.
        let receipt = MailJob(
            connection: ConnectionID(71), id: 1, account: .services("bob"), device: DeviceID(bob.id),
            request: .receipt(.read, id: "m1", .services("alice")))
        #expect(woken(world.perform(.mail(receipt))) == [2])
    }

    @Test func fewCallsOfADeviceWait() throws {
        for id in 1...6 { _ = fetch(UInt32(id), of: bob) }
        #expect(woken(world.perform(post("m1", by: alice, to: [bob]))) == [3, 4, 5, 6])
    }

    @Test func whatIsNotStoredWakesNobody() throws {
        _ = fetch(1, of: bob)
        world.store.failNextCommit()
        #expect(woken(world.perform(post("m1", by: alice, to: [bob]))).isEmpty)
        #expect(woken(world.perform(post("m1", by: alice, to: [bob]))) == [1])
        // A message for a device that does not exist.
        _ = fetch(2, of: bob)
        #expect(woken(world.perform(post("m2", by: alice, to: [AppDevice("bob", id: 77)]))).isEmpty)
    }

    @Test(arguments: ["x", "-1", "1.5", "", "99999999999"]) func aWaitIsANumberOfSeconds(_ text: String) {
        #expect(call("GET", "messages?wait=\(text)", as: "bob").status == 400)
    }

    @Test func theExchangeWaitsAndAnswers() throws {
        var steps = ExchangeSteps(world)
        _ = steps.begin("GET", "/_pawl/v1/messages?after=0&wait=600")
        let actions = steps.take(.requestBody(.init()))
        guard case .submit(.mail(let job))? = actions.first else {
            Issue.record("\(actions)")
            return
        }
        #expect(job.request.waits)
        let begun = steps.take(.vault(.mail(id: job.id, .entries([], more: false))))
        guard case .wake(let time)? = begun.first else {
            Issue.record("\(begun)")
            return
        }
        #expect(time == world.now.monotonic + 25_000_000_000, "at most 25 seconds")
        #expect(steps.stage == .waitingForMail)
        var other = steps
        guard case .respond(let head, let body)? = steps.take(.vault(.mail(id: job.id, .entries([], more: true)))).last,
            case .respond(let late, let empty)? = other.take(.woken).last
        else {
            Issue.record("no answers")
            return
        }
        #expect(head.status == 200 && String(buffer: body) == #"{"messages":[],"more":true}"#)
        #expect(late.status == 200 && String(buffer: empty) == #"{"messages":[],"more":false}"#)
    }
}

extension MailJob.Request {
    fileprivate var waits: Bool { if case .fetch(_, waits: true) = self { true } else { false } }
}
