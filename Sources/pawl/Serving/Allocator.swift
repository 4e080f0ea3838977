// The memory allocator of the program. On Linux, jemalloc replaces malloc and free of the C library, for all code of the
// process: a message is some hundred small objects, many of which one thread allocates and another frees, and jemalloc does
// that in less time. A hosted message costs 0.87 of the processor time with it, an idle connection 1.01 of the memory
// (`Tests/Benchmarks/RESULTS.md`). Only the program links it; the libraries for apps leave the choice to the app.

#if canImport(CJemalloc)
    import CJemalloc

    /// What jemalloc reports of the process.
    enum Allocator {
        /// Bytes that the program has allocated, and bytes that they take in memory with what the allocator keeps.
        static var memory: (allocated: Int, resident: Int)? {
            // Numbers are those of the last epoch; a new one is the current state.
            var epoch: UInt64 = 1
            guard mallctl("epoch", nil, nil, &epoch, MemoryLayout<UInt64>.size) == 0,
                let allocated = read("stats.allocated"), let resident = read("stats.resident")
            else { return nil }
            return (allocated, resident)
        }

        private static func read(_ name: String) -> Int? {
            var value = 0
            var size = MemoryLayout<Int>.size
            return mallctl(name, &value, &size, nil, 0) == 0 ? value : nil
        }
    }
#else
    /// The allocator of the system, which reports nothing.
    enum Allocator {
        /// Always nil.
        static var memory: (allocated: Int, resident: Int)? { nil }
    }
#endif
