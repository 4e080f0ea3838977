import Foundation
import Testing

/// People with several devices over a server with faults, against a plain record of who may read what.
@Suite struct ModelTests {
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil
    private static let seeds: ClosedRange<UInt64> = isLong ? 1...1000 : 1...12

    /// Defects that are not mended yet, in worlds in which devices go on from earlier copies of their stores.
    private static let restored: Comment =
        "27: a restored device does not know a group that it knew before. 42: keys are read without end."

    @Test(arguments: seeds) func allDevicesConvergeAndNobodyElseReads(_ seed: UInt64) throws {
        guard seed > 12, seed.isMultiple(of: 3) else { return try run(seed) }
        withKnownIssue(Self.restored, isIntermittent: true) { try run(seed) }
    }

    private func run(_ seed: UInt64) throws {
        let world = try ModelWorld(seed: seed, people: 2 + Int(seed % 4), devices: 1 + Int(seed / 4 % 3))
        do {
            for _ in 0..<60 {
                try world.act()
                try world.moveSome()
            }
            try world.settle()
            try world.checkEnd()
        } catch {
            Issue.record("seed \(seed): \(error)\n  \(world.trace.suffix(40).joined(separator: "\n  "))")
        }
    }
}
