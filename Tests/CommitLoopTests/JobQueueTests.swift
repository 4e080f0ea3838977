import CommitLoop
import TestKit
import Testing

@Suite struct JobQueueTests {
    @Test func arraysAreTakenAsTheyCame() {
        var queue = JobQueue<Int>()
        queue.append([1, 2, 3])
        queue.append([])
        queue.append([4])
        #expect(queue.count == 4 && !queue.isEmpty)
        let all = queue.take(atMost: 4)
        #expect(all == [[1, 2, 3], [4]])
        #expect(queue.isEmpty)
        let none = queue.take(atMost: 4)
        #expect(none.isEmpty)
    }

    @Test func aLimitDividesAnArray() {
        var queue = JobQueue<Int>()
        queue.append([1, 2, 3])
        queue.append([4, 5])
        let first = queue.take(atMost: 2)
        let second = queue.take(atMost: 2)
        let rest = queue.take(atMost: 2)
        #expect(first == [[1, 2]] && second == [[3], [4]] && rest == [[5]])
        #expect(queue.isEmpty)
    }

    @Test func theFirstArrayIsTakenAsFarAsItsJobsMay() {
        var queue = JobQueue<Int>()
        queue.append([1, 2, 3])
        queue.append([4])
        let none = queue.takeFirst { _ in 0 }
        let two = queue.takeFirst { $0.prefix { $0 < 3 }.count }
        let third = queue.takeFirst { $0.count }
        #expect(none.isEmpty && two == [1, 2] && third == [3])
        #expect(queue.count == 1)
        queue.removeAll()
        #expect(queue.isEmpty)
    }

    /// Against an array that does the same.
    @Test(arguments: 1...20 as ClosedRange<UInt64>) func jobsKeepTheirOrder(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var (queue, jobs, next) = (JobQueue<Int>(), [Int](), 0)
        for _ in 0..<500 {
            if Bool.random(using: &random) {
                let new = Array(next..<next + Int.random(in: 0...5, using: &random))
                next += new.count
                queue.append(new)
                jobs += new
            } else if Bool.random(using: &random) {
                let limit = Int.random(in: 0...12, using: &random)
                let taken = queue.take(atMost: limit)
                #expect(Array(taken.joined()) == Array(jobs.prefix(limit)) && !taken.contains([]))
                jobs.removeFirst(min(limit, jobs.count))
            } else {
                let limit = Int.random(in: 0...3, using: &random)
                let taken = queue.takeFirst { min($0.count, limit) }
                #expect(taken == Array(jobs.prefix(taken.count)) && taken.count <= limit)
                #expect(limit == 0 || jobs.isEmpty || !taken.isEmpty)
                jobs.removeFirst(taken.count)
            }
            #expect(queue.count == jobs.count && queue.isEmpty == jobs.isEmpty)
        }
    }
}
