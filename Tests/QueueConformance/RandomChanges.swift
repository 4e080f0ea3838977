// Changes that no queue would make, and all that it would, under a seed.

package import RequestQueue
package import TestKit
package import Testing

/// Makes changes on a few hundred requests at a time, so that most of them meet something.
package struct RandomChanges {
    package var random: SeededGenerator
    private var nextID: UInt64 = 1
    private var time: Int64 = 10_000

    package init(seed: UInt64) { random = SeededGenerator(seed: seed) }

    /// A transaction of up to so many changes.
    package mutating func batch(upTo limit: Int = 40) -> [QueueChange] {
        (0..<Int.random(in: 1...limit, using: &random)).map { _ in change() }
    }

    package mutating func number(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &random) }

    /// A request that there may be.
    package mutating func id() -> UInt64 { nextID - UInt64.random(in: 1...min(300, nextID), using: &random) }

    /// One of few, so that some are the right ones.
    private mutating func lease() -> UInt64 { UInt64.max - UInt64.random(in: 0...2, using: &random) }

    private mutating func wait() -> QueueChange.Wait {
        QueueConformance.wait(
            time + Int64(number(0...99)), attempts: number(0...9), crashes: number(0...3), doubts: number(0...3),
            cause: number(0...1) == 0 ? nil : "refused \(number(0...9))")
    }

    private mutating func outcome() -> RequestOutcome {
        let body = (0..<number(0...20)).map { UInt8($0) }
        return switch number(0...3) {
        case 0:
            RequestOutcome(.failure(status: number(0...1) == 0 ? nil : 500), cause: "no \(number(0...9))", body: body)
        case 1: RequestOutcome(.aborted, cause: "cancelled")
        default: RequestOutcome(.success(status: 200 + number(0...9)), headers: [.init("n", "\(time)")], body: body)
        }
    }

    private mutating func change() -> QueueChange {
        time += Int64(number(0...5))
        switch number(0...99) {
        case 0..<25:
            let id = nextID
            nextID += UInt64(number(1...2))
            guard number(0...9) == 0 else { return QueueConformance.insert(id) }
            let lease = lease()
            return QueueConformance.insert(
                QueueConformance.request(id) { request in
                    request.setProgress(
                        state: .inFlight, attempts: 1, crashes: 0, doubts: 0, lease: lease, notBefore: 0, isHeld: false,
                        cause: nil, size: 300)
                })
        case 25..<48: return .lease(id: id(), lease: lease())
        case 48..<58: return .requeue(id: id(), lease: lease(), wait())
        case 58..<78:
            let lease = number(0...4) == 0 ? nil : lease()
            let keeping: QueueChange.Keeping = [.result, .response, .delivery, .delivery][number(0...3)]
            return .finish(id: id(), lease: lease, outcome: outcome(), keeping: keeping, at: time)
        case 78..<81: return .redeliver(id: id(), times: number(1...3))
        case 81..<84: return .handled(id: id())
        case 84..<86: return .forgetResponse(id: id())
        case 86:
            return .session(tenant: "t\(number(0...5))", sealed: number(0...2) == 0 ? nil : [UInt8(number(0...255))])
        case 87: return .quarantine(id: id(), cause: "It cannot be read.", at: time)
        case 88..<91:
            let reference = EntityReference(type: "m", local: "\(number(0...40))")
            return .map(
                IdentifierMapping(tenant: "t\(number(0...1))", reference: reference, remote: "r\(number(0...999))"),
                at: time)
        case 91..<93: return .hold(id: id(), number(0...1) == 0, at: time)
        case 93:
            let id = id()
            let request = QueueConformance.request(id) { $0.metadata = [UInt8(number(0...255))] }
            return .rewrite(id: id, form: RequestForm.encode(request))
        case 94..<97: return .revive(id: id(), at: time)
        case 97..<99: return .remove(id: id())
        default:
            return .prune(
                before: time - Int64(number(0...1000)), below: number(0...1) == 0 ? .max : id())
        }
    }
}

extension QueueConformance {
    /// Whether two stores show the same.
    package static func expectEqual(
        _ one: any QueueStore, _ other: any QueueStore, _ comment: Comment,
        _ location: SourceLocation = #_sourceLocation
    ) throws {
        let (first, second) = (try one.load(), try other.load())
        #expect(first.requests == second.requests, comment, sourceLocation: location)
        #expect(first.unreadable == second.unreadable, comment, sourceLocation: location)
        #expect(first.mappings == second.mappings, comment, sourceLocation: location)
        #expect(first.undelivered == second.undelivered, comment, sourceLocation: location)
        #expect(first.finished == second.finished, comment, sourceLocation: location)
        #expect(first.sessions == second.sessions, comment, sourceLocation: location)
        #expect(first.highest == second.highest, comment, sourceLocation: location)
        let rows = try all(one)
        #expect(rows == (try all(other)), comment, sourceLocation: location)
        // The twin looks for a token row by row.
        for row in rows.shuffled().prefix(40) {
            #expect(try one.request(row.token) == other.request(row.token), comment, sourceLocation: location)
            #expect(try one.outcome(row.token) == other.outcome(row.token), comment, sourceLocation: location)
        }
        for states in RequestState.allCases.map({ [$0] }) + [[.pending, .done], [.inFlight, .dead, .cancelled]] {
            let after = UInt64(rows.count / 2)
            #expect(
                try one.requests(states: states, after: after, limit: 7)
                    == other.requests(states: states, after: after, limit: 7), comment, sourceLocation: location)
        }
    }
}
