package import NIOCore
import TransportsCore

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// The file of a Unix socket that this process made.
package struct UnixSocketFile: Sendable {
    private let path: String
    private let device: UInt64
    private let number: UInt64

    /// Makes a socket with a mode and binds it.
    ///
    /// Linux gives the file the mode of the socket, so there is no moment in which others may open it. On other systems
    /// the directory has to protect it until `chmod`.
    package static func bind(_ path: String, mode: UInt16) throws -> (
        socket: NIOBSDSocket.Handle, file: UnixSocketFile
    ) {
        let address = try SocketAddress(unixDomainSocketPath: path)
        #if os(Linux)
            let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        #else
            let type = SOCK_STREAM
        #endif
        try removeLeftover(path, address, type)
        let handle = socket(AF_UNIX, type, 0)
        guard handle >= 0 else { throw failure("socket") }
        guard fchmod(handle, mode_t(mode)) == 0, address.withSockAddr({ systemBind(handle, $0, socklen_t($1)) }) == 0,
            chmod(path, mode_t(mode)) == 0, let file = UnixSocketFile(path)
        else {
            let error = failure("bind")
            close(handle)
            throw error
        }
        return (handle, file)
    }

    private init?(_ path: String) {
        var information = stat()
        guard lstat(path, &information) == 0, information.st_mode & S_IFMT == S_IFSOCK else { return nil }
        (self.path, device, number) = (path, UInt64(information.st_dev), UInt64(information.st_ino))
    }

    /// Removes a socket behind which no process is. Files of other kinds stay, and then `bind` fails.
    private static func removeLeftover(_ path: String, _ address: SocketAddress, _ type: Int32) throws {
        guard let leftover = UnixSocketFile(path) else { return }
        let probe = socket(AF_UNIX, type, 0)
        guard probe >= 0 else { throw failure("socket") }
        defer { close(probe) }
        let isAnswered = address.withSockAddr { connect(probe, $0, socklen_t($1)) } == 0
        guard !isAnswered, errno == ECONNREFUSED else {
            throw TesseractError.unavailable(reason: "another process listens on \(path)")
        }
        leftover.remove()
    }

    /// Removes the file, unless another socket has its path now.
    package func remove() {
        guard let current = UnixSocketFile(path), current.device == device, current.number == number else { return }
        unlink(path)
    }

    private static func failure(_ call: String) -> TesseractError {
        .unavailable(reason: "\(call): \(String(cString: strerror(errno)))")
    }
}

/// `bind` of the C library: inside a type with a method of that name it cannot be called by its own.
private func systemBind(_ handle: Int32, _ address: UnsafePointer<sockaddr>, _ size: socklen_t) -> Int32 {
    bind(handle, address, size)
}
