// The system's clocks. State machines get the time as an argument.

import Glibc
import Protection

/// Reads the system's clocks.
enum SystemClock {
    static func now() -> Timestamp {
        var monotonic = timespec()
        var wall = timespec()
        clock_gettime(CLOCK_MONOTONIC, &monotonic)
        clock_gettime(CLOCK_REALTIME, &wall)
        return Timestamp(
            monotonic: Int64(monotonic.tv_sec) * 1_000_000_000 + Int64(monotonic.tv_nsec),
            wall: Int64(wall.tv_sec) * 1000 + Int64(wall.tv_nsec) / 1_000_000)
    }
}
