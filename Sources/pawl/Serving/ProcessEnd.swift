// The end of the process from a thread that finds out that it must not go on. Several may find it out at once, and `exit` of
// the C library may not be called by two threads.

import Foundation
import Synchronization

/// Ends the process at once.
enum ProcessEnd {
    private static let isEnding = Atomic<Bool>(false)

    /// Ends the process with the code of the first caller. Nothing is cleaned up: each line of the log was flushed before.
    static func end(_ code: Int32) -> Never {
        if !isEnding.exchange(true, ordering: .sequentiallyConsistent) { _exit(code) }
        // The other thread ends the process.
        while true { sleep(1000) }
    }
}
