import CommitLoop
import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import Protection
import RequestQueue
import StoreConformance
import StorePort
import TestKit
import Testing
import Vault

/// Messages through a pipeline whose commits fail at random, each sealed, opened, copied, acknowledged and delivered.
@Suite struct PipelinedMessageTests {
    private static let now = Timestamp(monotonic: 1_000_000_000, wall: 1_700_000_000_000)

    private static func participants(_ store: InMemoryStore, seed: UInt64) throws -> IRCParticipants {
        var changes: [StoreChange] = []
        let participants = try IRCParticipants(
            network: "lab", carrier: .irc, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
            latches: LatchTable(), rooms: RoomTable(), openedMessages: OpenedMessages(), requestAge: 300_000,
            pendingLimit: 256, now: now, random: SeededGenerator(seed: seed), role: .front(DirectoryCache()),
            wasDelivered: { _ in false },
            changes: &changes)
        _ = try store.commit([changes])
        return participants
    }

    /// Each account has two connections: 2 and 3 belong to the first one, 4 and 5 to the second, and so on.
    private static let accounts = 3

    private static func connection(_ person: Int, _ place: Int) -> ConnectionID {
        ConnectionID(UInt64(2 * person + 2 + place))
    }

    /// A message is shown once on each connection of its recipient, whatever fails, and ends in the store.
    @Test(arguments: 0..<40 as Range<UInt64>)
    func eachIsShownOnce(_ seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let store = InMemoryStore()
        var pipeline = CommitPipeline(try Self.participants(store, seed: seed + 1))
        var waiting: [IRCJob] = []
        var groups: PreparedCommit?
        var texts: [UInt64: String] = [:]
        var opens: [UInt64: OpenJob] = [:]
        var shown: [String: Int] = [:]
        var keys: Set<[UInt8]> = []

        func seal(_ number: Int) {
            let sender = Int.random(in: 0..<Self.accounts, using: &random)
            let peer = (sender + Int.random(in: 1..<Self.accounts, using: &random)) % Self.accounts
            waiting.append(
                .seal(
                    SealJob(
                        connection: Self.connection(sender, 0), ticket: UInt64(number), sender: .services("p\(sender)"),
                        recipient: .services("p\(peer)"), target: "p\(peer)", senderName: "p\(sender)",
                        recipientName: "p\(peer)", verb: "PRIVMSG", body: Body(text: Array("text \(number)".utf8)),
                        capacity: 380)))
        }

        func handle(_ reply: AddressedReply<IRCReply>) throws {
            switch reply.reply {
            case .sealed(let ticket, let request, _, _):
                texts[request.id] = "text \(ticket)"
                let bytes = try #require(Armour.joined(request.bodies))
                let isNew = keys.insert(bytes).inserted
                #expect(isNew)
                let peer = try #require(Int(request.peer.dropFirst()))
                for place in 0...1 {
                    let key = request.id << 1 | UInt64(place)
                    opens[key] = OpenJob(
                        connection: Self.connection(peer, place), ticket: key, account: .services(request.peer),
                        recipients: [.services(request.peer)], senders: [.services(request.account)],
                        envelope: bytes, lineHead: Array(":head :".utf8))
                    if let job = opens[key] { waiting.append(.open(job)) }
                }
                waiting.append(.acknowledged(id: request.id, remoteID: nil))
            case .sealFailed: break
            case .opened(let ticket, let opened):
                #expect(String(decoding: opened.body.text, as: UTF8.self) == texts[ticket >> 1], "seed \(seed)")
                shown["\(reply.connection.value) \(ticket)", default: 0] += 1
                if let sequence = opened.sequence { waiting.append(.delivered(sequences: [sequence])) }
            case .openFailed(let ticket, .notCommitted): if let job = opens[ticket] { waiting.append(.open(job)) }
            default: Issue.record("seed \(seed): \(reply.reply)")
            }
        }

        for step in 0..<600 {
            if step < 300, Bool.random(using: &random) { seal(step) }
            if groups == nil || Bool.random(using: &random) {
                let count = min(pipeline.room(for: waiting[...]), Int.random(in: 1...6, using: &random))
                pipeline.prepare(Array(waiting.prefix(count)), now: Self.now)
                waiting.removeFirst(count)
            }
            if let begun = groups {
                guard Bool.random(using: &random) else { continue }
                if step < 500, Int.random(in: 0...4, using: &random) == 0 { store.failNextCommit() }
                groups = pipeline.ended(store.checkedOutcome(of: begun), now: Self.now)
            }
            for reply in pipeline.settle(now: Self.now).replies { try handle(reply) }
            if groups == nil {
                groups = pipeline.close(now: Self.now)
                for reply in pipeline.settle(now: Self.now).replies { try handle(reply) }
            }
        }
        while groups != nil || !waiting.isEmpty || pipeline.openJobs > 0 {
            pipeline.prepare(waiting, now: Self.now)
            waiting = []
            if let begun = groups {
                groups = pipeline.ended(store.checkedOutcome(of: begun), now: Self.now)
            } else {
                groups = pipeline.close(now: Self.now)
            }
            for reply in pipeline.settle(now: Self.now).replies { try handle(reply) }
        }
        #expect(!texts.isEmpty)
        for key in opens.keys {
            let connection = opens[key]?.connection.value ?? 0
            #expect(shown["\(connection) \(key)"] == 1, "seed \(seed): message \(key >> 1)")
        }
        #expect(try store.requests(states: [.pending], limit: .max).isEmpty, "seed \(seed)")
    }
}
