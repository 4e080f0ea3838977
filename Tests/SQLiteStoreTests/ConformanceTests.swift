import StoreConformance
import StorePort
import Synchronization
import Testing

@testable import SQLiteStore

@Suite struct ConformanceTests {
    @Test(arguments: StoreConformance.checks)
    func memory(_ check: StoreConformance.Check) throws { try check.run { InMemoryStore() } }

    @Test(arguments: StoreConformance.checks)
    func undividedMemory(_ check: StoreConformance.Check) throws { try check.run { InMemoryStore(.single) } }

    @Test(arguments: StoreConformance.checks)
    func sqlite(_ check: StoreConformance.Check) throws {
        let scratch = Scratch()
        try check.run { try scratch.open() }
    }

    @Test func everyChangeHasACheck() throws {
        #expect(try StoreConformance.uncheckedChanges { InMemoryStore() }.isEmpty)
    }

    /// Besides the queue's tables, which have a suite of their own.
    @Test func everyTableHasACheck() throws {
        let tables = Mutex(Set<String>())
        for check in StoreConformance.checks {
            let scratch = Scratch()
            try check.run {
                FilledTables(try scratch.open()) { names in tables.withLock { $0.formUnion(names) } }
            }
        }
        let filled = tables.withLock { $0 }
        for table in StoreTable.allCases { #expect(filled.contains(table.rawValue), "no check writes \(table)") }
    }
}

/// A store that reports, after each commit, which tables have rows.
private final class FilledTables: ForwardingStore {
    private let sqlite: SQLiteStore
    private let report: @Sendable ([String]) -> Void

    var store: any Store { sqlite }

    init(_ store: SQLiteStore, _ report: @escaping @Sendable ([String]) -> Void) {
        (sqlite, self.report) = (store, report)
    }

    func commit(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) throws(StoreError) -> [StoreError?] {
        let outcomes = try sqlite.commit(groups, by: epochs)
        let filled = try? sqlite.tables().filter { try sqlite.count(of: $0) > 0 }
        report(filled ?? [])
        return outcomes
    }
}
