import Foundation

/// A small file, read whole or refused.
struct ConfigurationBytes {
    /// The largest configuration: a hundred times one that names every key with its comment.
    static let configurationLimit = 1 << 20
    /// The largest password file.
    static let passwordLimit = 4096

    /// What is wrong with a file, as the end of a sentence that begins with its name.
    enum Failure: Error {
        case unreadable(String)
        case tooLarge
    }

    let bytes: [UInt8]

    /// Reads at most `limit` bytes from `path`.
    init(path: String, limit: Int) throws(Failure) {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw .unreadable(Self.reason(errno)) }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: limit + 1)
        var count = 0
        while count < bytes.count {
            let result = bytes.withUnsafeMutableBytes { buffer in
                read(descriptor, buffer.baseAddress! + count, buffer.count - count)
            }
            if result < 0, errno == EINTR { continue }
            guard result >= 0 else { throw .unreadable(Self.reason(errno)) }
            guard result > 0 else { break }
            count += result
        }
        guard count <= limit else { throw .tooLarge }
        self.bytes = Array(bytes[..<count])
    }

    private static func reason(_ code: Int32) -> String {
        switch code {
        case ENOENT: "there is no such file"
        case EACCES, EPERM: "this user may not read it"
        case EISDIR: "it is a directory"
        default: String(cString: strerror(code))
        }
    }
}
