import Testing

@testable import pawl

/// The program's allocator, as the metrics show it.
@Suite struct AllocatorTests {
    @Test func itCountsWhatTheProgramAllocates() throws {
        #if os(Linux)
            let before = try #require(Allocator.memory)
            let block = [UInt8](repeating: 1, count: 64 << 20)
            let during = try #require(Allocator.memory)
            #expect(block.last == 1)
            // Other tests allocate and free at the same time, but not this much.
            #expect(during.allocated - before.allocated > 32 << 20)
            #expect(during.resident >= during.allocated)
        #else
            #expect(Allocator.memory == nil)
        #endif
    }
}
