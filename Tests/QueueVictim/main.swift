// A process that is killed. What is acknowledged it says on its standard output, a line each.
//
//     QueueVictim PATH         opens a store and commits batches as fast as the disk lets it
//     QueueVictim PATH URL     opens a queue, sends what the last process has left, and appends more
//     QueueVictim PATH URL TEXT    the application of the tutorial, see `Notes.swift`; TEXT may be empty

import Glibc
import RequestQueue
import SQLiteQueue

/// Batch N inserts a few requests, begins those of N - 1, and ends those of N - 2.
func batch(_ number: UInt64) -> [QueueChange] {
    func ids(_ number: UInt64) -> ClosedRange<UInt64> { (number * 8 + 1)...(number * 8 + 8) }
    var changes: [QueueChange] = []
    for id in ids(number) {
        let request = QueuedRequest(
            id: id, token: RequestToken(high: id, low: ~id), tenant: "t", lane: nil,
            payload: .http(
                APIRequestConfig(method: .post, path: "/\(id)", body: .rawData(Array(repeating: 7, count: 300)))),
            creates: [], dependsOn: [], identifiers: nil, idempotencyKey: "\(id)", coalescingKey: nil, timestamp: 1)
        changes.append(.insert(request, form: RequestForm.encode(request)))
    }
    if number >= 1 { changes += ids(number - 1).map { .lease(id: $0, lease: $0) } }
    if number >= 2 {
        let outcome = RequestOutcome(.success(status: 200), body: [1, 2, 3])
        changes += ids(number - 2).map {
            .finish(id: $0, lease: $0, outcome: outcome, keeping: .delivery, at: Int64(number))
        }
    }
    return changes
}

func report(_ number: UInt64) {
    let line = Array("\(number)\n".utf8)
    guard write(1, line, line.count) == line.count else { exit(1) }
}

if CommandLine.arguments.count > 3 {
    try await runNotes(
        file: CommandLine.arguments[1], host: CommandLine.arguments[2], text: CommandLine.arguments[3])
}
if CommandLine.arguments.count > 2 {
    try await appendForEver(to: CommandLine.arguments[2], path: CommandLine.arguments[1], report)
}

let store = try SQLiteQueueStore(path: CommandLine.arguments[1])
var number = try store.load().highest / 8
while true {
    try store.commit(batch(number))
    report(number)
    number += 1
}
