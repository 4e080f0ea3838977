import ArgumentParser
import Envelope
import Glibc
import NIOCore
import PostgresStore
import Protection
import RequestQueue
import SQLiteStore
import StoreBase
import StorePort

/// Steps of ratchets through the store that the gateway has: a session row of 700 bytes and a request of 420 bytes each.
struct StoreLoad: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store-load",
        abstract: "Prints steps a second, CPU µs a step, and the median and 90th percentile of a commit in ms.")

    private static let stateBytes = 700
    private static let lineBytes = 420

    @Option(help: "The data directory; it must not exist.") var path: String
    @Option(help: "The database, instead of a file.") var url: String?
    @Option(help: "Steps in a commit.") var batch = 256
    @Option(help: "How long to go on.") var seconds = 3
    @Option(help: "Sessions that take turns.") var sessions = 20_000

    func run() throws {
        let key = StorageKey.Source.file(self.path + "/storage.key")
        let store: any Store
        if let url = self.url {
            store = try PostgresStore.open(StoreAddress(url), directory: self.path, key: key)
        } else {
            store = try SQLiteStore.open(directory: self.path, key: key)
        }
        let epochs = try store.load().epochs
        let noise = (0..<65_536).map { _ in UInt8.random(in: .min ... .max) }
        var (steps, times): (UInt64, [Double]) = (0, [])
        let begin = NIODeadline.now()
        let cpu = clock()
        let end = begin + .seconds(Int64(self.seconds))
        while NIODeadline.now() < end {
            let groups = (0..<self.batch).map { _ -> ChangeGroup in
                steps += 1
                return self.step(steps, noise)
            }
            let start = NIODeadline.now()
            let outcomes = try store.commit(groups, by: Array(epochs.prefix(1)))
            times.append(Double((NIODeadline.now() - start).nanoseconds) / 1e6)
            guard outcomes.allSatisfy({ $0 == nil }) else { throw Failure("a step was refused") }
        }
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        let processor = Double(clock() - cpu) * 1e6 / Double(CLOCKS_PER_SEC)
        times.sort()
        Swift.print(
            Double(steps) / elapsed, processor / Double(steps), times[times.count / 2], times[times.count * 9 / 10])
    }

    /// All in the first shard, as one busy conversation's are; the fence rises with each turn of a session.
    private func step(_ number: UInt64, _ noise: [UInt8]) -> ChangeGroup {
        let count = UInt64(self.sessions)
        let id = SessionID(owner: DeviceID(2 + number % count * 2), peer: DeviceID(1 << 32), in: .only)
        let start = Int(number * 97 % 60_000)
        let request = QueuedRequest(
            id: number * 256, token: RequestToken(number: number), tenant: "alice", lane: "bob",
            payload: .message(CarriedMessage(kind: "PRIVMSG", target: "bob", parts: [])),
            creates: [], dependsOn: [], identifiers: nil, idempotencyKey: "", coalescingKey: nil, timestamp: 0)
        return ChangeGroup(
            [
                .putSession(
                    SessionRow(
                        id: id, fence: number, sealedState: Array(noise[start..<start + Self.stateBytes]))),
                .queue(.insert(request, form: Array(noise[start..<start + Self.lineBytes]))),
            ], in: .shard(.only))
    }
}
