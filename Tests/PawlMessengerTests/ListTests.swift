import Messenger
import Synchronization
import Testing

@testable import PawlMessenger

/// Lists that change.
@Suite struct ListTests {
    /// A read in a batch that is not committed is refused. The list goes on, without another change.
    @Test func aListThatCannotBeReadIsReadAgain() async throws {
        let signals = ChangeSignals()
        let reads = Mutex(0)
        let list = signals.list(.chats) {
            let number = reads.withLock { reads in
                reads += 1
                return reads
            }
            guard number != 2 else { throw MessengerRefusal.notCommitted }
            return number
        }
        var values = list.makeAsyncIterator()
        #expect(await values.next() == 1)
        signals.notify(.chats)
        #expect(await values.next() == 3)
        signals.notify(.chats)
        #expect(await values.next() == 4)
        signals.close()
        #expect(await values.next() == nil)
    }

    @Test func aListEndsWhenItsMessengerIsClosed() async throws {
        let list: AsyncStream<Int> = ChangeSignals().list(.chats) { throw MessengerClosed() }
        for await _ in list { Issue.record("a closed messenger has no list") }
    }
}
