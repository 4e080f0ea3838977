import Foundation

/// The content of a small file. A larger file is rejected.
struct ConfigurationBytes {
    /// Ours: the largest configuration or mapping, in bytes; about seventy times `config/pawl.yaml`.
    static let configurationLimit = 1 << 20
    /// Ours: the largest password file, in bytes.
    static let passwordLimit = 4096

    /// Why a file was rejected; `unreadable` holds the reason for a message.
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
