// The participants of these tests: counters, wheels and numbers. They use all of the commit loop and nothing else.
//
// A counter is a record, restored from the store by the loop. A wheel is a row that units share, stored as a session and
// never rolled back in memory. The last number is rolled back by the units; its row is the end of a batch.

import CommitLoop
import Envelope
import Protection
import RequestQueue
import StorePort
import Testing

/// One step of a job.
enum Step: Equatable, Sendable {
    /// Adds to a counter and writes its record.
    case add(String, Int, RecordKind = .blob)
    /// Removes a counter and its record.
    case remove(String, RecordKind = .blob)
    /// Takes the next number.
    case number
    /// Turns a wheel, which is a shared row.
    case turn(Int)
    /// Writes a row under an old fence: the store refuses the unit.
    case stale
    /// Replies to a connection, from a completion or from a rollback.
    case notify(UInt64)
    /// Replies with what the store holds of a counter when the completion runs.
    case look(String)
    /// Cancels the job. The steps after it count.
    case cancel
    /// Sends no reply of the job's own.
    case silent
}

/// A job: its connection, which is also its name in the journal, and its steps.
struct CounterJob: Sendable {
    var id: UInt64
    var steps: [Step]
    var lookahead = Lookahead.repeated
}

/// State over a store, with a journal of the calls that the loop makes.
struct Counters: Participants {
    typealias Job = CounterJob
    typealias Reply = String
    typealias SharedRow = Int
    typealias Closing = Int

    /// The name of a counter.
    struct Name: Hashable, CustomStringConvertible {
        var kind: RecordKind
        var text: ExactText

        init(_ text: String, _ kind: RecordKind) { (self.text, self.kind) = (ExactText(text), kind) }

        var description: String { kind == .blob ? text.text : "\(text.text)/\(kind)" }
    }

    struct Wheel: Equatable {
        var turns = 0
        var fence: UInt64 = 0
    }

    struct CannotSeal: Error {}

    /// A session that is in the store under this fence.
    static let taken = SessionRow(id: session(0), fence: 1, sealedState: [])
    /// The kinds that counters have.
    static let kinds: [RecordKind] = [.blob, .mailboxEntry]

    let store: OrderedStore
    private(set) var values: [Name: Int] = [:]
    /// The wheels in memory. Others are read when they are turned.
    private(set) var wheels: [Int: Wheel] = [:]
    private(set) var lastNumber = 0
    /// The number that the last ended batch writes, and the one before it.
    private var writtenNumber = 0
    private var writtenBefore = 0
    private var dirty: Set<Int> = []
    /// Makes ``sharedChanges()`` throw.
    var cannotSeal = false
    /// Makes the store refuse the changes of ``close(_:now:)``.
    var closesStale = false
    /// The connection that is told of the end of each batch.
    var listener: ConnectionID?
    /// The calls of the loop, in their order, with the reads of the store.
    var journal: [String] = []

    init(_ store: InMemoryStore) throws { self.store = OrderedStore(store, by: try store.epochs()) }

    /// Refused only if the store is divided; that of most tests is not, and checks nothing.
    func placement(of job: CounterJob) -> Placement { .shard(Shard(UInt8(truncatingIfNeeded: job.id))) }
    func lookahead(of job: CounterJob) -> Lookahead { job.lookahead }

    mutating func refuse(_ job: CounterJob, now: Timestamp) -> Replies {
        journal.append("refuse \(job.id)")
        return [.init(connection: ConnectionID(job.id), reply: "refused")]
    }

    static func session(_ wheel: Int) -> SessionID {
        SessionID(owner: DeviceID(UInt64(wheel)), peer: DeviceID(.max), in: .only)
    }

