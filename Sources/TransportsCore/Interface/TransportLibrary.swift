// Loading transports at run time. A library runs with all rights of the process, so it is loaded only if the application
// knows the digest of its bytes. The bytes that were checked are the bytes that are loaded: they are copied into memory
// of this process, which nothing else can write. A library is never unloaded: objects, threads and functions of it may be
// in use anywhere.

import CTransports
import Crypto
import Foundation
import Synchronization

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// A dynamic library with transports.
public final class TransportLibrary: Sendable {
    /// Ours: largest file that is read, 256 MiB. A library of a transport has less than 1 MB.
    public static let sizeLimit = 256 << 20

    // Unchecked: the loader's handle is never closed, and lookups may be made on every thread.
    private struct Handle: @unchecked Sendable { let pointer: UnsafeMutableRawPointer }

    /// Libraries that are loaded, by digest, so that the same bytes are there once.
    private static let loaded = Mutex<[String: Handle]>([:])

    private let handle: Handle

    /// Loads a library, or finds it if the same bytes were loaded before.
    ///
    /// - Parameters:
    ///   - path: An absolute path. Nothing is searched.
    ///   - digests: SHA-256 of the files that are allowed, in lower-case hexadecimal.
    /// - Throws: ``TesseractError/unavailable(reason:)`` if the file cannot be read or is not allowed,
    ///   ``TesseractError/incompatible(reason:)`` if it cannot be loaded or was built for another version.
    public init(path: String, digests: Set<String>) throws(TesseractError) {
        let bytes = try Self.read(path)
        let digest = Self.digest(bytes)
        guard digests.contains(digest) else {
            throw .unavailable(reason: "\(path) has the digest \(digest), which is not allowed")
        }
        // Under the lock: two threads that load the same bytes get one library.
        handle = try Self.loaded.withLock { (loaded) throws(TesseractError) in
            if let known = loaded[digest] { return known }
            let new = try Self.load(bytes, path)
            loaded[digest] = new
            return new
        }
        let version: @convention(c) () -> UInt32 = try function("pawl_transports_abi")
        guard version() == UInt32(PAWL_TRANSPORTS_ABI) else {
            throw .incompatible(
                reason: "\(path) is for version \(version()) of the interface and not \(PAWL_TRANSPORTS_ABI)")
        }
    }

    /// SHA-256 of a file, as `init` expects it.
    public static func digest(path: String) throws(TesseractError) -> String { digest(try read(path)) }

    /// A function of the library.
    ///
    /// - Parameter name: The exported name. The caller knows its type; a wrong one is undefined behaviour.
    /// - Throws: ``TesseractError/incompatible(reason:)`` if the library does not export the name.
    public func function<Function>(_ name: String, as type: Function.Type = Function.self) throws(TesseractError)
        -> Function
    {
        guard let symbol = dlsym(handle.pointer, name) else {
            throw .incompatible(reason: "the library does not export \(name)")
        }
        return unsafeBitCast(symbol, to: type)
    }

    private static func digest(_ bytes: Data) -> String {
        SHA256.hash(data: bytes).map { byte in
            let text = String(byte, radix: 16)
            return text.count == 1 ? "0" + text : text
        }.joined()
    }

    private static func read(_ path: String) throws(TesseractError) -> Data {
        guard path.hasPrefix("/") else { throw .unavailable(reason: "\(path) is not an absolute path") }
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else {
            throw .unavailable(reason: "\(path) cannot be opened: \(String(cString: strerror(errno)))")
        }
        defer { close(descriptor) }
        var information = stat()
        guard fstat(descriptor, &information) == 0, information.st_mode & S_IFMT == S_IFREG,
            information.st_size <= sizeLimit
        else { throw .unavailable(reason: "\(path) is no file of at most \(sizeLimit) bytes") }
        let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: false)
        do {
            return try file.read(upToCount: sizeLimit) ?? Data()
        } catch {
            throw .unavailable(reason: "\(path) cannot be read")
        }
    }

    private static func load(_ bytes: Data, _ path: String) throws(TesseractError) -> Handle {
        #if os(Linux)
            let descriptor = pawl_memory_file()
            guard descriptor >= 0 else { throw .unavailable(reason: "no memory for a library") }
            // The loader knows libraries by name: while this one is loaded, no other may get its descriptor and with that
            // its name. So the descriptor stays open.
            var isLoaded = false
            defer { if !isLoaded { close(descriptor) } }
            do {
                try FileHandle(fileDescriptor: descriptor, closeOnDealloc: false).write(contentsOf: bytes)
            } catch {
                throw .unavailable(reason: "no memory for a library")
            }
            let name = "/proc/self/fd/\(descriptor)"
        #else
            let name = path
        #endif
        guard let handle = dlopen(name, RTLD_NOW | RTLD_LOCAL) else {
            // The loader's message names the copy and not the path.
            throw .incompatible(reason: "\(path) is no library that can be loaded")
        }
        #if os(Linux)
            isLoaded = true
        #endif
        return Handle(pointer: handle)
    }
}
