// Jobs that wait for the commit loop. Each array of jobs is kept as it was submitted: nothing is copied or moved until its
// jobs are prepared.

/// Jobs in their order, in the arrays in which they were submitted.
package struct JobQueue<Job> {
    /// Those before ``first`` are empty.
    private var arrays: [[Job]] = []
    /// The place of the first array with jobs.
    private var first = 0
    /// How many of its jobs are taken already.
    private var taken = 0
    /// The number of jobs.
    package private(set) var count = 0

    package init() {}

    package var isEmpty: Bool { count == 0 }

    package mutating func append(_ jobs: [Job]) {
        guard !jobs.isEmpty else { return }
        arrays.append(jobs)
        count += jobs.count
    }

    /// Removes and returns the first jobs.
    package mutating func take(atMost limit: Int) -> [[Job]] {
        var result: [[Job]] = []
        var room = limit
        while room > 0, !isEmpty {
            let jobs = takeFirst { min($0.count, room) }
            room -= jobs.count
            result.append(jobs)
        }
        return result
    }

    /// Removes and returns jobs of the first array.
    ///
    /// - Parameter number: returns how many of the jobs to take, from the first one on.
    package mutating func takeFirst(_ number: (ArraySlice<Job>) -> Int) -> [Job] {
        guard !isEmpty else { return [] }
        let jobs = arrays[first][taken...]
        let number = number(jobs)
        guard number > 0 else { return [] }
        count -= number
        guard number == jobs.count else {
            taken += number
            return Array(jobs.prefix(number))
        }
        defer { removeFirst() }
        return taken == 0 ? arrays[first] : Array(jobs)
    }

    private mutating func removeFirst() {
        arrays[first] = []
        (first, taken) = (first + 1, 0)
        // Few removals for many arrays.
        guard first * 2 >= arrays.count else { return }
        arrays.removeFirst(first)
        first = 0
    }

    /// Removes all jobs.
    package mutating func removeAll() { self = JobQueue() }
}
