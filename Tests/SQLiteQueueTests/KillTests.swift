import Foundation
import Glibc
import PeerKit
import QueueConformance
import RequestQueue
import SQLiteQueue
import TestKit
import TestThreads
import Testing

/// A process that commits is killed, again and again, and the next one goes on with what it has left.
@Suite(.blocking, .serialized) struct KillTests {
    private static let rounds = ProcessInfo.processInfo.environment["PAWL_LONG"] == nil ? 30 : 300

    @Test func nothingAcknowledgedIsLostAndNothingIsHalf() throws {
        let place = try QueuePlace()
        let program = try PawlProcess.builtProgram("QueueVictim")
        var random = SeededGenerator(seed: 5)
        var committed: UInt64 = 0
        var waited: UInt64 = 0
        for round in 0..<Self.rounds {
            let victim = try ChildProcess(program, [place.path])
            // Killed while it opens, or after some batches; at any place in one.
            let patience = Int.random(in: 0...9, using: &random) == 0 ? 0 : Int.random(in: 1...30, using: &random)
            if patience > 0 {
                waited += 1
                try eventually("an acknowledged batch in round \(round)", every: .milliseconds(1)) {
                    victim.stdout.contains("\n") || !victim.isRunning
                }
            }
            usleep(UInt32.random(in: 0...30_000, using: &random) * UInt32(patience) / 30)
            #expect(victim.kill(SIGKILL), "it ended by itself: \(victim.stderr)")
            try victim.waitForExit()
            let acknowledged = UInt64(victim.stdout.split(separator: "\n").count)
            let contents = try place.open().load()
            let batches = contents.highest / 8
            // One more than was said may be there: it was killed before it could say so.
            #expect(batches == committed + acknowledged || batches == committed + acknowledged + 1)
            expectWhole(contents, batches: batches, "round \(round)")
            committed = batches
        }
        #expect(committed >= waited && waited > UInt64(Self.rounds) / 2)
    }

    /// As the last batch of so many has left it.
    private func expectWhole(_ contents: QueueContents, batches: UInt64, _ comment: Comment) {
        #expect(contents.highest % 8 == 0, comment)
        #expect(contents.unreadable.isEmpty, comment)
        let finished = batches > 2 ? (batches - 2) * 8 : 0
        #expect(contents.finished.map(\.request.id) == Array(0..<finished).map { $0 + 1 }, comment)
        #expect(contents.undelivered.count == Int(finished), comment)
        #expect(contents.requests.map(\.id) == Array(finished..<batches * 8).map { $0 + 1 }, comment)
        let underWay = contents.requests.filter { $0.state == .inFlight }.map(\.id)
        #expect(underWay == contents.requests.map(\.id).filter { $0 <= (max(batches, 1) - 1) * 8 }, comment)
    }
}
