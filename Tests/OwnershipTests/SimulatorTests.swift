import Foundation
import Testing

/// Several gateways under faults, one seed after the other. A seed that fails is printed, and repeats its run.
@Suite struct SimulatorTests {
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil
    private static let seedsOfPart = isLong ? 1000 : 50
    private static let parts = isLong ? 100 : 4
    /// Ours: seeds within which each mutant has to be caught; measured: within forty.
    private static let mutantSeeds: UInt64 = 200

    @Test(arguments: 0..<parts) func gatewaysKeepWhatTheyPromise(_ part: Int) {
        var counts = Simulation.Counts()
        for seed in part * Self.seedsOfPart..<(part + 1) * Self.seedsOfPart {
            let simulation = Simulation(seed: UInt64(seed))
            let breach = simulation.run()
            #expect(breach == nil, "seed \(seed)")
            counts.add(simulation.counts)
        }
        // The faults have happened.
        let all = [
            counts.takes, counts.unknown, counts.fenced, counts.remote, counts.texts, counts.rises, counts.rollbacks,
            counts.kills, counts.pauses, counts.notSent, counts.shownAgain,
        ]
        #expect(all.allSatisfy { $0 > 0 }, "\(counts)")
    }

    @Test(arguments: Mutant.allCases) func everyMutantIsCaught(_ mutant: Mutant) {
        let caught = (0..<Self.mutantSeeds).first { Simulation(seed: $0, mutant: mutant).run() != nil }
        #expect(caught != nil)
    }

    @Test func aSeedRepeatsItsRun() {
        let (one, other) = (Simulation(seed: 7), Simulation(seed: 7))
        #expect(one.run() == other.run())
        #expect(one.steps == other.steps && one.counts.takes == other.counts.takes)
    }
}
