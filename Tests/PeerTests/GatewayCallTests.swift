import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Calls of apps without keys: a real gateway, a real backend that sees nothing of it, and HTTP clients.
@Suite(.blocking, .serialized) struct GatewayCallTests {
    /// A device of a person, which numbers its messages as an app does.
    private final class Device {
        let person: ChatPerson
        let name: String
        private var next: [String: Int] = [:]
        private var after: Int?

        init(_ person: ChatPerson, _ name: String) { (self.person, self.name) = (person, name) }

        /// - Returns: the status of the answer.
        @discardableResult
        func post(
            _ type: String, _ payload: JSONValue = ["x": 1], to: String, id: String, call: String = "call 1",
            seq: Int? = nil
        ) throws -> (status: Int, json: JSONValue) {
            let place = "\(id) \(call) \(to)"
            let number = seq ?? next[place, default: 0]
            let answer = try person.client.request(
                "POST", "/_pawl/v1/calls",
                [
                    "device": .string(name), "callId": .string(id), "call": .string(call), "to": .string(to),
                    "type": .string(type), "seq": .integer(number), "payload": payload,
                ])
            if answer.status == 200, seq == nil { next[place] = number + 1 }
            return (answer.status, answer.json)
        }

        private func target(_ wait: Int) -> String {
            "/_pawl/v1/calls?device=\(name)&wait=\(wait)" + (after.map { "&after=\($0)" } ?? "")
        }

        /// The messages that have come since the last time.
        func fetch(wait: Int = 0) throws -> [JSONValue] {
            let answer = try person.ask("GET", target(wait))
            let calls = answer["calls"].array
            after = calls.last?["sequence"].integer ?? after
            return calls
        }

        /// A fetch over a connection of its own that waits at the gateway.
        func beginFetch() throws -> PendingRequest { try person.begin("GET", target(20), [:]) }

        /// Fetches until a message of a type has come, and returns all until then.
        func expect(_ type: String) throws -> [JSONValue] {
            var all: [JSONValue] = []
            try eventually("\(person.name)'s \(name) has \(type)") {
                all += try fetch(wait: 1)
                return all.contains { $0["type"].string == type }
            }
            return all
        }
    }

    @Test func twoClientsCallEachOtherThroughTheGateway() throws {
        let lab = try GenericLab(policy: "opportunistic")
        defer { lab.stop() }
        let (phone, laptop) = (Device(lab.bob, "phone"), Device(lab.bob, "laptop"))
        let alice = Device(lab.alice, "phone")
        let id = "#STANDUP_0A1B2C3D-4E5F-4A6B-8C7D-9E0F1A2B3C4D"
        let sdp: JSONValue = [
            "sdp": ["type": "offer", "sdp": "v=0 Ackerwachtelweizen\r\n"], "n": [1, .double(2.5), .null, true],
        ]
        // A device that waits gets the offer at once.
        let waiting = try phone.beginFetch()
        #expect(try alice.post("sdpOffer", sdp, to: "bob", id: id).status == 200)
        #expect(try waiting.answer(to: "GET").status == 200)
        #expect(try alice.post("iceCandidate", ["candidate": "1"], to: "bob", id: id).status == 200)
        for device in [phone, laptop] {
            let calls = try device.expect("iceCandidate")
            #expect(calls.map { $0["type"].string } == ["sdpOffer", "iceCandidate"])
            #expect(calls[0]["callId"].string == id && calls[0]["call"].string == "call 1")
            #expect(calls[0]["from"].string == "alice" && calls[0]["device"].string == "phone")
            #expect(calls[0]["payload"] == sdp && calls[0]["seq"].integer == 0)
            // It never says more than there is.
            #expect(calls.allSatisfy { $0["protection"].string == "none" })
        }
        #expect(try laptop.post("sdpAnswer", ["sdp": "a"], to: "alice", id: id.lowercased()).status == 200)
        #expect(try phone.expect("answered").count == 1)
        let late = try phone.post("sdpAnswer", ["sdp": "b"], to: "alice", id: id)
        #expect(late.status == 409 && late.json["error"].string == "pawl_other_device")
        #expect(try alice.expect("sdpAnswer").count == 1)
        #expect(try alice.post("iceCandidate", to: "bob", id: id).status == 200)
        #expect(try laptop.expect("iceCandidate").count == 1 && phone.fetch().isEmpty)
        // The end, twice.
        for _ in 0..<2 {
            #expect(try alice.post("end", ["endState": "userInitiated"], to: "bob", id: id).status == 200)
        }
        #expect(try laptop.expect("end").count == 1 && laptop.fetch().isEmpty)
        let over = try alice.post("sdpOffer", to: "bob", id: id)
        #expect(over.status == 410 && over.json["error"].string == "pawl_call_ended")
        // The backend has seen nothing of it.
        #expect(try !lab.backend.knows("Ackerwachtelweizen") && lab.backend.messages().isEmpty)
        #expect(JSONLab.shows(lab.gateway, "Ackerwachtelweizen").isEmpty)
    }

