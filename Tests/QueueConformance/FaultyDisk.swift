// A disk between SQLite and the real one that fails when it is told to, and knows what a power cut would leave of each file. It
// stands where SQLite looks for its default; files that nobody has asked it to fail go straight to the real one.

import GRDBSQLite
import Glibc
import Synchronization
import TestKit

/// The faults of the files of one directory.
package final class FaultyDisk: Sendable {
    package enum Fault: Sendable {
        /// Each write fails from this one on, counted from 0.
        case writes(from: Int)
        /// Each sync fails from this one on.
        case syncs(from: Int)
        /// One sync fails, this one.
        case oneSync(Int)
        /// The disk has room for so many bytes more.
        case room(Int)
        /// The power goes with this write or sync; nothing is done from then on.
        case power(at: Int)
    }

    /// SQLite's extended codes, which are macros of C.
    private enum Code {
        static let write = SQLITE_IOERR | 3 << 8
        static let sync = SQLITE_IOERR | 4 << 8
        static let truncate = SQLITE_IOERR | 6 << 8
    }

    fileprivate struct File {
        /// What is on the platter.
        var durable: [UInt8] = []
        /// What has been written since, in order; nothing stands for a cut to a length.
        var unsynced: [(offset: Int, bytes: [UInt8]?)] = []
    }

    fileprivate struct State {
        var fault: Fault?
        var writes = 0
        var syncs = 0
        var grown = 0
        var isDead = false
        var files: [String: File] = [:]
    }

    let directory: String
    fileprivate let state = Mutex(State())

    /// Watches a directory; begins before its files are opened.
    package init(_ directory: String) {
        self.directory = directory + "/"
        _ = Shim.registered
        Shim.disks.withLock { $0.append(self) }
    }

    /// Ends the watch. Files that are open keep their faults.
    package func unplug() { Shim.disks.withLock { disks in disks.removeAll { $0 === self } } }

    /// From now on.
    package func fail(_ fault: Fault?) {
        state.withLock { state in
            (state.fault, state.writes, state.syncs, state.grown, state.isDead) = (fault, 0, 0, 0, false)
        }
    }

    package var counts: (writes: Int, syncs: Int, isDead: Bool) {
        state.withLock { ($0.writes, $0.syncs, $0.isDead) }
    }

    /// What a power cut leaves, as files of another directory: all that was synced, and of the rest nothing, or whatever
    /// the seed says, whole sectors of it, in any order.
    package func cutPower(into other: String, seed: UInt64?) {
        mkdir(other, 0o700)
        var random = SeededGenerator(seed: seed ?? 0)
        state.withLock { state in
            for (path, file) in state.files.sorted(by: { $0.key < $1.key }) {
                var bytes = file.durable
                for write in file.unsynced where seed != nil {
                    guard let written = write.bytes else {
                        if Bool.random(using: &random) { bytes = Array(bytes.prefix(write.offset)) }
                        continue
                    }
                    for start in stride(from: 0, to: written.count, by: 512) where Bool.random(using: &random) {
                        bytes.put(written[start..<min(start + 512, written.count)], at: write.offset + start)
                    }
                }
                let number = open(other + "/" + path.dropFirst(directory.count), O_WRONLY | O_CREAT | O_TRUNC, 0o600)
                _ = write(number, bytes, bytes.count)
                close(number)
            }
        }
    }

    // MARK: What SQLite asks

    /// - Returns: SQLite's code.
    fileprivate func willWrite(_ path: String, _ bytes: [UInt8], _ offset: Int, grows: Int) -> Int32 {
        state.withLock { state in
            guard !state.isDead else { return Code.write }
            let number = state.writes
            state.writes += 1
            switch state.fault {
            case .writes(let from) where number >= from: return Code.write
            case .room(let limit):
                guard state.grown + grows <= limit else { return SQLITE_FULL }
                state.grown += grows
            case .power(let at) where number + state.syncs >= at:
                // The write itself is one that was on its way.
                state.files[path]?.unsynced.append((offset, bytes))
                state.isDead = true
                return Code.write
            default: break
            }
            state.files[path]?.unsynced.append((offset, bytes))
            return SQLITE_OK
        }
    }

    fileprivate func willTruncate(_ path: String, _ size: Int) -> Int32 {
        state.withLock { state in
            guard !state.isDead else { return Code.truncate }
            state.files[path]?.unsynced.append((size, nil))
            return SQLITE_OK
        }
    }

    fileprivate func willSync(_ path: String) -> Int32 {
        state.withLock { state in
            guard !state.isDead else { return Code.sync }
            let number = state.syncs
            state.syncs += 1
            switch state.fault {
            case .syncs(let from) where number >= from: return Code.sync
            case .oneSync(number): return Code.sync
            case .power(let at) where number + state.writes >= at:
                state.isDead = true
                return Code.sync
            default: break
            }
            guard var file = state.files.removeValue(forKey: path) else { return SQLITE_OK }
            for write in file.unsynced {
                if let bytes = write.bytes {
                    file.durable.put(bytes[...], at: write.offset)
                } else {
                    file.durable.removeLast(max(file.durable.count - write.offset, 0))
                }
            }
            file.unsynced.removeAll()
            state.files[path] = file
            return SQLITE_OK
        }
    }

    fileprivate func opened(_ path: String) {
        state.withLock { state in
            guard state.files[path] == nil else { return }
            var file = File()
            let number = Glibc.open(path, O_RDONLY)
            var chunk = [UInt8](repeating: 0, count: 1 << 16)
            while case let count = read(number, &chunk, chunk.count), count > 0 {
                file.durable.append(contentsOf: chunk[..<count])
            }
            close(number)
            state.files[path] = file
        }
    }

    fileprivate func removed(_ path: String) { state.withLock { $0.files[path] = nil } }
}

