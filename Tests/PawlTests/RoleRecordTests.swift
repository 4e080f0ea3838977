import Envelope
import Foundation
import PawlConfiguration
import PeerKit
import Protection
import RequestQueue
import SQLiteStore
import StorePort
import TestThreads
import Testing

@testable import pawl

/// A data directory is for one chat protocol, also if a version wrote it that recorded none.
@Suite(.blocking) struct RoleRecordTests {
    private let store = InMemoryStore()

    private func start(_ scheme: String, network: String? = nil, on store: InMemoryStore? = nil) throws {
        // A listener with TLS needs a certificate, and the protocol of the backend is what counts.
        let listen = scheme.hasSuffix("s") ? String(scheme.dropLast()) : scheme
        var overrides = PawlConfiguration.Overrides(
            listen: ["\(listen)://127.0.0.1:0"], upstream: "\(scheme)://127.0.0.1:9", policy: "observe", data: "/d")
        if listen == "http" { overrides.set("mapping", to: .one("/m"), option: "test") }
        if let network { overrides.set("upstream.network", to: .one(network), option: "test") }
        let configuration = try PawlConfiguration.load(overrides: overrides, protocols: Assembly.protocols)
        _ = try RoleRecord.check(.front, configuration.upstream, store ?? self.store, directory: "/d", now: 1)
    }

    private func refusal(_ scheme: String) throws -> AdminFailure? {
        do {
            try start(scheme)
            return nil
        } catch let failure as AdminFailure {
            return failure
        }
    }

    /// As a version that recorded the network only.
    private func recordNetwork() throws {
        try RoleRecord.fix("127.0.0.1", in: store, actor: "test", detail: "", now: 1)
    }

    private func insert(_ id: UInt64, _ payload: RequestPayload, state: RequestState = .pending) throws {
        var request = QueuedRequest(
            id: id, token: RequestToken(number: id), tenant: "account alice", lane: "account bob", payload: payload,
            creates: [], dependsOn: [], identifiers: nil, idempotencyKey: "\(id)", coalescingKey: nil, timestamp: 1)
        request.setProgress(
            state: state, attempts: 0, crashes: 0, doubts: 0, lease: nil, notBefore: 0, isHeld: false, cause: nil,
            size: 0)
        #expect(try store.commit([[.queue(.insert(request, form: RequestForm.encode(request)))]]) == [nil])
    }

    private var recorded: String? {
        get throws {
            try store.record(.network, name: RoleRecord.chatProtocol).map { String(decoding: $0.value, as: UTF8.self) }
        }
    }

    @Test func theFirstStartRecordsTheProtocol() throws {
        try start("irc")
        #expect(try recorded == "irc")
        let refused = try #require(try refusal("http"))
        let failure = RoleRecord.otherProtocol("/d", holder: .irc, configured: .json)
        #expect(refused.code == failure.code && refused.message == failure.message)
        #expect(throws: Never.self) { try start("ircs") }

        let web = InMemoryStore()
        try start("http", on: web)
        #expect(throws: AdminFailure.self) { try start("irc", on: web) }
        #expect(throws: Never.self) { try start("https", on: web) }
    }

    static let ofIRC: [RequestPayload] = [
        .message(CarriedMessage(kind: "PRIVMSG", target: "bob", parts: [[1]])),
        // As until form 4 of stored requests.
        .http(Request.config(target: "bob", verb: "PRIVMSG", encodedBodies: [0, 1, 1])),
    ]

    @Test(arguments: ofIRC, [RequestState.pending, .inFlight, .dead, .done])
    func requestsOfIRCAreNotSentOverHTTP(_ payload: RequestPayload, _ state: RequestState) throws {
        try recordNetwork()
        try insert(1, payload, state: state)
        #expect(try refusal("http")?.code == FailureCode.otherProtocol.rawValue)
        #expect(try recorded == nil)
        try start("irc")
        #expect(try recorded == "irc")
    }

    @Test func writesOverHTTPAreNotForIRC() throws {
        try recordNetwork()
        try insert(1, .http(APIRequestConfig(method: .put, path: "/messages")))
        #expect(try refusal("irc")?.code == FailureCode.otherProtocol.rawValue)
        try start("http")
        #expect(try recorded == "json")
    }

    /// Such a directory was started in front of the wrong backend: the queue over HTTP would send what is of IRC.
    @Test func oneMessageOfIRCAmongWritesIsEnough() throws {
        try recordNetwork()
        try insert(1, .http(APIRequestConfig(method: .put, path: "/messages")))
        try insert(2, Self.ofIRC[1])
        #expect(try refusal("http") != nil)
    }

    /// All writes of an HTTP gateway are pruned in time; its keys and credentials stay.
    @Test func keysAndCredentialsAreOfHTTP() throws {
        try recordNetwork()
        let key = ContentKeyRow(
            message: MessageID(1), digest: EnvelopeDigest(of: [1]), expiresAt: .max, sealedKey: [1])
        _ = try store.commit([[.putContentKey(key)]])
        #expect(try refusal("irc") != nil)

        let other = InMemoryStore()
        _ = try other.commit([[.queue(.session(tenant: "account alice", sealed: [1]))]])
        #expect(throws: AdminFailure.self) { try start("irc", on: other) }
    }

