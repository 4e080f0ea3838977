import DeviceDirectory
import Envelope
import NIOSupport
import PawlConfiguration
import PeerKit
import Protection
import Reports
import RequestQueue
import StorePort
import TestThreads
import Testing

@testable import pawl

/// A chat protocol without rooms, queue, mapping or published devices implements only what has no obvious answer.
private struct PlainFront: ChatFront, PlainListeners, WithExactNames, WithoutMapping, WithoutObservations,
    WithoutOwnDevices, WithoutQueue, WithoutSidecar, WithoutCommandTexts
{
    static let chat = ChatProtocol(
        stored: "plain", title: "Plain", backend: "a Plain backend", scheme: "plain", ports: (1, 2))

    let thread: JSONFront.Thread

    static func gateway(
        _: FrontParts, _: DirectoryCache
    ) throws -> (front: any ChatFront, server: any ChatServer) {
        throw AdminFailure(.noGateway, "This front is not assembled.")
    }

    func notify(_: AccountID, _: String) {}
    func conversation(_ first: String, with second: String?) throws -> ConversationID {
        ConversationID(services(first), services(second ?? first))
    }
    func knownNames(_: [ObservationRow]) -> [AccountID] { [] }
    func connectionCount(of _: AccountID) -> Int { 0 }
    func knownConversations(_: [ObservationRow]) -> KnownConversations { KnownConversations(everyIsPrivate: true) }
    func complete(_: inout StatusReport) async throws {}
    func presence() -> Presence { Presence() }
    var resetNotice: String { "" }
    func addMetrics(to _: inout MetricsPage) async {}
    func reload(_: PawlConfiguration) throws -> @Sendable () -> Void { {} }
    func dismiss() {}
    func close() async {}
}

@Suite(.blocking) struct PlainFrontTests {
    private let scratch: ScratchDirectory
    private let front: PlainFront

    init() throws {
        scratch = try ScratchDirectory()
        let gateway = try AdminTests.gateway(scratch, upstream: "http://127.0.0.1:1", listen: "http://127.0.0.1:0")
        front = PlainFront(thread: try #require(gateway.front as? JSONFront).thread)
    }

    /// A store or a URL names one protocol.
    @Test func noNameIsOfTwoProtocols() {
        let stored = Assembly.protocols.map(\.stored)
        let schemes = Assembly.protocols.flatMap { chat in
            PawlConfiguration.Endpoint.Scheme.Transport.allCases.map {
                PawlConfiguration.Endpoint.Scheme(chat, $0).name
            }
        }
        #expect(Set(stored).count == stored.count && Set(schemes).count == schemes.count)
    }

    @Test func withoutAQueueNothingWaitsAndNoRequestExists() async throws {
        #expect(try await front.requestRows(states: RequestState.allCases, limit: 10).isEmpty)
        #expect(try front.deadRequests().isEmpty)
        #expect(await front.waitingWrites() == 0)
        #expect(try await front.endPauses() == 0)
        let drop = try #require(throws: AdminFailure.self) { try front.whyNotDropped(1) }
        let report = try await #require(throws: AdminFailure.self) { try await front.requestReport(1) }
        let trace = try await #require(throws: AdminFailure.self) { try await front.trace(1) }
        #expect([drop, report, trace].allSatisfy { $0.code == FailureCode.noQueue.rawValue })
    }

    @Test func namesAreExact() throws {
        #expect(!front.foldsCase && front.services("Ann") == .services("Ann"))
        #expect(front.names().account("Ann") == .services("Ann") && front.displayName(.room("r")) == "r")
        #expect(front.peopleCount(in: "r", [], among: []) == 0 && front.hint(for: .services("Ann")).isEmpty)
    }

    @Test func withoutAMappingNothingIsUnmatched() throws {
        let failure = try #require(throws: AdminFailure.self) { try front.unmatchedRequests() }
        #expect(failure.code == FailureCode.noMapping.rawValue && failure.message.contains(PlainFront.chat.title))
    }
}