extension [UInt8] {
    fileprivate mutating func put(_ bytes: ArraySlice<UInt8>, at offset: Int) {
        if count < offset + bytes.count { append(contentsOf: repeatElement(0, count: offset + bytes.count - count)) }
        replaceSubrange(offset..<(offset + bytes.count), with: bytes)
    }
}

/// SQLite's side: a file of ours is a head and, behind it, the real one's.
private enum Shim {
    static let disks = Mutex<[FaultyDisk]>([])

    struct Head {
        var file: sqlite3_file
        /// A retained ``Watched``.
        var watched: UnsafeMutableRawPointer?
    }

    final class Watched {
        let disk: FaultyDisk
        let path: String
        init(_ disk: FaultyDisk, _ path: String) { (self.disk, self.path) = (disk, path) }
    }

    typealias File = UnsafeMutablePointer<sqlite3_file>

    static let headSize = (MemoryLayout<Head>.stride + 15) & ~15
    nonisolated(unsafe) static let real: UnsafeMutablePointer<sqlite3_vfs> = sqlite3_vfs_find(nil)

    static func inner(_ file: File?) -> File {
        (UnsafeMutableRawPointer(file!) + headSize).assumingMemoryBound(to: sqlite3_file.self)
    }

    static func watched(_ file: File?) -> Watched {
        let head = UnsafeMutableRawPointer(file!).assumingMemoryBound(to: Head.self)
        return Unmanaged<Watched>.fromOpaque(head.pointee.watched!).takeUnretainedValue()
    }

    static func disk(of path: String) -> FaultyDisk? {
        disks.withLock { disks in disks.first { path.hasPrefix($0.directory) } }
    }