    @Test func anEmptyStoreTakesTheConfiguredBackend() throws {
        try recordNetwork()
        try start("http")
        #expect(try recorded == "json")
        #expect(try refusal("irc") != nil)
    }

    /// The network is compared first, and a start that is refused records nothing.
    @Test func aRefusedStartRecordsNothing() throws {
        try recordNetwork()
        let failure = #expect(throws: AdminFailure.self) { try start("irc", network: "elsewhere") }
        #expect(failure?.code == FailureCode.otherNetwork.rawValue)
        #expect(try recorded == nil)
    }

    private func upstream(_ address: String, network: String? = nil) throws -> PawlConfiguration.Upstream {
        var overrides = PawlConfiguration.Overrides(
            listen: ["irc://127.0.0.1:0"], upstream: address, policy: nil, data: "/d")
        if let network { overrides.set("upstream.network", to: .one(network), option: "test") }
        return try PawlConfiguration.load(overrides: overrides, protocols: Assembly.protocols).upstream
    }

    /// A start that is refused must not have upgraded the store, which an earlier version refuses from then on.
    @Test func aStoreOfSomethingElseIsRefusedBeforeItIsOpened() throws {
        func refusal(_ purpose: StoredPurpose, _ role: Role, network: String? = nil) throws -> String? {
            do {
                let upstream = try upstream("ircs://irc.example.org", network: network)
                try RoleRecord.refuse(purpose, role, upstream, directory: "/d")
                return nil
            } catch let failure as AdminFailure {
                return failure.code
            }
        }
        var gateway = StoredPurpose()
        gateway.gateway = [RecordRow.network: Array("lab".utf8)]
        #expect(try refusal(gateway, .front) == nil && refusal(gateway, .front, network: "lab") == nil)
        #expect(try refusal(gateway, .front, network: "other") == FailureCode.otherNetwork.rawValue)
        #expect(try refusal(gateway, .sidecar) == FailureCode.directoryOfGateway.rawValue)
        gateway.gateway[RoleRecord.chatProtocol] = Array("json".utf8)
        #expect(try refusal(gateway, .front) == FailureCode.otherProtocol.rawValue)
        gateway.gateway[RoleRecord.chatProtocol] = [1]
        #expect(try refusal(gateway, .front) == FailureCode.unknownProtocol.rawValue)

        var sidecar = StoredPurpose()
        sidecar.sidecar = Array("irc.example.org".utf8)
        #expect(try refusal(sidecar, .sidecar) == nil)
        #expect(try refusal(sidecar, .front) == FailureCode.directoryOfSidecar.rawValue)
        #expect(try refusal(sidecar, .sidecar, network: "other") == nil, "it has met nobody")
        sidecar.hasPeers = true
        #expect(try refusal(sidecar, .sidecar, network: "other") == FailureCode.otherNetwork.rawValue)
        #expect(try refusal(StoredPurpose(), .sidecar) == nil && refusal(StoredPurpose(), .front) == nil)
    }

    /// The first address was wrong: until somebody's keys are known, a sidecar may go to another network.
    @Test func aSidecarThatHasMetNobodyTakesAnotherNetwork() throws {
        let store = InMemoryStore(.single)
        func start(_ host: String) throws -> String {
            let overrides = PawlConfiguration.Overrides(
                listen: ["irc://127.0.0.1:0"], upstream: "ircs://\(host)", policy: nil, data: "/d")
            let configuration = try PawlConfiguration.load(overrides: overrides, protocols: Assembly.protocols)
            return try RoleRecord.check(.sidecar, configuration.upstream, store, directory: "/d", now: 1).name
        }
        #expect(try start("irc.exmaple.org") == "irc.exmaple.org")
        #expect(try start("irc.example.org") == "irc.example.org")
        #expect(try start("irc.example.org") == "irc.example.org")
        _ = try store.commit([[.putRecord(RecordRow(kind: .peer, name: "nick bob", value: []))]])
        let failure = #expect(throws: AdminFailure.self) { try start("irc.other.org") }
        #expect(failure?.code == FailureCode.otherNetwork.rawValue)
        #expect(try start("irc.example.org") == "irc.example.org")
    }

    @Test func aProtocolOfANewerVersionIsRefused() throws {
        try start("irc")
        let row = RecordRow(kind: .network, name: RoleRecord.chatProtocol, value: Array("xmpp".utf8))
        _ = try store.commit([[.putRecord(row)]])
        #expect(try refusal("irc")?.code == FailureCode.unknownProtocol.rawValue)
    }

    /// The program itself, on one directory.
    @Test func anotherProtocolDoesNotStartOnTheDirectory() async throws {
        let scratch = try ScratchDirectory()
        func stopped() async throws {
            let gateway = try AdminTests.gateway(scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0")
            await gateway.front.stop()
        }
        try await stopped()
        let failure = try #require(throws: AdminFailure.self) {
            try AdminTests.gateway(scratch, upstream: "http://127.0.0.1:1", listen: "http://127.0.0.1:0")
        }
        #expect(failure.code == FailureCode.otherProtocol.rawValue)
    }
}
