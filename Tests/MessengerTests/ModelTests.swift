import Foundation
import Testing

/// People with several devices over a server with faults, against a plain record of who may read what.
@Suite struct ModelTests {
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil
    /// Those that have found a defect are kept.
    private static let seeds: [UInt64] = isLong ? Array(1...1000) : Array(1...12) + [979]

    @Test(arguments: seeds) func allDevicesConvergeAndNobodyElseReads(_ seed: UInt64) throws {
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