    /// Registers the shim once, as the default.
    static let registered: Bool = {
        let vfs = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
        vfs.pointee = real.pointee
        vfs.pointee.szOsFile += Int32(headSize)
        vfs.pointee.pNext = nil
        vfs.pointee.zName = UnsafePointer(strdup("faulty"))
        vfs.pointee.xOpen = { _, name, file, flags, outFlags in
            let kept = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL
            guard let name, flags & kept != 0, let disk = Shim.disk(of: String(cString: name)) else {
                return real.pointee.xOpen(real, name, file, flags, outFlags)
            }
            let path = String(cString: name)
            let code = real.pointee.xOpen(real, name, Shim.inner(file), flags, outFlags)
            file!.pointee.pMethods = nil
            guard code == SQLITE_OK else { return code }
            disk.opened(path)
            let head = UnsafeMutableRawPointer(file!).assumingMemoryBound(to: Head.self)
            head.pointee.watched = Unmanaged.passRetained(Watched(disk, path)).toOpaque()
            head.pointee.file.pMethods = UnsafePointer(methods)
            return SQLITE_OK
        }
        vfs.pointee.xDelete = { _, name, syncs in
            if let name, let disk = Shim.disk(of: String(cString: name)) { disk.removed(String(cString: name)) }
            return real.pointee.xDelete(real, name, syncs)
        }
        vfs.pointee.xAccess = { real.pointee.xAccess(real, $1, $2, $3) }
        vfs.pointee.xFullPathname = { real.pointee.xFullPathname(real, $1, $2, $3) }
        return sqlite3_vfs_register(vfs, 1) == SQLITE_OK
    }()

    nonisolated(unsafe) static let methods: UnsafeMutablePointer<sqlite3_io_methods> = {
        let methods = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
        var table = sqlite3_io_methods()
        table.iVersion = 2
        table.xClose = { file in
            let head = UnsafeMutableRawPointer(file!).assumingMemoryBound(to: Head.self)
            let code = inner(file).pointee.pMethods.pointee.xClose(inner(file))
            Unmanaged<Watched>.fromOpaque(head.pointee.watched!).release()
            return code
        }
        table.xRead = { inner($0).pointee.pMethods.pointee.xRead(inner($0), $1, $2, $3) }
        table.xWrite = { file, bytes, count, offset in
            let watched = watched(file)
            var size: sqlite3_int64 = 0
            _ = inner(file).pointee.pMethods.pointee.xFileSize(inner(file), &size)
            let copy = Array(UnsafeRawBufferPointer(start: bytes, count: Int(count)))
            let grows = max(Int(offset) + copy.count - Int(size), 0)
            let code = watched.disk.willWrite(watched.path, copy, Int(offset), grows: grows)
            guard code == SQLITE_OK else { return code }
            return inner(file).pointee.pMethods.pointee.xWrite(inner(file), bytes, count, offset)
        }
        table.xTruncate = { file, size in
            let watched = watched(file)
            let code = watched.disk.willTruncate(watched.path, Int(size))
            guard code == SQLITE_OK else { return code }
            return inner(file).pointee.pMethods.pointee.xTruncate(inner(file), size)
        }
        table.xSync = { file, flags in
            let watched = watched(file)
            let code = watched.disk.willSync(watched.path)
            guard code == SQLITE_OK else { return code }
            return inner(file).pointee.pMethods.pointee.xSync(inner(file), flags)
        }
        table.xFileSize = { inner($0).pointee.pMethods.pointee.xFileSize(inner($0), $1) }
        table.xLock = { inner($0).pointee.pMethods.pointee.xLock(inner($0), $1) }
        table.xUnlock = { inner($0).pointee.pMethods.pointee.xUnlock(inner($0), $1) }
        table.xCheckReservedLock = { inner($0).pointee.pMethods.pointee.xCheckReservedLock(inner($0), $1) }
        table.xFileControl = { inner($0).pointee.pMethods.pointee.xFileControl(inner($0), $1, $2) }
        table.xSectorSize = { inner($0).pointee.pMethods.pointee.xSectorSize(inner($0)) }
        table.xDeviceCharacteristics = { inner($0).pointee.pMethods.pointee.xDeviceCharacteristics(inner($0)) }
        table.xShmMap = { inner($0).pointee.pMethods.pointee.xShmMap(inner($0), $1, $2, $3, $4) }
        table.xShmLock = { inner($0).pointee.pMethods.pointee.xShmLock(inner($0), $1, $2, $3) }
        table.xShmBarrier = { inner($0).pointee.pMethods.pointee.xShmBarrier(inner($0)) }
        table.xShmUnmap = { inner($0).pointee.pMethods.pointee.xShmUnmap(inner($0), $1) }
        methods.pointee = table
        return methods
    }()
}
