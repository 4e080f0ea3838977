import StorePort
import TestKit
import Testing

/// Random jobs with random failures, compared with a model after each batch.
@Suite struct RandomJobTests {
    @Test(arguments: 0..<60 as Range<UInt64>)
    func theLoopAgreesWithTheModel(_ seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var loop = try Loop()
        var model = Model()
        for number in 1...40 {
            let jobs = Loop.jobs((0..<Int.random(in: 0...7, using: &random)).map { _ in Self.steps(&random) })
            let fault: Loop.Fault =
                Int.random(in: 0...3, using: &random) == 0 ? .allCases.randomElement(using: &random) ?? .none : .none
            if Int.random(in: 0...2, using: &random) == 0 {
                let (wheel, turns) = (Int.random(in: 1...3, using: &random), 1000 * number)
                try loop.takeOver(wheel: wheel, turns: turns)
                model.takeOver(wheel: wheel, turns: turns)
            }
            let expected = model.run(jobs, fault: fault)
            let replies = loop.run(jobs: jobs, fault: fault)
            let place: Comment = "seed \(seed), batch \(number), fault \(fault): \(jobs.map(\.steps))"
            try #require(replies == expected, place)
            try #require(try loop.stored() == model.contents(wheels: model.storedWheels), place)
            let wheels = model.storedWheels.merging(model.wheels) { $1 }
            try #require(try loop.inMemory() == model.contents(wheels: wheels), place)
            try #require(loop.state.wheels.mapValues(\.turns) == model.wheels, place)
        }
    }

    private static func steps(_ random: inout SeededGenerator) -> [Step] {
        (0..<Int.random(in: 0...5, using: &random)).map { _ in
            let name = ["a", "b", "c", "d"].randomElement(using: &random) ?? "a"
            let kind = Counters.kinds.randomElement(using: &random) ?? .blob
            switch Int.random(in: 0...15, using: &random) {
            case 0...3: return .add(name, Int.random(in: 1...9, using: &random), kind)
            case 4: return .remove(name, kind)
            case 5...6: return .number
            case 7...9: return .turn(Int.random(in: 1...3, using: &random))
            case 10: return .stale
            case 11...12: return .notify(UInt64.random(in: 90...92, using: &random))
            case 13: return .look(name)
            case 14: return .silent
            default: return .cancel
            }
        }
    }
}

/// The effects of batches on memory, store and replies, without units, rollbacks and reads.
private struct Model {
    /// What a job has added to its unit.
    private struct Outcome {
        var isStale = false
        var rows: [(name: Counters.Name, value: Int?)] = []
        var wheels: Set<Int> = []
        var completions: [(connection: UInt64, text: String, looksAt: Counters.Name?)] = []
        /// The latest first.
        var rollbacks: [(connection: UInt64, text: String)] = []
        var reply: String?
        var failure = "failed"
    }

    /// In memory and in the store.
    private var values: [Counters.Name: Int] = [:]
    private var lastNumber = 0
    private(set) var storedWheels: [Int: Int] = [:]
    /// The wheels in memory. Others are read from the store.
    private(set) var wheels: [Int: Int] = [:]
    /// Wheels in memory that another process has written since they were read.
    private var stale: Set<Int> = []

    mutating func takeOver(wheel: Int, turns: Int) {
        storedWheels[wheel] = turns
        if wheels[wheel] != nil { stale.insert(wheel) }
    }

    /// - Returns: the replies.
    mutating func run(_ jobs: [CounterJob], fault: Loop.Fault) -> [String] {
        var (memory, number) = (values, lastNumber)
        let outcomes = jobs.map { prepare($0, &memory, &number) }
        let turned = outcomes.reduce(into: Set<Int>()) { $0.formUnion($1.wheels) }
        let isEmpty = turned.isEmpty && number == lastNumber && !outcomes.contains { $0.isStale || !$0.rows.isEmpty }
        if fault == .sealing || fault == .store && !isEmpty {
            forget(turned)
            return zip(jobs, outcomes).flatMap { Self.failure(of: $0, $1, "batch") }
        }
        lastNumber = number
        let refused = turned.intersection(stale)
        for wheel in turned.subtracting(refused) { storedWheels[wheel] = wheels[wheel] }
        forget(refused)
        for outcome in outcomes where !outcome.isStale && refused.isDisjoint(with: outcome.wheels) {
            for (name, value) in outcome.rows { values[name] = value }
        }
        var replies: [String] = []
        for (job, outcome) in zip(jobs, outcomes) {
            guard !outcome.isStale, refused.isDisjoint(with: outcome.wheels) else {
                forget(outcome.wheels)
                replies += Self.failure(of: job, outcome, "unit")
                continue
            }
            for (connection, text, looksAt) in outcome.completions {
                let value = looksAt.map { values[$0].map { "\($0)" } ?? "nil" } ?? ""
                replies.append("\(connection): \(text)\(value)")
            }
            if let reply = outcome.reply { replies.append("\(job.id): \(reply)") }
        }
        return replies
    }

    mutating func forget(_ gone: Set<Int>) {
        for wheel in gone { wheels[wheel] = nil }
        stale.subtract(gone)
    }

    private static func failure(of job: CounterJob, _ outcome: Outcome, _ cause: String) -> [String] {
        ["\(job.id): \(outcome.failure)"] + outcome.rollbacks.map { "\($0.connection): \($0.text): \(cause)" }
    }

    private mutating func prepare(
        _ job: CounterJob, _ memory: inout [Counters.Name: Int], _ number: inout Int
    ) -> Outcome {
        let before = (memory, number)
        var outcome = Outcome()
        var words = ["done"]
        for (place, step) in job.steps.enumerated() {
            switch step {
            case .add(let text, let amount, let kind):
                let value = memory[.init(text, kind), default: 0] + amount
                memory[.init(text, kind)] = value
                outcome.rows.append((.init(text, kind), value))
                words.append("\(Counters.Name(text, kind))=\(value)")
            case .remove(let text, let kind):
                memory[.init(text, kind)] = nil
                outcome.rows.append((.init(text, kind), nil))
                words.append("\(Counters.Name(text, kind))=nil")
            case .number:
                number += 1
                words.append("#\(number)")
            case .turn(let wheel):
                let turns = (wheels[wheel] ?? storedWheels[wheel] ?? 0) + 1
                wheels[wheel] = turns
                outcome.wheels.insert(wheel)
                words.append("wheel \(wheel)=\(turns)")
            case .stale: outcome.isStale = true
            case .notify(let other):
                outcome.completions.append((other, "\(job.id).\(place) committed at 2", nil))
                outcome.rollbacks.insert((other, "\(job.id).\(place) taken back at 2"), at: 0)
            case .look(let text):
                outcome.completions.append((job.id, "stored \(text)=", .init(text, .blob)))
            case .cancel:
                (memory, number) = before
                (outcome, words) = (Outcome(wheels: outcome.wheels), ["cancelled"])
                outcome.failure = "cancelled and failed"
            case .silent: break
            }
        }
        if !job.steps.contains(.silent) { outcome.reply = words.joined(separator: " ") }
        return outcome
    }

    func contents(wheels: [Int: Int]) -> [String] {
        values.map { "\($0.key)=\($0.value)" }.sorted()
            + wheels.sorted { $0.key < $1.key }.map { "wheel \($0.key)=\($0.value)" } + ["#\(lastNumber)"]
    }
}
