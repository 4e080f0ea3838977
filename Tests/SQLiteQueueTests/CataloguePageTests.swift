import PeerKit
import SQLiteQueue
import TestKit
import TestThreads
import Testing

/// The catalogue of the library has one line of code.
@Suite(.blocking) struct CataloguePageTests {
    @Test func theLineOfThePageCompiles() throws {
        let scratch = try ScratchDirectory()
        let folder = scratch.path
        let store = try SQLiteQueueStore(path: folder + "/queue.sqlite")
        withExtendedLifetime(store) {}
        let examples = try Catalogue(of: "SQLiteQueue", file: #filePath).missing(
            in: "Tests/SQLiteQueueTests/CataloguePageTests.swift")
        #expect(examples.blocks.isEmpty && examples.count == 1, "\(examples)")
    }
}
