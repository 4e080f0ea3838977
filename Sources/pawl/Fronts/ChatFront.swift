// What the service and the admin commands need of a chat protocol's gateway. Each protocol implements it once, and
// `Assembly.fronts` lists it; commands do not ask which protocol it is.
//
// What a front without a feature answers stands below, once, in a protocol that the front names.

import CommitLoop
import DeviceDirectory
import Envelope
import NIOCore
import NIOPosix
import NIOSupport
import Outbox
import PawlConfiguration
import Protection
import Reports
import RequestQueue
import StorePort

/// One chat protocol's side of a running gateway.
protocol ChatFront: Sendable {
    // MARK: Assembly

    /// The protocol as configurations name it.
    static var chat: ChatProtocol { get }
    /// The names that listeners with TLS offer by ALPN (RFC 7301); none without it.
    static var tlsProtocols: [String] { get }
    /// Opens the files that only this protocol uses.
    ///
    /// - Throws: if one of them cannot be used.
    static func checkFiles(_ configuration: PawlConfiguration) throws
    /// Makes the front and the server of a gateway.
    ///
    /// - Parameter directory: the public keys of people's own devices.
    static func gateway(
        _ parts: FrontParts, _ directory: DirectoryCache
    ) throws -> (front: any ChatFront, server: any ChatServer)
    /// Makes the front and the server of a sidecar.
    ///
    /// - Throws: ``AdminFailure`` if there are none for this protocol.
    static func sidecar(_ parts: FrontParts) throws -> (parts: RoleParts, front: any ChatFront, server: any ChatServer)

    // MARK: Connections

    associatedtype Work: Participants where Work.Job: FrontJob
    /// The thread that commits the jobs of the connections.
    var thread: CommitThread<Work> { get }

    /// Shows a notice to the connected people of an account or in a room.
    func notify(_ account: AccountID, _ text: String)
    /// Refuses what the proofs of an account's connections allowed.
    func revokeProofs(of account: AccountID, _ reason: String)
    /// Changes the directory of people's own devices; the changes are committed in the same order.
    ///
    /// - Throws: ``AdminFailure`` if no device can be published over this protocol.
    func change(_ job: DirectoryJob, _ records: [StoreChange]) throws

    // MARK: Names

    /// Whether names that differ only in letter case are one name.
    var foldsCase: Bool { get }
    /// The name of an account or a room for people.
    func displayName(_ account: AccountID) -> String
    /// Looks up the names of people who are connected now; create one value for many names.
    func names() -> any NameResolver
    /// The account of a services name that an operator writes.
    func services(_ name: String) -> AccountID
    /// The conversation that an operator names: of two people, or one room or conversation.
    ///
    /// - Throws: ``AdminFailure`` if it is not named as this protocol names conversations.
    func conversation(_ first: String, with second: String?) throws -> ConversationID
    /// A hint for an operator who may have mistyped the name of an account; empty if there is none.
    func hint(for account: AccountID) -> String
    /// - Throws: ``AdminFailure`` if an account is written as a room, or the other way round.
    func checkNames(account: String?, room: String?) throws
    /// Accounts and rooms that are known in memory, besides those in the store.
    func knownNames(_ observations: [ObservationRow]) -> [AccountID]
    /// Connections of an account, or in a room.
    func connectionCount(of scope: AccountID) -> Int
    /// How many of the known accounts take part in a room.
    func peopleCount(in room: String, _ observations: [ObservationRow], among accounts: Set<AccountID>) -> Int
    /// The conversations that were observed, and those that have members now.
    func knownConversations(_ observations: [ObservationRow]) -> KnownConversations

    // MARK: Reports

    /// What was observed and not yet stored; ``giveBack(_:)`` takes it back.
    func takeObservations(at time: Int64) -> [StoreChange]
    func giveBack(_ changes: [StoreChange])
    /// Adds what only this protocol knows to a status.
    func complete(_ report: inout StatusReport) async throws
    /// Adds what only this protocol counts to the page of metrics.
    func addMetrics(to page: inout MetricsPage) async
    /// The operator's choices for texts of commands.
    var commandTexts: CommandTexts { get }
    /// The people and devices behind the gateway now.
    func presence() -> Presence
    /// Devices of which the gateway has received an envelope since its start.
    var sealingDevices: Set<DeviceID> { get }
    /// Requests that fitted no route of the mapping.
    ///
    /// - Throws: ``AdminFailure`` if the protocol has no mapping.
    func unmatchedRequests() throws -> [Unmatched.Row]
    /// The notice after an operator has reset a conversation.
    var resetNotice: String { get }

