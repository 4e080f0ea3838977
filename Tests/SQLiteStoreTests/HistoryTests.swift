import Envelope
import GatewayCore
import SQLiteStore
import StoreConformance
import Testing

/// What was said to a backend that keeps it, over both stores.
@Suite struct HistoryTests {
    @Test(arguments: HistoryConformance.checks)
    func memory(_ check: HistoryConformance.Check) throws {
        let store = InMemoryStore()
        try check.run { store }
    }

    @Test(arguments: HistoryConformance.checks)
    func sqlite(_ check: HistoryConformance.Check) throws {
        let scratch = Scratch()
        try check.run { try scratch.open() }
    }

    /// What a killed process leaves between the commit and the answer: the files as they are while the store is open.
    @Test func whatWasCommittedIsReadAfterAKill() throws {
        let (scratch, copy) = (Scratch(), Scratch())
        let world = try HistoryWorld { try scratch.open() }
        var said = [try world.write("one")]
        let job = world.job(Array("two".utf8), by: said[0].sender, in: said[0].conversation)
        let batch = world.perform([.write(job)])
        run("cp", "-a", scratch.data, copy.data)
        let before = Scratch()
        run("cp", "-a", scratch.data, before.data)
        _ = try world.store.commit(batch.groups)
        run("rm", "-rf", copy.data)
        run("cp", "-a", scratch.data, copy.data)
        // The answer that nobody has had any more.
        let replies = world.settle(batch, batch.groups.map { _ in nil })
        said.append(try #require(WrittenMessage(job, replies.first)))
        let after = try HistoryWorld { try copy.open() }
        #expect(try after.read(said) == said.map(\.outcome))
        let next = try after.write("three")
        #expect(try after.read(said + [next]) == said.map(\.outcome) + [next.outcome])
        // Killed before the commit, nothing of it was said.
        let without = try HistoryWorld { try before.open() }
        #expect(try without.read(said)[0] == said[0].outcome)
        #expect(try without.read([said[1]]) != [said[1].outcome])
    }
}
