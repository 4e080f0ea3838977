import CommitLoop
import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import Foundation
import IRCCodec
import IRCGateway
import NIOCore
import Protection
import RequestQueue
import StoreConformance
import StorePort
import TestKit
import Vault

/// A gateway in memory: sessions, vault and store with a clock of its own, in front of a simulated backend.
final class World {
    /// A client: what it has sent is gone, what it has read is kept.
    final class Client {
        let id: Int
        let machine: IRCConnectionMachine
        var read: [String] = []
        /// Its commands to the sidecar itself.
        var commands: [String] = []
        var isOpen = true
        /// Of a sidecar: its connection to the gateway in front.
        var front: Client?
        /// Its own socket to the backend, without the gateway.
        let isDirect: Bool

        init(id: Int, machine: IRCConnectionMachine, isDirect: Bool) {
            (self.id, self.machine, self.isDirect) = (id, machine, isDirect)
        }

        /// Texts of the messages that it has read.
        var messages: [String] { read.filter { $0.contains(" PRIVMSG ") || $0.contains(" NOTICE ") } }
    }

    let backend: SimulatedBackend
    let environment: IRCEnvironment
    let store: InMemoryStore
    /// Most jobs go through it in two batches: one is being committed while the next one is prepared.
    private var pipeline: CommitPipeline<IRCParticipants>
    var participants: IRCParticipants {
        get { pipeline.participants }
        set { pipeline.participants = newValue }
    }
    var now = Timestamp(monotonic: 1_000_000_000_000, wall: 1_700_000_000_000)
    var clients: [Int: Client] = [:]
    var journal: Set<UInt64> = []
    /// Lines are opened and committed, and never known to have reached a client.
    var diesBeforeSockets = false
    private let output = MachineOutput()
    private var wakes: [Int: Int64] = [:]
    private var nextID = 1
    /// Other programs in front of the same backend.
    private(set) var neighbours: [World] = []
    /// The gateway that this sidecar's connections go to.
    private var front: World?

    /// - Parameters:
    ///   - beside: another program in front of the same backend.
    ///   - sidecar: whether this one holds one person's own device.
    init(
        _ policy: Policy, offers: [String]? = nil, store: InMemoryStore? = nil, seed: UInt64 = 1,
        journal: Set<UInt64> = [], beside: World? = nil, behind: World? = nil, sidecar: Bool = false,
        settings: (inout IRCSettings) -> Void = { _ in }
    ) throws {
        backend = (beside ?? behind)?.backend ?? SimulatedBackend(offers: offers)
        front = behind
        nextID = 1 + 1000 * Int(seed)
        var irc = IRCSettings(
            network: "lab", heldLines: 512, pendingRequests: 256, outagePatience: 900_000, asksForVersion: false,
            marks: .text)
        settings(&irc)
        let store = store ?? InMemoryStore(sidecar ? .single : .shared)
        self.store = store
        self.journal = journal
        var snapshot = PolicySnapshot(everyone: policy)
        for (account, policy) in try store.load().policies { if let account { snapshot.accounts[account] = policy } }
        let latches = LatchTable()
        environment = IRCEnvironment(
            settings: irc, policies: PolicyTable(snapshot), latches: latches,
            role: sidecar ? .sidecar(PeerCache()) : .front(DirectoryCache()))
        var changes: [StoreChange] = []
        let participants = try IRCParticipants(
            network: "lab", carrier: .irc, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
            latches: latches, rooms: environment.rooms, openedMessages: environment.opened,
            outbox: environment.requests,
            requestAge: 300_000, pendingLimit: 256,
            now: now, random: SeededGenerator(seed: seed), role: environment.role,
            wasDelivered: { journal.contains($0) }, changes: &changes)
        _ = try store.commit([changes])
        pipeline = CommitPipeline(participants)
        guard let beside = beside ?? behind else { return }
        neighbours = [beside] + beside.neighbours
        now = beside.now
        for neighbour in neighbours { neighbour.neighbours.append(self) }
    }

    // MARK: People

    @discardableResult
    func connect(_ nick: String, account: String? = nil, direct: Bool = false, lines: [String] = []) -> Client {
        let client = open(direct: direct)
        for line in lines { send(client, line) }
        send(client, "NICK \(nick)")
        send(client, "USER \(nick) 0 * :\(nick)")
        if let account {
            backend.login(client.front?.id ?? client.id, account)
            settle()
        }
        return client
    }

