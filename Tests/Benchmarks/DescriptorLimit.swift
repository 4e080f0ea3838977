import Glibc

/// How many files this process, and those that it starts, may hold open.
enum DescriptorLimit {
    /// Asks for the kernel's highest number, then for the highest that is allowed without privilege; returns what
    /// holds.
    @discardableResult
    static func raise() throws -> Int {
        let wanted: rlim_t = 65_536
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw Failure("the limit of open files cannot be read: \(lastError())")
        }
        if limit.rlim_max < wanted {
            var higher = rlimit(rlim_cur: wanted, rlim_max: wanted)
            if setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &higher) == 0 { return Int(wanted) }
        }
        limit.rlim_cur = limit.rlim_max
        _ = setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        return Int(limit.rlim_cur)
    }
}

/// Something that keeps a benchmark from being measured, in words.
struct Failure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// The last system call's error, in words.
func lastError() -> String {
    String(cString: strerror(errno))
}

/// Hands on what was printed; standard output may be a file that another process reads.
func flushOutput() {
    fflush(nil)
}
