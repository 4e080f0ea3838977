import Envelope
import Protection
import Testing

/// The latches in memory.
@Suite struct LatchTests {
    private let table = LatchTable()
    private let conversations = ["bob", "carol", "dave"].map { ConversationID(.services("alice"), .services($0)) }

    private var counts: [Int] { [table.count, table.count(at: .gateway), table.count(at: .device)] }

    /// A status reads the counts, and never all latches.
    @Test func latchesAreCountedByProtection() {
        #expect(counts == [0, 0, 0] && table.isEmpty)
        for conversation in conversations { table.raise(conversation, to: .gateway) }
        #expect(counts == [3, 3, 0])
        #expect(table.raise(conversations[0], to: .device))
        #expect(!table.raise(conversations[0], to: .gateway) && !table.raise(conversations[1], to: .gateway))
        #expect(counts == [3, 2, 1])
        table.reset(conversations[1])
        table.reset(conversations[1])
        #expect(counts == [2, 1, 1])
        table.forget(.services("alice"))
        #expect(counts == [0, 0, 0] && table.isEmpty)
    }

    /// Rooms, and people of carriers without nicks, have none.
    @Test func anEmptyNameNamesNobody() {
        let (alice, bob) = (conversations[0].first, conversations[0].second)
        table.raise(conversations[0], to: .device)
        table.remember(name: "", of: bob, for: alice)
        #expect(table.peer(named: "", for: alice) == nil && !table.isProtectedName("", for: alice))
        table.remember(name: "nick", of: bob, for: alice)
        #expect(table.peer(named: "nick", for: alice) == bob)
    }
}