    // MARK: Requests

    func requestRows(states: [RequestState], limit: Int) async throws -> [RequestRow]
    func requestReport(_ id: UInt64) async throws -> RequestReport
    func trace(_ id: UInt64) async throws -> Trace.Report
    /// Requests that wait and are sent after the next start.
    func waitingWrites() async -> Int
    /// Why a request cannot be dropped; nil if it can.
    func whyNotDropped(_ id: UInt64) throws -> ActRefusal?
    /// Whether a request was sent to the backend, which may have done it.
    func isInFlight(_ id: UInt64) throws -> Bool

    /// Carries out an act on queued messages, audits it, and waits until it is stored.
    ///
    /// - Returns: why it was not done; nil if it was.
    func carryOut(_ kind: RequestAct.Kind, on gateway: Gateway) async throws -> ActRefusal?
    /// The ids of all dead requests.
    func deadRequests() throws -> [UInt64]
    /// Sends all dead requests again, and audits it.
    ///
    /// - Returns: how many wait again, and how many stay dead.
    func retryDead(on gateway: Gateway) async throws -> (retried: Int, refused: Int)
    /// Ends the pauses of waiting requests.
    ///
    /// - Returns: how many pauses there were.
    func endPauses() async throws -> Int
    /// Removes all dead requests, and audits it.
    ///
    /// - Returns: how many.
    func purgeDead(on gateway: Gateway) async throws -> Int

    // MARK: Configuration and end

    /// Reads what a reloaded configuration changes.
    ///
    /// - Returns: what puts it in force; until then the earlier one stays.
    /// - Throws: if it is invalid.
    func reload(_ configuration: PawlConfiguration) throws -> @Sendable () -> Void
    /// Answers those who wait for writes, before the connections close.
    func dismiss()
    /// Ends sending, after the connections are closed.
    func close() async
}

/// A job of a protocol, made by what every gateway does.
protocol FrontJob: Sendable {
    /// Changes that need no reply.
    static func record(_ changes: [StoreChange]) -> Self
    /// Time has passed.
    static var tick: Self { get }
    /// An operator has lowered the latch of a conversation.
    static func reset(_ conversation: ConversationID) -> Self
}

/// A job of a protocol over which people publish devices of their own.
protocol DirectoryFrontJob: FrontJob {
    static func directory(_ job: DirectoryJob) -> Self
}

extension ChatFront {
    /// Jobs that wait for the commit thread.
    var waitingJobs: Int { thread.depth }
    /// Hands over what time and reports bring: due work, and changes that need no answer.
    func tick(_ records: [StoreChange]) { thread.submit([.tick, .record(records)]) }
    func record(_ changes: [StoreChange]) { thread.submit([.record(changes)]) }
    /// The latch of a conversation has been lowered in the store.
    func reset(_ conversation: ConversationID) { thread.submit([.reset(conversation)]) }
    /// Waits until all jobs are done.
    func drain() async throws { try await thread.drained(on: MultiThreadedEventLoopGroup.singleton.next()).get() }
    func stop() async { await thread.stop() }
}

extension ChatFront where Work.Job: DirectoryFrontJob {
    func change(_ job: DirectoryJob, _ records: [StoreChange]) { thread.submit([.directory(job), .record(records)]) }
}

// MARK: - A protocol without a feature

// A front that has a feature implements its requirements. One without it names the protocol below, so that the compiler
// reports a requirement that a front has neither answered nor declined.

/// A front whose listeners negotiate no protocol by ALPN and use no files of their own.
protocol PlainListeners: ChatFront {}

extension PlainListeners {
    static var tlsProtocols: [String] { [] }
    static func checkFiles(_: PawlConfiguration) throws {}
}

protocol WithoutSidecar: ChatFront {}

extension WithoutSidecar {
    static func sidecar(_: FrontParts) throws -> (parts: RoleParts, front: any ChatFront, server: any ChatServer) {
        throw AdminFailure(
            .noSidecar, "A sidecar speaks IRC. In front of a backend that speaks \(chat.title) start: pawl serve.")
    }
}

