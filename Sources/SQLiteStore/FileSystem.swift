// What this target asks of the file system: few calls, each with the path and the reason in its error.

import Foundation
import GatewayCore

/// An open file; closed when it goes out of scope.
struct OpenFile: ~Copyable {
    let number: Int32
    private let path: String
    /// Where the next reading or writing begins, in bytes.
    var position = 0

    /// - Parameters:
    ///   - flags: of `open(2)`; close-on-exec is added.
    ///   - mode: of a file that is made, before the umask.
    /// - Throws: ``StoreError/unavailable(_:)``.
    init(_ path: String, _ flags: Int32, mode: mode_t = 0o600) throws(StoreError) {
        number = open(path, flags | O_CLOEXEC, mode)
        self.path = path
        guard number >= 0 else { throw FileSystem.failure("open", path) }
    }

    deinit { if number >= 0 { _ = close(number) } }

    /// Size in bytes.
    var size: Int { status.map { Int($0.st_size) } ?? 0 }

    var status: stat? {
        var status = stat()
        return fstat(number, &status) == 0 ? status : nil
    }

    mutating func write(_ bytes: some Collection<UInt8>) throws(StoreError) {
        let bytes = Array(bytes)
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeBytes { buffer in
                pwrite(number, buffer.baseAddress! + done, buffer.count - done, off_t(position + done))
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw FileSystem.failure("write", path) }
            done += count
        }
        position += done
    }

    /// Reads up to a number of bytes; fewer only at the end of the file.
    mutating func read(upTo limit: Int) throws(StoreError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: limit)
        var done = 0
        while done < limit {
            let count = bytes.withUnsafeMutableBytes { buffer in
                pread(number, buffer.baseAddress! + done, limit - done, off_t(position + done))
            }
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw FileSystem.failure("read", path) }
            if count == 0 { break }
            done += count
        }
        position += done
        bytes.removeLast(limit - done)
        return bytes
    }

    /// Returns when the bytes are on the disk.
    func sync() throws(StoreError) {
        guard fsync(number) == 0 else { throw FileSystem.failure("sync", path) }
    }
}

/// Calls on paths.
enum FileSystem {
    /// What went wrong with a path, from `errno`.
    static func failure(_ verb: String, _ path: String) -> StoreError {
        .unavailable("Could not \(verb) \(path): \(String(cString: strerror(errno))).")
    }

    /// Whether there is anything at a path, a dangling link included.
    static func exists(_ path: String) -> Bool {
        var status = stat()
        return lstat(path, &status) == 0
    }

    /// Size in bytes; 0 where there is nothing.
    static func size(of path: String) -> Int {
        var status = stat()
        return stat(path, &status) == 0 ? Int(status.st_size) : 0
    }

    /// The directory that a path stands in.
    static func parent(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// Makes a directory of mode 0700, with the ones above it.
    static func makeDirectory(_ path: String) throws(StoreError) {
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
    static func entries(of path: String) throws(StoreError) -> [String] {
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

    /// Makes the names in a directory as durable as the files.
    static func syncDirectory(_ path: String) throws(StoreError) {
        try OpenFile(path, O_RDONLY | O_DIRECTORY).sync()
    }

    /// Moves a file; what stands at the new path is replaced. Durable only after ``syncDirectory(_:)``.
    static func move(_ path: String, to other: String) throws(StoreError) {
        guard rename(path, other) == 0 else { throw failure("move", path) }
    }

    static func remove(_ path: String) throws(StoreError) {
        guard unlink(path) == 0 || errno == ENOENT else { throw failure("remove", path) }
    }

    /// Makes a file of mode 0600 that was not there, durably: whole or not at all.
    static func create(_ path: String, _ bytes: [UInt8]) throws(StoreError) {
        let temporary = path + ".new"
        try remove(temporary)
        do throws(StoreError) {
            var file = try OpenFile(temporary, O_WRONLY | O_CREAT | O_EXCL)
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
    static func replace(_ path: String, _ bytes: [UInt8]) throws(StoreError) {
        let temporary = path + ".new"
        try remove(temporary)
        do {
            var file = try OpenFile(temporary, O_WRONLY | O_CREAT | O_EXCL)
            try file.write(bytes)
            try file.sync()
        }
        try move(temporary, to: path)
        try syncDirectory(parent(of: path))
    }
}