    /// Logs in by SASL before the registration.
    ///
    /// - Parameter account: nil for one with the name of the nick.
    func logIn(_ nick: String, as account: String? = nil) -> Client {
        let proof = SimulatedBackend.proof(account ?? nick)
        return connect(
            nick,
            lines: ["CAP LS 302", "CAP REQ :sasl", "AUTHENTICATE PLAIN", "AUTHENTICATE \(proof)", "CAP END"])
    }

    func open(direct: Bool = false, mayStartTLS: Bool = true) -> Client {
        let id = nextID
        nextID += 1
        if front == nil { backend.people[id] = .init() }
        let machine = IRCConnectionMachine(
            id: ConnectionID(UInt64(id) &* 0x9E37_79B9), environment: environment, mayStartTLS: mayStartTLS)
        let client = Client(id: id, machine: machine, isDirect: direct)
        clients[id] = client
        client.front = front?.open()
        if !direct { run(client) { client.machine.begin(at: self.now, $0) } }
        settle()
        return client
    }

    func send(_ client: Client, _ line: String) { send(client, bytes: Array((line + "\r\n").utf8)) }

    func send(_ client: Client, bytes: [UInt8]) {
        if client.isDirect {
            for line in lines(ByteBuffer(bytes: bytes)) { backend.take(client.id, line) }
        } else {
            run(client) { client.machine.fromDownstream(ByteBuffer(bytes: bytes), at: self.now, $0) }
        }
        settle()
    }

    func close(_ client: Client) {
        client.isOpen = false
        backend.leave(client.id)
        clients[client.id] = nil
        if let front, let connection = client.front { front.close(connection) }
        if !client.isDirect { run(client) { client.machine.finish(at: self.now, $0) } }
        settle()
    }

    /// The backend is gone with all that it knew; clients that can stay do.
    func backendDies() {
        backend.isDown = true
        for client in clients.values.sorted(by: { $0.id < $1.id }) {
            backend.leave(client.id)
            if client.isDirect { continue }
            if client.machine.outlivesBackend || client.machine.isSuspended {
                run(client) { client.machine.suspend(at: self.now, $0) }
            } else {
                close(client)
            }
        }
        settle()
    }

    /// The backend is there again, and connections to it are made.
    func backendReturns(only: Client? = nil) {
        backend.isDown = false
        for client in clients.values.sorted(by: { $0.id < $1.id })
        where client.machine.isSuspended && (only == nil || only === client) {
            backend.people[client.id] = .init()
            run(client) { client.machine.begin(at: self.now, $0) }
        }
        settle()
    }

    /// Lets time pass, waking who asked for it.
    func advance(seconds: Double) {
        let end = now.monotonic + Int64(seconds * 1_000_000_000)
        while let next = wakes.values.min(), next <= end {
            let step = max(next - now.monotonic, 0)
            now.monotonic += step
            now.wall += step / 1_000_000
            for (id, at) in wakes where at <= now.monotonic {
                wakes[id] = nil
                guard let client = clients[id] else { continue }
                run(client) { client.machine.woken(at: self.now, $0) }
            }
            settle()
        }
        now.wall += (end - now.monotonic) / 1_000_000
        now.monotonic = end
        perform([.tick])
        settle()
    }

    // MARK: Running

    var pendingJobs: [IRCJob] = []
    /// While set, jobs are gathered and not performed: the commit takes its time.
    var isStoreSlow = false
    /// Whether jobs that arrive together go through the pipeline in two batches.
    var pipelines = true
    /// Envelopes that the vault was asked to open.
    var opens = 0
    /// The store refuses the next batch that holds an envelope to be opened.
    var failsNextOpen = false

    func run(_ client: Client, _ event: (MachineOutput) -> Void) {
        event(output)
        let upstream = lines(output.upstream)
        take(output, for: client)
        for line in upstream {
            if let front, let connection = client.front {
                front.run(connection) {
                    connection.machine.fromDownstream(ByteBuffer(string: line + "\r\n"), at: front.now, $0)
                }
            } else {
                backend.take(client.id, line)
            }
        }
    }

