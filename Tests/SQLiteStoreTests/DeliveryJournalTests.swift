import Glibc
import StorePort
import Testing

@testable import SQLiteStore

@Suite struct DeliveryJournalTests {
    private let scratch = Scratch()
    private var path: String { scratch.path + "/deliveries.journal" }

    private func journal() throws -> DeliveryJournal { try DeliveryJournal(directory: scratch.path) }

    @Test func remembersTheLast65536() throws {
        let journal = try journal()
        #expect(journal.warning == nil)
        #expect(!journal.contains(0) && !journal.contains(1))
        for sequence in [1, 65_536, 70_000, UInt64(1) << 40 | 5] as [UInt64] {
            journal.mark(sequence)
            #expect(journal.contains(sequence))
        }
        #expect(!journal.contains(2) && !journal.contains(70_000 - 65_536) && !journal.contains(0))
        journal.mark(65_537)
        #expect(journal.contains(65_537) && !journal.contains(1))
    }

    @Test func survivesTheProcess() throws {
        try journal().mark(42)
        let again = try journal()
        #expect(again.warning == nil && again.contains(42) && !again.contains(43))
        #expect(mode(path) == 0o600 && bytes(path).count == 524_288)
    }

    /// What SIGKILL leaves: no unmapping, no sync.
    @Test func isInTheFileAtOnce() throws {
        let journal = try journal()
        journal.mark(3)
        #expect(Array(bytes(path)[24..<32]) == [3, 0, 0, 0, 0, 0, 0, 0])
    }

    @Test(arguments: [[], [1, 2, 3], [UInt8](repeating: 0, count: 524_296), [UInt8](repeating: 7, count: 524_288)])
    func aDamagedFileIsMadeAnew(_ content: [UInt8]) throws {
        write(content, path)
        let journal = try journal()
        #expect(journal.warning == DeliveryJournal.madeAnew(path))
        journal.mark(9)
        #expect(journal.contains(9))
        #expect(try self.journal().warning == nil)
    }
}