    mutating func prepare(_ job: CounterJob, _ unit: inout Unit, now: Timestamp) {
        let connection = ConnectionID(job.id)
        journal.append("prepare \(job.id)")
        unit.failure = (connection, "failed")
        var outcome = ["done"]
        var isSilent = false
        for (place, step) in job.steps.enumerated() {
            let label = "\(job.id).\(place)"
            switch step {
            case .add(let text, let amount, let kind):
                let value = (values[Name(text, kind)] ?? 0) + amount
                outcome.append("\(Name(text, kind))=\(value)")
                set(Name(text, kind), to: value, label, &unit)
            case .remove(let text, let kind):
                outcome.append("\(Name(text, kind))=nil")
                set(Name(text, kind), to: nil, label, &unit)
            case .number:
                let before = lastNumber
                lastNumber += 1
                outcome.append("#\(lastNumber)")
                unit.onRollback { state, cause, _, _ in
                    state.journal.append("take back \(label) \(cause)")
                    // Later units of a committed batch have numbers above this one.
                    if cause != .unit { state.lastNumber = before }
                }
            case .turn(let number):
                unit.shared.append(number)
                outcome.append("wheel \(number)=\(turn(number))")
            case .stale: unit.changes.append(.putSession(Self.taken))
            case .notify(let other): notify(ConnectionID(other), label, &unit)
            case .look(let text):
                unit.onCommit { state, replies, _ in
                    state.journal.append("complete \(label)")
                    let value = (try? state.store.record(.blob, name: text)).flatMap { Self.number($0.value) }
                    let shown = value.map { "\($0)" } ?? "nil"
                    replies.append(.init(connection: connection, reply: "stored \(text)=\(shown)"))
                }
            case .cancel:
                journal.append("cancel \(label)")
                unit.cancel(in: &self, now: now)
                unit.failure = (connection, "cancelled and failed")
                outcome = ["cancelled"]
            case .silent: isSilent = true
            }
        }
        if !isSilent { unit.reply = (connection, outcome.joined(separator: " ")) }
    }

    private mutating func set(_ name: Name, to value: Int?, _ label: String, _ unit: inout Unit) {
        let before = values[name]
        values[name] = value
        if let value {
            unit.changes.append(.putRecord(.init(kind: name.kind, name: name.text.text, value: Self.bytes(value))))
        } else {
            unit.changes.append(.removeRecord(name.kind, name: name.text.text))
        }
        unit.onRollback { state, cause, _, _ in
            state.journal.append("take back \(label) \(cause)")
            // After a commit the loop restores the record.
            if cause == .cancelled { state.values[name] = before }
        }
    }

    private mutating func turn(_ number: Int) -> Int {
        var wheel = wheels[number] ?? storedWheel(number)
        wheel.turns += 1
        wheels[number] = wheel
        dirty.insert(number)
        return wheel.turns
    }

    private mutating func storedWheel(_ number: Int) -> Wheel {
        journal.append("read wheel \(number)")
        guard let row = try? store.session(Self.session(number)) else { return Wheel() }
        return Wheel(turns: Self.number(row.sealedState) ?? 0, fence: row.fence)
    }

    private func notify(_ other: ConnectionID, _ label: String, _ unit: inout Unit) {
        unit.onCommit { state, replies, now in
            state.journal.append("complete \(label)")
            replies.append(.init(connection: other, reply: "\(label) committed at \(now.wall)"))
        }
        unit.onRollback { state, cause, replies, now in
            state.journal.append("take back \(label) \(cause)")
            replies.append(.init(connection: other, reply: "\(label) taken back at \(now.wall): \(cause)"))
        }
    }

    mutating func close(_: inout [Unit], now: Timestamp) -> (closing: Int, group: ChangeGroup) {
        journal.append("close")
        writtenBefore = writtenNumber
        guard lastNumber != writtenNumber else { return (lastNumber, ChangeGroup([], in: .several)) }
        writtenNumber = lastNumber
        let row = RecordRow(kind: .sent, name: "number", value: Self.bytes(lastNumber))
        let changes: [StoreChange] = closesStale ? [.putRecord(row), .putSession(Self.taken)] : [.putRecord(row)]
        return (lastNumber, ChangeGroup(changes, in: .several))
    }

    mutating func sharedChanges() throws -> [(row: Int, group: ChangeGroup)] {
        journal.append("seal \(dirty.sorted())")
        if cannotSeal { throw CannotSeal() }
        defer { dirty = [] }
        return dirty.sorted().compactMap { number in
            wheels[number]?.fence += 1
            guard let wheel = wheels[number] else { return nil }
            let state = Self.bytes(wheel.turns)
            let id = Self.session(number)
            let row = SessionRow(id: id, fence: wheel.fence, sealedState: state)
            return (number, ChangeGroup([.putSession(row)], in: .shard(id.shard)))
        }
    }

    mutating func settled(_ closing: Int, isCommitted: Bool, now: Timestamp) -> Replies {
        guard let listener else { return [] }
        return [.init(connection: listener, reply: "number \(closing) settled \(isCommitted)")]
    }

    mutating func closed(_ closing: Int, isCommitted: Bool, now: Timestamp) {
        journal.append("closed \(isCommitted)")
        if !isCommitted { writtenNumber = writtenBefore }
    }