    private func take(_ output: MachineOutput, for client: Client) {
        client.read += lines(output.downstream)
        client.commands += output.commands
        for sequence in output.delivered where !diesBeforeSockets {
            journal.insert(sequence)
            pendingJobs.append(.delivered(sequences: [sequence]))
        }
        if let wakeAt = output.wakeAt { wakes[client.id] = min(wakes[client.id] ?? wakeAt, wakeAt) }
        pendingJobs.append(contentsOf: output.jobs)
        let (closes, loses) = (output.closesDownstream, output.closesUpstream && client.machine.isSuspended)
        output.reset()
        if closes, client.isOpen {
            close(client)
        } else if loses {
            backend.leave(client.id)
            run(client) { client.machine.suspend(at: self.now, $0) }
        }
    }

    /// Bytes as lines. CR LF is one character in Swift, so this looks at bytes.
    private func lines(_ bytes: ByteBuffer) -> [String] {
        bytes.readableBytesView.split(separator: 0x0A).map { line in
            String(decoding: line.last == 0x0D ? line.dropLast() : line, as: UTF8.self)
        }
    }

    /// Until nothing moves any more.
    func settle() {
        while ([self] + neighbours).reduce(false, { $1.moves() || $0 }) {}
    }

    /// Lets happen what is under way; false where nothing is.
    private func moves() -> Bool {
        var isMoving = false
        for id in backend.people.keys.sorted() {
            guard let client = clients[id], let inbox = backend.people[id]?.inbox, !inbox.isEmpty else { continue }
            backend.people[id]?.inbox = []
            isMoving = true
            if client.isDirect {
                client.read += inbox
            } else {
                let bytes = ByteBuffer(string: inbox.map { $0 + "\r\n" }.joined())
                run(client) { client.machine.fromUpstream(bytes, at: self.now, $0) }
            }
        }
        for client in clients.values.sorted(by: { $0.id < $1.id }) {
            guard let connection = client.front, !connection.read.isEmpty else { continue }
            let bytes = ByteBuffer(string: connection.read.map { $0 + "\r\n" }.joined())
            connection.read = []
            isMoving = true
            run(client) { client.machine.fromUpstream(bytes, at: self.now, $0) }
        }
        if !pendingJobs.isEmpty, !isStoreSlow {
            let jobs = pendingJobs
            pendingJobs = []
            isMoving = true
            perform(jobs)
        }
        return isMoving
    }

    private func perform(_ jobs: [IRCJob]) {
        opens += Self.opens(jobs)
        // The second half is prepared while the first one is being committed.
        var limit = pipelines ? jobs.count - jobs.count / 2 : jobs.count
        var waiting = jobs[...]
        var groups: PreparedCommit?
        // Envelopes in the open batch, and in the one that is being committed.
        var (ahead, underWay) = (0, 0)
        repeat {
            let next = Array(waiting.prefix(min(limit, pipeline.room(for: waiting[...]))))
            waiting.removeFirst(next.count)
            limit = .max
            ahead += Self.opens(next)
            pipeline.prepare(next, now: now)
            if let begun = groups {
                if failsNextOpen, underWay > 0 {
                    failsNextOpen = false
                    store.failNextCommit()
                }
                groups = pipeline.ended(store.checkedOutcome(of: begun), now: now)
            } else {
                groups = pipeline.close(now: now)
            }
            if groups != nil { (ahead, underWay) = (0, ahead) }
            answer(pipeline.settle(now: now).replies)
        } while !waiting.isEmpty || groups != nil || pipeline.openJobs > 0
    }

    private static func opens(_ jobs: [IRCJob]) -> Int {
        jobs.count {
            if case .open = $0 { true } else { false }
        }
    }

    private func answer(_ replies: IRCParticipants.Replies) {
        for reply in replies {
            guard let client = clients.values.first(where: { $0.machine.id == reply.connection }) else { continue }
            run(client) { client.machine.answered(reply.reply, at: self.now, $0) }
        }
    }

    /// Every line that the backend has seen.
    var canary: String { backend.seen.joined(separator: "\n") }
}

extension IRCEnvironment {
    /// The peers of a sidecar; nil in a gateway in front.
    var peers: PeerCache? {
        switch role {
        case .front: nil
        case .sidecar(let peers): peers
        }
    }

    /// The published devices of a gateway in front; nil in a sidecar.
    var directory: DirectoryCache? {
        switch role {
        case .front(let directory): directory
        case .sidecar: nil
        }
    }
}
