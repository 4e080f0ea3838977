// The file system calls of the stores. Each error names the path and the reason.

package import Foundation

/// Calls that make names and bytes durable. Tests check their order, and let them fail.
package enum DiskCall: Hashable, Sendable {
    case write(String)
    case sync(String)
    case move(String, to: String)

    /// Called before each call; returns the `errno` of a call that is to fail, else nil.
    @TaskLocal package static var watcher: (@Sendable (DiskCall) -> Int32?)?

    /// Whether the call is made; if false, `errno` is set.
    fileprivate var isAllowed: Bool {
        guard let error = Self.watcher?(self) else { return true }
        errno = error
        return false
    }
}

/// An open file; closed when it goes out of scope.
package struct DiskFile<Failure: DiskFailure>: ~Copyable {
    package let number: Int32
    private let path: String
    /// Offset of the next read or write, in bytes.
    package var position = 0

    /// - Parameters:
    ///   - flags: of `open(2)`; close-on-exec is added.
    ///   - mode: of a new file, before the umask.
    /// - Throws: ``DiskFailure/unavailable(_:)``.
    package init(_ path: String, _ flags: Int32, mode: mode_t = 0o600) throws(Failure) {
        number = open(path, flags | O_CLOEXEC, mode)
        self.path = path
        guard number >= 0 else { throw Disk<Failure>.failure("open", path) }
    }

    deinit { if number >= 0 { _ = close(number) } }

    /// Size in bytes.
    package var size: Int { status.map { Int($0.st_size) } ?? 0 }

    package var status: stat? {
        var status = stat()
        return fstat(number, &status) == 0 ? status : nil
    }

    package mutating func write(_ bytes: some Collection<UInt8>) throws(Failure) {
        let bytes = Array(bytes)
        guard DiskCall.write(path).isAllowed else { throw Disk<Failure>.failure("write", path) }
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeBytes { buffer in
                pwrite(number, buffer.baseAddress! + done, buffer.count - done, off_t(position + done))
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw Disk<Failure>.failure("write", path) }
            done += count
        }
        position += done
    }

    /// Reads up to a number of bytes; fewer only at the end of the file.
    package mutating func read(upTo limit: Int) throws(Failure) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: limit)
        var done = 0
        while done < limit {
            let count = bytes.withUnsafeMutableBytes { buffer in
                pread(number, buffer.baseAddress! + done, limit - done, off_t(position + done))
            }
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw Disk<Failure>.failure("read", path) }
            if count == 0 { break }
            done += count
        }
        position += done
        bytes.removeLast(limit - done)
        return bytes
    }

    /// Syncs the file, and returns when the bytes are on the disk.
    package func sync() throws(Failure) {
        guard DiskCall.sync(path).isAllowed, fsync(number) == 0 else { throw Disk<Failure>.failure("sync", path) }
    }
}

/// Calls on paths, with errors in the words of the calling store.
package enum Disk<Failure: DiskFailure> {
    /// The error of a call on a path, from `errno`.
    package static func failure(_ verb: String, _ path: String) -> Failure { failure(verb, path, errno) }

    /// The error of a call on a path that failed with a number of `errno`.
    package static func failure(_ verb: String, _ path: String, _ number: Int32) -> Failure {
        .unavailable("Could not \(verb) \(path): \(String(cString: strerror(number))).")
    }

    /// Whether a file exists at a path, including a dangling link.
    package static func exists(_ path: String) -> Bool {
        var status = stat()
        return lstat(path, &status) == 0
    }

    /// Size in bytes; 0 if there is no file.
    package static func size(of path: String) -> Int {
        var status = stat()
        return stat(path, &status) == 0 ? Int(status.st_size) : 0
    }

    /// The directory of a path.
    package static func parent(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// Makes a directory of mode 0700, and missing parents.
    package static func makeDirectory(_ path: String) throws(Failure) {
        if mkdir(path, 0o700) == 0 { return }
        if errno == ENOENT, parent(of: path) != path {
            try makeDirectory(parent(of: path))
            if mkdir(path, 0o700) == 0 { return }
        }
        var status = stat()
        guard errno == EEXIST, stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFDIR else {
            throw failure("make the directory", path)
        }
    }

    /// Names in a directory, sorted.
    package static func entries(of path: String) throws(Failure) -> [String] {
        guard let stream = opendir(path) else { throw failure("list", path) }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names.sorted()
    }

    /// Syncs a directory, so that its names are as durable as its files.
    package static func syncDirectory(_ path: String) throws(Failure) {
        try DiskFile<Failure>(path, O_RDONLY | O_DIRECTORY).sync()
    }

    /// Moves a file and replaces one at the new path. Durable only after ``syncDirectory(_:)``.
    package static func move(_ path: String, to other: String) throws(Failure) {
        guard DiskCall.move(path, to: other).isAllowed, rename(path, other) == 0 else { throw failure("move", path) }
    }

    package static func remove(_ path: String) throws(Failure) {
        guard unlink(path) == 0 || errno == ENOENT else { throw failure("remove", path) }
    }

    /// Makes a new file of mode 0600, durably: whole or not at all. Fails if there is one.
    package static func create(_ path: String, _ bytes: [UInt8]) throws(Failure) {
        let temporary = path + ".new"
        try remove(temporary)
        do throws(Failure) {
            var file = try DiskFile<Failure>(temporary, O_WRONLY | O_CREAT | O_EXCL)
            try file.write(bytes)
            try file.sync()
        } catch {
            try remove(temporary)
            throw error
        }
        let linked = link(temporary, path) == 0
        let refusal = linked ? nil : failure("make", path)
        try remove(temporary)
        if let refusal { throw refusal }
        try syncDirectory(parent(of: path))
    }

    /// Replaces a file in one step, durably.
    package static func replace(_ path: String, _ bytes: [UInt8]) throws(Failure) {
        let temporary = path + ".new"
        try remove(temporary)
        do {
            var file = try DiskFile<Failure>(temporary, O_WRONLY | O_CREAT | O_EXCL)
            try file.write(bytes)
            try file.sync()
        }
        try move(temporary, to: path)
        try syncDirectory(parent(of: path))
    }
}