    mutating func drop(_ rows: some Sequence<Int>) {
        let rows = rows.sorted()
        if !rows.isEmpty { journal.append("drop \(rows)") }
        for row in rows {
            wheels[row] = nil
            dirty.remove(row)
        }
    }

    mutating func restore(_ kind: RecordKind, name: String) {
        journal.append("restore \(Name(name, kind))")
        values[Name(name, kind)] = (try? store.record(kind, name: name)).flatMap { Self.number($0.value) }
    }

    static func bytes(_ number: Int) -> [UInt8] { Array("\(number)".utf8) }

    static func number(_ bytes: [UInt8]) -> Int? { Int(String(decoding: bytes, as: UTF8.self)) }
}

/// The loop over a new store, driven as a thread does it.
struct Loop {
    /// What fails for a whole batch.
    enum Fault: CaseIterable, Sendable {
        case none
        /// The commit throws.
        case store
        /// ``Counters/sharedChanges()`` throws.
        case sealing
    }

    let store: InMemoryStore
    var state: Counters

    init(_ sharding: Sharding = .single) throws {
        store = InMemoryStore(sharding)
        state = try Counters(store)
        try write([.putSession(Counters.taken)])
    }

    /// Commits changes of another process.
    func write(_ changes: [StoreChange]) throws { try #require(try store.commit([changes]) == [nil]) }

    /// Writes a wheel under a higher fence, like a process that takes it over.
    func takeOver(wheel number: Int, turns: Int) throws {
        let fence = try store.session(Counters.session(number))?.fence ?? 0
        let state = Counters.bytes(turns)
        try write([.putSession(SessionRow(id: Counters.session(number), fence: fence + 9, sealedState: state))])
    }

    /// Prepares at 1 and completes at 2.
    ///
    /// - Returns: the replies, each with its connection.
    mutating func run(jobs: [CounterJob], fault: Fault = .none) -> [String] {
        state.journal = []
        state.cannotSeal = fault == .sealing
        let batch = state.prepare(jobs, now: Timestamp(monotonic: 1, wall: 1))
        var committed: [StoreError?]?
        if batch.isEmpty {
            committed = batch.allCommitted
        } else {
            if fault == .store { store.failNextCommit() }
            committed = try? store.commit(batch.groups)
        }
        return Self.texts(state.complete(batch, committed: committed, now: Timestamp(monotonic: 2, wall: 2)))
    }

    /// Runs jobs with the names 1, 2 and so on.
    mutating func run(_ jobs: [Step]..., fault: Fault = .none) -> [String] {
        run(jobs: Self.jobs(jobs), fault: fault)
    }

    static func jobs(_ steps: [[Step]]) -> [CounterJob] {
        zip(1..., steps).map { CounterJob(id: $0, steps: $1) }
    }

    static func texts(_ replies: Counters.Replies) -> [String] { replies.map { "\($0.connection.value): \($0.reply)" } }

    /// The counters, the wheels and the last number in the store.
    func stored() throws -> [String] {
        let counters = try Counters.kinds.flatMap { kind in
            try store.records(kind).map { row in
                "\(Counters.Name(row.name, kind))=\(String(decoding: row.value, as: UTF8.self))"
            }
        }
        let wheels = try (1...9).compactMap { number in
            try store.session(Counters.session(number)).map {
                "wheel \(number)=\(String(decoding: $0.sealedState, as: UTF8.self))"
            }
        }
        let number = try store.record(.sent, name: "number").flatMap { Counters.number($0.value) } ?? 0
        return counters.sorted() + wheels + ["#\(number)"]
    }

    /// The same in memory. A wheel that is not in memory is the one in the store.
    func inMemory() throws -> [String] {
        let counters = state.values.map { "\($0.key)=\($0.value)" }
        let wheels = try (1...9).compactMap { number in
            if let wheel = state.wheels[number] { return "wheel \(number)=\(wheel.turns)" }
            return try store.session(Counters.session(number)).map {
                "wheel \(number)=\(String(decoding: $0.sealedState, as: UTF8.self))"
            }
        }
        return counters.sorted() + wheels + ["#\(state.lastNumber)"]
    }

    /// Expects memory and store to hold the same.
    func expect(_ contents: [String], sourceLocation: SourceLocation = #_sourceLocation) throws {
        #expect(try stored() == contents, "the store", sourceLocation: sourceLocation)
        #expect(try inMemory() == contents, "memory", sourceLocation: sourceLocation)
    }
}