    @Test func whatIsNotACallOfTheSenderIsRefused() throws {
        let lab = try GenericLab(policy: "hosted")
        defer { lab.stop() }
        let (alice, bob) = (Device(lab.alice, "phone"), Device(lab.bob, "phone"))
        // Without a login.
        let stranger = WebClient(port: lab.gateway.port)
        #expect(try stranger.request("GET", "/_pawl/v1/calls?device=phone", [:]).status == 401)
        stranger.headers = [("Authorization", "Bearer forged")]
        #expect(try stranger.request("POST", "/_pawl/v1/calls", ["device": "phone"]).status == 401)
        // The sender's name is that of the login.
        #expect(try alice.post("sdpOffer", ["from": "carol"], to: "bob", id: "room").status == 200)
        #expect(try bob.expect("sdpOffer").first?["from"].string == "alice")
        let gap = try alice.post("iceCandidate", to: "bob", id: "room", seq: 5)
        #expect(gap.status == 409 && gap.json["error"].string == "pawl_out_of_order" && gap.json["next"].integer == 1)
        #expect(try alice.post("sdpAnswer", to: "bob", id: "other").status == 404)
        for (type, to, id, call) in [
            ("answered", "bob", "room", "c"), ("sdp", "bob", "room", "c"), ("sdpOffer", "alice", "room", "c"),
            ("sdpOffer", "bob", String(repeating: "r", count: 257), "c"),
            ("sdpOffer", "bob", "room", String(repeating: "c", count: 65)), ("sdpOffer", "bob", " ", "c"),
            ("sdpOffer", "", "room", "c"),
        ] {
            #expect(try alice.post(type, to: to, id: id, call: call).status == 400)
        }
        let long = JSONValue.string(String(repeating: "v", count: 60_000))
        #expect(try alice.post("sdpOffer", long, to: "bob", id: "long").status == 413)
        for body: JSONValue in [[:], ["device": "phone"], ["device": "", "callId": "r"], [1, 2]] {
            #expect(try lab.alice.client.request("POST", "/_pawl/v1/calls", body).status == 400)
        }
        for query in ["", "?device=", "?device=a&device=b", "?device=a&after=x", "?device=a&wait=x"] {
            #expect(try lab.alice.client.request("GET", "/_pawl/v1/calls" + query, [:]).status == 400)
        }
        let name = String(repeating: "d", count: 65)
        #expect(try lab.alice.client.request("GET", "/_pawl/v1/calls?device=\(name)", [:]).status == 400)
        #expect(try bob.fetch().isEmpty)
    }

    /// Where devices have to encrypt, the route is closed: it is not encrypted between devices.
    @Test func underRequiredNothingIsRelayed() throws {
        let lab = try GenericLab(policy: "required")
        defer { lab.stop() }
        let answer = try Device(lab.alice, "phone").post("sdpOffer", to: "bob", id: "room")
        #expect(answer.status == 409 && answer.json["error"].string == "pawl_refused")
        #expect(try Device(lab.bob, "phone").fetch().isEmpty)
    }

    /// In band: a call with `wait` is answered at once, and a notice comes later.
    @Test func aWebSocketIsNotifiedOfCalls() throws {
        let lab = try GenericLab(policy: "opportunistic")
        defer { lab.stop() }
        let socket = try lab.bob.socket()
        try socket.send(["pawl": ["id": 7, "method": "GET", "path": "/_pawl/v1/calls?device=phone&wait=20"]])
        let first = try socket.expect("the answer") { $0["pawl"]["id"].integer == 7 }
        #expect(first["pawl"]["status"].integer == 200 && first["pawl"]["body"]["calls"].array.isEmpty)
        #expect(try Device(lab.alice, "phone").post("sdpOffer", to: "bob", id: "room").status == 200)
        _ = try socket.expect("the notice") { $0["pawl"]["notice"].string == "calls" }
        try socket.send(["pawl": ["id": 8, "method": "GET", "path": "/_pawl/v1/calls?device=phone"]])
        let second = try socket.expect("the offer") { $0["pawl"]["id"].integer == 8 }
        #expect(second["pawl"]["body"]["calls"].array.map { $0["type"].string } == ["sdpOffer"])
    }
}
