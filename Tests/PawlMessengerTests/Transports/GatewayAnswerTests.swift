import Envelope
import Foundation
import RequestQueue
import RequestQueueClient
import Synchronization
import TestKit
import Testing

@testable import PawlMessenger

/// What a gateway, or something in its place, answers.
@Suite struct GatewayAnswerTests {
    private static let page =
        #"{"messages":[{"sequence":4,"kind":"message","from":"Bob","device":"00000000000000b0","id":"m1 00000000000000a1 0123456789abcdef","at":1,"message":"AQID"},{"sequence":6,"kind":"message","from":"bob","device":"00000000000000b0","id":"m2 0123456789abcdef","at":1,"body":"CQk"},{"sequence":7,"kind":"read","from":"bob","device":"00000000000000b0","id":"m1","at":2},{"sequence":8,"kind":"registration","from":"alice","at":2,"message":"AQ"},{"sequence":9,"kind":"party","from":"bob","at":2},{"sequence":10,"kind":"lost","from":"bob","device":"00000000000000b0","at":2,"count":7}],"more":true}"#

    private func read(_ text: String, after: UInt64 = 3) throws -> GatewayPage {
        try GatewayBody.page(Array(text.utf8), after: after)
    }

    @Test func aPageIsRead() throws {
        let bob = DeviceId("00000000000000b0")!
        let page = try read(Self.page)
        #expect(
            page
                == GatewayPage(
                    entries: [
                        .init(
                            sequence: 4,
                            event: .message([1, 2, 3], isShared: false, id: "m1", from: "bob", device: bob)),
                        .init(
                            sequence: 6, event: .message([9, 9], isShared: true, id: "m2", from: "bob", device: bob)),
                        .init(sequence: 7, event: .receipt(isRead: true, id: "m1", from: "bob", device: bob)),
                        .init(sequence: 8, event: .registration([1], from: "alice")),
                        .init(sequence: 9, event: .unknown),
                        .init(sequence: 10, event: .lost(7, from: "bob", device: bob)),
                    ], hasMore: true))
    }

    @Test func cutPagesAreRefused() throws {
        let bytes = Array(Self.page.utf8)
        for length in 0..<bytes.count {
            #expect(throws: GatewayBody.Malformed.self) { try GatewayBody.page(Array(bytes.prefix(length)), after: 3) }
        }
        #expect(throws: GatewayBody.Malformed.self) {
            try GatewayBody.page(bytes + [UInt8](repeating: 0x20, count: GatewayBody.answerLimit), after: 3)
        }
    }

    /// A sequence that does not rise would be fetched again and again.
    @Test func sequencesRise() throws {
        _ = try read(Self.page, after: 3)
        #expect(throws: GatewayBody.Malformed.self) { try read(Self.page, after: 4) }
        #expect(throws: GatewayBody.Malformed.self) {
            try read(Self.page.replacingOccurrences(of: #""sequence":6"#, with: #""sequence":4"#))
        }
        for wrong in ["-1", "1.5", "\"4\"", "18446744073709551616", "null"] {
            #expect(throws: GatewayBody.Malformed.self) {
                try read(Self.page.replacingOccurrences(of: #""sequence":4"#, with: #""sequence":\#(wrong)"#))
            }
        }
        let entry = #"{"sequence":1,"kind":"x","from":"b"}"#
        let many = (1...300).map { entry.replacingOccurrences(of: "1", with: "\($0)") }.joined(separator: ",")
        #expect(throws: GatewayBody.Malformed.self) { try read(#"{"messages":[\#(many)],"more":false}"#, after: 0) }
    }

    /// Entries that make no sense are passed over, so that they do not keep others from coming.
    @Test(arguments: [
        [#""message":"AQID""#, #""message":"A""#],
        [#""device":"00000000000000b0","id":"m1 "#, #""device":"b","id":"m1 "#],
        [#""at":1,"message":"AQID""#, #""at":1"#],
        [#""message":"AQID""#, #""message":"AQID","body":"AQ""#],
    ]) func strangeEntriesAreUnknown(_ change: [String]) throws {
        let page = try read(Self.page.replacingOccurrences(of: change[0], with: change[1]))
        #expect(page.entries.first?.event == .unknown && page.entries.count == 6)
    }

    @Test func changedBytesNeverCrash() throws {
        var random = SeededGenerator(seed: 4)
        let bytes = Array(Self.page.utf8)
        for _ in 0..<20_000 {
            var changed = bytes
            for _ in 0...Int.random(in: 0...3, using: &random) {
                changed[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            _ = try? GatewayBody.page(changed, after: 0)
        }
        for _ in 0..<2000 {
            let noise = (0..<Int.random(in: 0..<200, using: &random)).map { _ in
                UInt8.random(in: 0...255, using: &random)
            }
            _ = try? GatewayBody.me(noise)
            _ = try? GatewayBody.challenge(noise)
            _ = try? GatewayBody.devices(noise)
            _ = try? GatewayBody.config(in: noise)
            _ = GatewayBody.refusal(noise)
        }
    }

    @Test func otherAnswersAreCheckedWhole() throws {
        func text(_ text: String) -> [UInt8] { Array(text.utf8) }
        #expect(try GatewayBody.me(text(#"{"account":"Alice","device":null}"#)).account == "alice")
        let nonce = Base64.text([UInt8](repeating: 1, count: 32))
        #expect(try GatewayBody.challenge(text(#"{"account":"a","challenge":"\#(nonce)"}"#)).nonce.count == 32)
        for wrong in [#"{"account":"a","challenge":"AQ"}"#, #"{"challenge":"\#(nonce)"}"#, "[]", "", "null"] {
            #expect(throws: GatewayBody.Malformed.self) { try GatewayBody.challenge(text(wrong)) }
        }
        for wrong in [#"{"devices":[],"message":"IgE"}"#, #"{"devices":[],"message":"AQ"}"#, #"{"devices":[]}"#] {
            #expect(throws: GatewayBody.Malformed.self) { try GatewayBody.devices(text(wrong)) }
        }
        let large = Base64.text([UInt8](repeating: 1, count: 40 << 10))
        #expect(throws: GatewayBody.Malformed.self) { try GatewayBody.config(in: text(#"{"config":"\#(large)"}"#)) }
        for id in ["", "../../me", "0123456789ABCDEF0123456789ABCDEF", String(repeating: "g", count: 32)] {
            #expect(throws: GatewayBody.Malformed.self) { try GatewayBody.blobID(text(#"{"id":"\#(id)"}"#)) }
        }
        let long = String(repeating: "x", count: 5000)
        let refusal = GatewayBody.refusal(text(#"{"error":"\#(long)","message":"\#(long)"}"#))
        #expect(refusal.code.count == 64 && refusal.words.count == 256)
        #expect(GatewayBody.refusal(text("<html>")).code.isEmpty)
    }

    @Test func namesAreOneSegmentOfAPath() {
        #expect(GatewayCredential.segment("alice_1-~") == "alice_1-~")
        #expect(GatewayCredential.segment("../a b?ä") == "%2E%2E%2Fa%20b%3F%C3%A4")
    }

    // MARK: Answers by status

    private func client(
        _ answer: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse
    ) throws -> GatewayTransportClient {
        let url = try #require(URL(string: "http://gateway.example/"))
        return GatewayTransportClient(
            url: url, for: KeyedDevice("alice", 1).request(), network: InMemoryNetworkClient(answer)
        ) { _ in .bearer("t") }
    }

    private static func response(_ status: Int, _ text: String) -> NetworkResponse {
        NetworkResponse(status: status, body: Array(text.utf8))
    }

    /// Only what a repetition would not change is refused; all else is tried again.
    @Test(
        arguments: [
            (200, #"{"accepted":1}"#, nil),
            (400, #"{"error":"pawl_malformed","message":"no"}"#, .refused("no")),
            (413, #"{"error":"pawl_too_long","message":"long"}"#, .refused("long")),
            (409, #"{"error":"pawl_refused","message":"never"}"#, .refused("never")),
            (401, #"{"error":"pawl_not_logged_in"}"#, .offline),
            (429, #"{"error":"pawl_full","message":"no room"}"#, .full("no room")),
            (429, #"{"error":"pawl_too_many"}"#, .offline), (502, #"{"error":"pawl_backend_gone"}"#, .offline),
            (503, #"{"error":"pawl_not_stored"}"#, .offline), (403, #"{"error":"pawl_takes_no_part"}"#, .offline),
            // Not a gateway: the backend itself, a proxy, a page of a hotel.
            (404, "not found", .offline), (404, #"{"error":"no such page"}"#, .offline),
            (404, #"{"error":"pawl_unknown_call"}"#, .offline), (302, "", .offline),
            (500, "<html>", .offline), (204, "", .offline),
        ] as [(Int, String, CypherTransportError?)]) func everyAnswerHasItsMeaning(
            _ status: Int, _ body: String, _ error: CypherTransportError?
        ) async throws
    {
        let client = try client { (_: NetworkRequest) throws(NetworkFailure) -> NetworkResponse in
            Self.response(status, body)
        }
        var thrown: CypherTransportError?
        do {
            try await client.sendMessage(
                RatchetedCypherMessage(bytes: [1]), toUser: "bob",
                otherUserDeviceId: KeyedDevice("bob", 2).deviceId, messageId: "0000000000000001")
        } catch { thrown = error as? CypherTransportError ?? .notFound }
        #expect(thrown == error)
    }

    /// A file that finds no room at the gateway is not tried again, and its sender learns why.
    @Test func aFullGatewayIsNotOffline() async throws {
        let calls = Mutex(0)
        let client = try client { (_: NetworkRequest) throws(NetworkFailure) -> NetworkResponse in
            calls.withLock { $0 += 1 }
            return Self.response(429, #"{"error":"pawl_full","message":"no room"}"#)
        }
        await #expect(throws: CypherTransportError.full("no room")) { try await client.publishBlob(["a": 1]) }
        #expect(calls.withLock { $0 } == 1)
        #expect(CypherMessengerError(CypherTransportError.full("no room")) == .serverFull("no room"))
    }

    /// A gateway has no call for a name that no account can have. Its keys are not asked for again and again.
    @Test func namesThatAGatewayCannotHaveAreNotFound() async throws {
        let client = try client { (request: NetworkRequest) throws(NetworkFailure) -> NetworkResponse in
            request.url.hasSuffix("/accounts/x%2541/config")
                ? Self.response(404, #"{"error":"pawl_unknown_call"}"#) : Self.response(404, "not found")
        }
        for name: Username in ["x%41", "\u{1}x", "a/b", "a;b", "..", ""] {
            await #expect(throws: CypherTransportError.notFound) {
                _ = try await client.readKeyBundle(forUsername: name)
            }
        }
        await #expect(throws: CypherTransportError.offline) { _ = try await client.readKeyBundle(forUsername: "bob") }
    }

    @Test func largeAnswersAndLostConnectionsAreNoAnswers() async throws {
        for answer in [nil, [UInt8](repeating: 0x20, count: GatewayBody.answerLimit + 1)] {
            let client = try client { (_: NetworkRequest) throws(NetworkFailure) -> NetworkResponse in
                guard let answer else { throw .networkConnectionLost }
                return NetworkResponse(status: 200, body: answer)
            }
            await #expect(throws: CypherTransportError.offline) {
                _ = try await client.readKeyBundle(forUsername: "bob")
            }
        }
    }

    /// Pauses get longer, the state is reported, and nothing goes on after the client was released.
    @Test func failuresAreTriedAgainLater() async throws {
        let calls = Mutex<[ContinuousClock.Instant]>([])
        let delegate = RecordingDelegate()
        do {
            let client = try client { (_: NetworkRequest) throws(NetworkFailure) -> NetworkResponse in
                calls.withLock { $0.append(.now) }
                throw .cannotConnectToHost
            }
            client.delegate = delegate
            await #expect(throws: CypherTransportError.offline) { try await client.reconnect() }
            try await eventuallyAsync("some calls") { calls.withLock { $0.count } >= 5 }
            let times = calls.withLock { $0 }
            // The third pause at the earliest: a quarter less than a second. No pause is shorter than it was asked to be.
            #expect(times[4] - times[3] >= .milliseconds(750))
            withExtendedLifetime(client) {}
        }
        try await Task.sleep(for: .milliseconds(100))
        let count = calls.withLock { $0.count }
        try await Task.sleep(for: .seconds(3))
        #expect(calls.withLock { $0.count } == count)
    }

    /// An answer without entries that comes at once, over and over, keeps the client from asking all the time.
    @Test func aGatewayThatDoesNotWaitIsAskedSlowly() async throws {
        let calls = Mutex(0)
        let own = KeyedDevice("alice", 1).deviceId
        let client = try client { (request: NetworkRequest) throws(NetworkFailure) -> NetworkResponse in
            if request.url.hasSuffix("/me") { return Self.response(200, #"{"account":"alice","device":"\#(own)"}"#) }
            calls.withLock { $0 += 1 }
            return Self.response(200, #"{"messages":[],"more":true}"#)
        }
        let delegate = RecordingDelegate()
        client.delegate = delegate
        try await client.reconnect()
        #expect(client.authenticated == .authenticated)
        try await Task.sleep(for: .seconds(3))
        #expect(calls.withLock { $0 } <= 5)
        try await client.disconnect()
        #expect(client.authenticated == .unauthenticated)
        #expect(delegate.states == [.authenticated, .unauthenticated])
    }
}
