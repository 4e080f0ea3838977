// What `Tests/sanitize` runs under ThreadSanitizer. In the tests nothing is here.
#if THREADS
    import Dispatch
    import Glibc

    @testable import DoubleRatchet

    /// Conversations of their own in several threads: what they share is in the library.
    @main
    struct Threads {
        static func main() {
            DispatchQueue.concurrentPerform(iterations: 8) { thread in
                var random = SeededGenerator(seed: UInt64(thread))
                for _ in 0..<20 {
                    do {
                        try ConversationProgramme.run([UInt8(truncatingIfNeeded: thread)] + random.bytes(200))
                        try ByteProgramme.run(random.bytes(40))
                    } catch {
                        preconditionFailure("\(error)")
                    }
                }
            }
            print("done")
        }
    }

    /// Stands in for the one of `Synchronization`, which the sanitizer does not see into and takes for no lock at all. This file
    /// is compiled as part of the library's module, where its own name comes first.
    final class Mutex<Value>: @unchecked Sendable {
        private var value: Value
        private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)

        init(_ value: Value) {
            self.value = value
            pthread_mutex_init(lock, nil)
        }

        deinit { lock.deallocate() }

        func withLock<Result>(_ body: (inout Value) throws -> Result) rethrows -> Result {
            pthread_mutex_lock(lock)
            defer { pthread_mutex_unlock(lock) }
            return try body(&value)
        }
    }
#endif
