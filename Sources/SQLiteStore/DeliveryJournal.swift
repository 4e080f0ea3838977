// Which opened lines have already been written to a client's socket. A hint for the start after a crash of the process:
// the page cache outlives the process, not the machine.
//
//     slot n (8 bytes, little-endian): the last sequence s with s % 65,536 = n; 0 while there was none

import Foundation
import SQLiteKit
package import StorePort
import Synchronization

/// A memory-mapped file of marks. Marking is one store to memory.
package final class DeliveryJournal: Sendable {
    /// Ours: far more lines than can be between being opened and being written at one time.
    package static let slots = 65_536
    private static let size = slots * MemoryLayout<UInt64>.size

    /// Why the journal had to be made anew, where it had to; its marks are lost, and some lines may be shown twice.
    package let warning: String?
    // One atomic number a slot; the memory lives as long as this object.
    private nonisolated(unsafe) let marks: UnsafeMutablePointer<Atomic<UInt64>>

    /// Opens the journal of a store's directory, or makes it.
    ///
    /// - Throws: ``StoreError/unavailable(_:)`` where the file system fails.
    package init(directory: String) throws(StoreError) {
        let path = StoreFiles(directory).deliveryJournal
        let isNew = !FileSystem.exists(path)
        if let marks = isNew ? nil : try Self.map(path) {
            if Self.isSound(marks) {
                (self.marks, warning) = (marks, nil)
                return
            }
            munmap(UnsafeMutableRawPointer(marks), Self.size)
        }
        if !isNew { try FileSystem.remove(path) }
        try Self.make(path)
        guard let marks = try Self.map(path) else { throw FileSystem.failure("map", path) }
        self.marks = marks
        warning = isNew ? nil : "\(path) was damaged and has been made anew; a line may be shown twice."
    }

    deinit { munmap(UnsafeMutableRawPointer(marks), Self.size) }

    /// Notes that the line has been handed to the client's socket. From any thread.
    ///
    /// - Parameter sequence: of ``DeliveryRow``, above 0.
    package func mark(_ sequence: UInt64) {
        marks[Self.slot(sequence)].store(sequence.littleEndian, ordering: .relaxed)
    }

    /// Whether the line was noted, and is not older than the last 65,536.
    package func contains(_ sequence: UInt64) -> Bool {
        sequence != 0 && marks[Self.slot(sequence)].load(ordering: .relaxed) == sequence.littleEndian
    }

    private static func slot(_ sequence: UInt64) -> Int { Int(sequence % UInt64(slots)) }

    /// The file in memory; nothing where it has another size.
    private static func map(_ path: String) throws(StoreError) -> UnsafeMutablePointer<Atomic<UInt64>>? {
        let file = try OpenFile(path, O_RDWR)
        guard file.size == size else { return nil }
        let address = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.number, 0)
        guard let address, address != MAP_FAILED else { throw FileSystem.failure("map", path) }
        return address.bindMemory(to: Atomic<UInt64>.self, capacity: slots)
    }

    /// Whether each mark stands where it belongs.
    private static func isSound(_ marks: UnsafeMutablePointer<Atomic<UInt64>>) -> Bool {
        (0..<slots).allSatisfy { index in
            let mark = UInt64(littleEndian: marks[index].load(ordering: .relaxed))
            return mark == 0 || Int(mark % UInt64(slots)) == index
        }
    }

    /// The file gets its blocks now: a full disk would otherwise end the process when a slot is first written.
    private static func make(_ path: String) throws(StoreError) {
        var file = try OpenFile(path, O_RDWR | O_CREAT | O_EXCL)
        try file.write([UInt8](repeating: 0, count: size))
    }
}
