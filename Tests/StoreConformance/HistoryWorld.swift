// A vault over a store, with a clock of its own, for a backend that keeps what was said.

package import CommitLoop
import Devices
import DoubleRatchet
package import Envelope
package import JSONGateway
package import Protection
package import StorePort
import Testing
package import Vault

/// What was written, as a backend has it.
package struct WrittenMessage: Sendable, Equatable {
    package var text: [UInt8]
    package var envelope: [UInt8]
    package var id: MessageID
    package var sender: AccountID
    package var conversation: AccountID
    package var isFirst: Bool

    /// Nothing where the reply says that it was not written.
    package init?(_ job: SealMessageJob, _ reply: JSONReply?) {
        guard case .sealed(job.ticket, let written)? = reply else { return nil }
        (text, envelope) = (job.plaintext, written.bytes)
        (id, isFirst) = (written.message, written.isFirstOfConversation)
        (sender, conversation) = (job.sender, job.conversation)
    }

    package var item: OpenMessagesJob.Item {
        OpenMessagesJob.Item(envelope: envelope, sender: sender, conversation: conversation)
    }

    package var outcome: OpenOutcome { .text(text, sender: sender, protection: .gateway, message: id) }
}

/// The vault, and the steps that a test makes it do.
package final class HistoryWorld {
    package static let day: Int64 = 86_400_000

    private let open: () throws -> any Store
    private let carrier: Carrier
    package private(set) var store: WatchedStore
    private var pipeline: CommitPipeline<JSONParticipants>!
    private var participants: JSONParticipants! {
        get { pipeline?.participants }
        set { pipeline = newValue.map { CommitPipeline($0) } }
    }
    package private(set) var now = Timestamp(monotonic: 1_000_000_000_000, wall: 1_700_000_000_000)
    package var retention: Int64 { didSet { participants.vault.historyRetention = retention } }
    private var ticket: UInt64 = 0
    package let connection = ConnectionID(7)

    /// - Parameter open: opens the same store each time.
    package init(
        retention: Int64 = 30 * HistoryWorld.day, carrier: Carrier = .json, _ open: @escaping () throws -> any Store
    ) throws {
        (self.open, self.retention, self.carrier) = (open, retention, carrier)
        store = WatchedStore(InMemoryStore())
        try restart()
    }

    /// The process ends and another begins.
    package func restart(carrier: Carrier? = nil, network: String = "lab", earlier: [String] = []) throws {
        participants = nil
        store = WatchedStore(InMemoryStore())
        store = WatchedStore(try open())
        var changes: [StoreChange] = []
        let latches = LatchTable()
        participants = try JSONParticipants(
            network: network, carrier: carrier ?? self.carrier,
            sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store, latches: latches,
            writes: WriteTables(keys: WriteKeys(secret: [])),
            queue: JSONParticipants.queueSettings(host: ""), historyRetention: retention, now: now,
            random: SystemRandomSource(), changes: &changes)
        participants.vault.earlierNetworks = earlier
        _ = try store.commit([changes])
    }

    package func pass(_ milliseconds: Int64) {
        now = Timestamp(monotonic: now.monotonic + milliseconds * 1_000_000, wall: now.wall + milliseconds)
    }

    // MARK: Jobs

    /// Ends an account without a login, as a gateway does when its connection has ended.
    package func forget(_ account: AccountID) throws {
        participants.vault.forget(account)
        _ = try store.commit([[.forgetAccount(account)]])
    }

    /// Does jobs as the commit thread does: the second half is prepared while the first one is being committed.
    @discardableResult
    package func run(_ jobs: [JSONJob]) throws -> [JSONReply] {
        let store = store
        return replies(pipeline.run(jobs, now: now) { store.checkedOutcome(of: $0) })
    }

    /// Does jobs as one batch, in two steps.
    package func perform(_ jobs: [JSONJob]) -> CommitBatch<JSONParticipants> {
        participants.prepare(jobs, now: now)
    }

    package func settle(_ batch: CommitBatch<JSONParticipants>, _ committed: [StoreError?]?)
        -> [JSONReply]
    {
        replies(participants.complete(batch, committed: committed, now: now))
    }

    /// Without the turns of the queue, which has nothing to do here.
    private func replies(_ replies: JSONParticipants.Replies) -> [JSONReply] {
        replies.filter { $0.connection != JSONParticipants.sender }.map(\.reply)
    }

    package func job(
        _ text: [UInt8], by sender: AccountID, in conversation: AccountID, readers: [SealMessageJob.Reader] = []
    ) -> SealMessageJob {
        ticket += 1
        return SealMessageJob(
            connection: connection, ticket: ticket, sender: sender, conversation: conversation, plaintext: text,
            readers: readers)
    }

    /// Writes messages as one batch.
    ///
    /// - Returns: what became of each, in order.
    package func write(_ jobs: [SealMessageJob]) throws -> [Result<WrittenMessage, SealFailure>] {
        let replies = try run(jobs.map { .seal($0) })
        try #require(replies.count == jobs.count)
        return try zip(jobs, replies).map { job, reply in
            if let message = WrittenMessage(job, reply) { return .success(message) }
            guard case .sealFailed(job.ticket, let reason) = reply else {
                throw StoreError.corrupt("Another answer: \(reply)")
            }
            return .failure(reason)
        }
    }

    package func write(
        _ text: String, by sender: String = "alice", in room: String = "!room", readers: [SealMessageJob.Reader] = []
    ) throws -> WrittenMessage {
        let job = job(Array(text.utf8), by: AccountID(text: sender), in: .room(room), readers: readers)
        return try write([job])[0].get()
    }

    package func read(_ items: [OpenMessagesJob.Item], by reader: String = "bob") throws -> [OpenOutcome] {
        ticket += 1
        let job = OpenMessagesJob(
            connection: connection, ticket: ticket, reader: AccountID(text: reader), items: items)
        guard case .opened(ticket, let outcomes)? = try run([.open(job)]).first else {
            throw StoreError.corrupt("No answer.")
        }
        return outcomes
    }

    /// Makes or finds the key of a file.
    package func fileKey(_ job: JSONJob) throws -> Result<SealedFile.Key, OpenError> {
        guard case .fileKey(let key)? = try run([job]).first else { throw StoreError.corrupt("No answer.") }
        return key
    }

    package func read(_ messages: [WrittenMessage], by reader: String = "bob") throws -> [OpenOutcome] {
        try read(messages.map(\.item), by: reader)
    }
}
