import StorePort
import Synchronization
import Testing

/// The store of a commit loop, whose reads wait for the commit under way.
@Suite struct OrderedStoreTests {
    /// What runs before a read is called as directly by the last of many reads as by the first.
    @Test func manyReadsDoNotWrapTheWait() throws {
        let base = InMemoryStore()
        let store = OrderedStore(base, by: try base.epochs())
        // The place of a local variable on the stack, in bytes.
        let places = Mutex<[UInt]>([])
        store.beforeReads {
            var local: UInt8 = 0
            let place = withUnsafeMutablePointer(to: &local) { UInt(bitPattern: $0) }
            places.withLock { $0.append(place) }
        }
        for _ in 0..<1000 { _ = store.store }
        let seen = places.withLock { $0 }
        #expect(seen.count == 1000)
        #expect(Set(seen).count == 1, "the stack of the last call is \(seen[0] &- seen[999]) bytes deeper")
    }
}