/// A front over which people publish no devices of their own.
protocol WithoutOwnDevices: ChatFront {}

extension WithoutOwnDevices {
    func revokeProofs(of _: AccountID, _: String) {}
    func change(_: DirectoryJob, _: [StoreChange]) throws {
        throw AdminFailure(.noDirectory, "No devices of people's own can be published over \(Self.chat.title).")
    }
    var sealingDevices: Set<DeviceID> { [] }
}

/// A front that compares names as they are written, and has no rooms.
protocol WithExactNames: ChatFront {}

extension WithExactNames {
    var foldsCase: Bool { false }
    func displayName(_ account: AccountID) -> String { account.roomName ?? account.name }
    func names() -> any NameResolver { ExactNames() }
    func services(_ name: String) -> AccountID { .services(name) }
    func hint(for _: AccountID) -> String { "" }
    func checkNames(account _: String?, room _: String?) throws {}
    func peopleCount(in _: String, _: [ObservationRow], among _: Set<AccountID>) -> Int { 0 }
}

/// A front that collects no observations: its connections store theirs, or there are none.
protocol WithoutObservations: ChatFront {}

extension WithoutObservations {
    func takeObservations(at _: Int64) -> [StoreChange] { [] }
    func giveBack(_: [StoreChange]) {}
}

protocol WithoutMapping: ChatFront {}

extension WithoutMapping {
    func unmatchedRequests() throws -> [Unmatched.Row] {
        throw AdminFailure(
            .noMapping,
            "The backend of this gateway speaks \(Self.chat.title), and has no mapping. This is for HTTP backends.")
    }
}

/// A front whose requests carry no texts beside messages that a choice could be about.
protocol WithoutCommandTexts: ChatFront {}

extension WithoutCommandTexts {
    var commandTexts: CommandTexts { CommandTexts() }
}

/// A front that sends what is sealed once.
protocol WithoutQueue: ChatFront {}

extension WithoutQueue {
    private var noQueue: AdminFailure {
        AdminFailure(.noQueue, "Over \(Self.chat.title) this gateway queues no requests.")
    }

    func requestRows(states _: [RequestState], limit _: Int) async throws -> [RequestRow] { [] }
    func requestReport(_: UInt64) async throws -> RequestReport { throw noQueue }
    func trace(_: UInt64) async throws -> Trace.Report { throw noQueue }
    func waitingWrites() async -> Int { 0 }
    func whyNotDropped(_: UInt64) throws -> ActRefusal? { throw noQueue }
    func isInFlight(_: UInt64) throws -> Bool { false }
    func carryOut(_: RequestAct.Kind, on _: Gateway) async throws -> ActRefusal? { throw noQueue }
    func deadRequests() throws -> [UInt64] { [] }
    func retryDead(on _: Gateway) async throws -> (retried: Int, refused: Int) { (0, 0) }
    func endPauses() async throws -> Int { 0 }
    func purgeDead(on _: Gateway) async throws -> Int { 0 }
}

/// The people and devices behind a gateway now.
struct Presence {
    /// Accounts with a connection of their own; none over HTTP, where each request is for itself.
    var accounts: Set<AccountID> = []
    /// The nicks of all connections, in lower case.
    var nicks: Set<String> = []
    /// Devices that connections have proven; over HTTP, those that credentials have proven since the start.
    var devices: Set<DeviceID> = []
}

/// Looks up accounts and rooms by the names that operators and reports use.
protocol NameResolver {
    /// Returns the account of a name: a services account, or the nick of a connected person without one.
    func account(_ name: String) -> AccountID
    func room(_ name: String) -> AccountID
}

extension StatusReport.Requests {
    /// The requests that were counted, none of them held.
    init(_ counts: RequestCounts) {
        self.init()
        (accepted, done, dead, waiting) = (counts.accepted, counts.done, counts.dead, counts.waiting)
    }

    /// - Parameter oldest: when the oldest waiting request was accepted; nil if none waits.
    mutating func setAge(sinceOldest oldest: Int64?) {
        oldestSeconds = oldest.map { max(SystemClock.now().wall - max($0, 0), 0) / 1000 }
    }
}

extension RequestGate {
    /// The accounts whose requests are all held.
    var heldAccounts: [AccountID] {
        holds.compactMap { if case .account(let account) = $0 { account } else { nil } }
    }
}
