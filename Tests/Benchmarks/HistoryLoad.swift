import ArgumentParser
import CommitLoop
import Devices
import DoubleRatchet
import Envelope
import Glibc
import JSONGateway
import NIOCore
import Protection
import SQLiteStore
import StoreBase
import StorePort
import Vault

/// What is measured of history.
enum HistoryWork: String, CaseIterable, ExpressibleByArgument {
    case write, read
}

/// Messages for a backend that keeps them, through vault and store; and the same read backwards in pages of 100.
struct HistoryLoad: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "history-load", abstract: "Prints messages or pages a second, and what they cost.")

    /// Conversations that are spoken in, each by one person.
    static let conversations = 64
    /// Messages of a page.
    static let page = 100

    @Option(help: "The data directory; it must not exist.") var path: String
    @Option(help: "write or read.") var work: HistoryWork
    @Option(help: "Messages in a transaction.") var batch = 256
    @Option(help: "How long to write.") var seconds = 3
    @Option(help: "Messages that are written before they are read.") var messages = 50_000

    func run() throws {
        let store = try SQLiteStore.open(directory: self.path, key: .standard(directory: self.path))
        var history = try History(store)
        switch self.work {
        case .write:
            let text = [UInt8](repeating: 0x78, count: 200)
            try history.write(text, batch: self.batch)
            let measured = try Self.measure(self.seconds) { try history.write(text, batch: self.batch).count }
            let states = try history.states()
            Swift.print(measured.perSecond, measured.processor, states)
        case .read:
            let text = [UInt8](repeating: 0x78, count: 200)
            var items: [OpenMessagesJob.Item] = []
            while items.count < self.messages { items += try history.write(text, batch: 1000) }
            history = try History(store)
            let cold = try Self.measure(pages: items) { try history.read($0) }
            let recent = Array(items.suffix(100 * Self.page))
            _ = try Self.measure(pages: recent) { try history.read($0) }
            let warm = try Self.measure(pages: recent) { try history.read($0) }
            Swift.print(cold.perSecond, cold.processor, warm.perSecond, warm.processor)
        }
    }

    /// Does something until the time is over.
    static func measure(_ seconds: Int, _ body: () throws -> Int) rethrows -> (perSecond: Double, processor: Double) {
        let begin = NIODeadline.now()
        let cpu = clock()
        let end = begin + .seconds(Int64(seconds))
        var count = 0
        while NIODeadline.now() < end { count += try body() }
        return self.figures(count, begin, cpu)
    }

    /// Reads all pages, the last one first.
    private static func measure(
        pages items: [OpenMessagesJob.Item], _ body: (ArraySlice<OpenMessagesJob.Item>) throws -> Void
    ) rethrows -> (perSecond: Double, processor: Double) {
        let begin = NIODeadline.now()
        let cpu = clock()
        let starts = stride(from: items.count - Self.page, through: 0, by: -Self.page)
        for start in starts { try body(items[start..<start + Self.page]) }
        return self.figures(items.count / Self.page, begin, cpu)
    }

    private static func figures(
        _ count: Int, _ begin: NIODeadline, _ cpu: clock_t
    ) -> (perSecond: Double, processor: Double) {
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        let processor = Double(clock() - cpu) * 1e6 / Double(CLOCKS_PER_SEC)
        return (Double(count) / elapsed, processor / Double(count))
    }
}

/// Participants with a vault, used as the commit thread uses them.
private struct History {
    private let store: SQLiteStore
    private var vault: JSONParticipants
    private var writtenCount = 0

    init(_ store: SQLiteStore) throws {
        self.store = store
        var changes: [StoreChange] = []
        self.vault = try JSONParticipants(
            network: "benchmark", sealer: StorageSealer(key: store.key.withBytes { $0 }), store: store,
            latches: LatchTable(), writes: WriteTables(keys: WriteKeys(secret: [])),
            queue: JSONParticipants.queueSettings(host: ""),
            historyRetention: 365 * 86_400_000, now: Self.now,
            random: SystemRandomSource(), changes: &changes)
        _ = try store.commit([changes])
    }

    private static var now: Timestamp {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(
            monotonic: Int64(NIODeadline.now().uptimeNanoseconds),
            wall: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
    }

    @discardableResult
    mutating func write(_ text: [UInt8], batch: Int) throws -> [OpenMessagesJob.Item] {
        let jobs = (0..<batch).map { _ in
            self.writtenCount += 1
            let number = self.writtenCount % HistoryLoad.conversations
            return JSONJob.seal(
                SealMessageJob(
                    connection: ConnectionID(1), ticket: UInt64(self.writtenCount),
                    sender: .services("person\(number)"),
                    conversation: .room("!room\(number)"), plaintext: text))
        }
        let first = self.writtenCount - batch + 1
        return try self.run(jobs).enumerated().map { index, reply in
            guard case .sealed(_, let written) = reply else { throw Failure("not written: \(reply)") }
            let number = (first + index) % HistoryLoad.conversations
            return OpenMessagesJob.Item(
                envelope: written.bytes, sender: .services("person\(number)"), conversation: .room("!room\(number)"))
        }
    }

    mutating func read(_ items: ArraySlice<OpenMessagesJob.Item>) throws {
        let job = OpenMessagesJob(
            connection: ConnectionID(1), ticket: 1, reader: .services("person1"), items: Array(items))
        guard case .opened(_, let outcomes)? = try self.run([.open(job)]).first, outcomes.count == items.count,
            outcomes.allSatisfy({ if case .text = $0 { true } else { false } })
        else { throw Failure("not read") }
    }

    private mutating func run(_ jobs: [JSONJob]) throws -> [JSONReply] {
        let batch = self.vault.prepare(jobs, now: Self.now)
        let committed =
            batch.isEmpty ? batch.allCommitted : try self.store.commit(batch.groups)
        return self.vault.complete(batch, committed: committed, now: Self.now).map(\.reply)
    }

    /// Bytes of a sealed state of a session, in the mean.
    func states() throws -> Int {
        let devices = try self.store.load().devices.map(\.id)
        let lengths = try devices.prefix(8).flatMap { one in
            try devices.compactMap {
                try self.store.session(SessionID(owner: one, peer: $0, in: .only))?.sealedState.count
            }
        }
        return lengths.reduce(0, +) / max(lengths.count, 1)
    }
}
