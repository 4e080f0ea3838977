// Records which opened lines have been written to a client's socket. A hint for the start after a crash of the process:
// the page cache survives a crash of the process, but not of the machine.
//
//     slot n (8 bytes, little-endian): the last sequence s with s % 65,536 = n; 0 while there was none

import Foundation
import SQLiteKit
import StoreBase
package import StorePort
import Synchronization

/// A memory-mapped file of marks. Marking is one store to memory.
package final class DeliveryJournal: Sendable {
    /// Ours: far more lines than can be opened and not yet written at one time.
    package static let slots = 65_536
    private static let size = slots * MemoryLayout<UInt64>.size

    /// Why the journal was made anew; nil if it was not. Its marks are lost then, and some lines may be shown twice.
    package let warning: String?
    // One atomic number a slot. The memory lives as long as this object.
    private nonisolated(unsafe) let marks: UnsafeMutablePointer<Atomic<UInt64>>

    /// Opens the journal of a store's directory, or makes it.
    ///
    /// - Throws: ``StoreError/unavailable(_:)`` if the file system fails.
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
        warning = isNew ? nil : Self.madeAnew(path)
    }

    /// The warning of a journal that was made anew.
    static func madeAnew(_ path: String) -> String {
        "\(path) was damaged and has been made anew; a line may be shown twice."
    }

    deinit { munmap(UnsafeMutableRawPointer(marks), Self.size) }

    /// Notes that the line was written to the client's socket. Safe from any thread.
    ///
    /// - Parameter sequence: of ``DeliveryRow``, above 0.
    package func mark(_ sequence: UInt64) {
        marks[Self.slot(sequence)].store(sequence.littleEndian, ordering: .relaxed)
    }

    /// Whether the line was noted, and is among the last 65,536.
    package func contains(_ sequence: UInt64) -> Bool {
        sequence != 0 && marks[Self.slot(sequence)].load(ordering: .relaxed) == sequence.littleEndian
    }

    private static func slot(_ sequence: UInt64) -> Int { Int(sequence % UInt64(slots)) }

    /// Maps the file into memory; nil if it has another size.
    private static func map(_ path: String) throws(StoreError) -> UnsafeMutablePointer<Atomic<UInt64>>? {
        let file = try OpenFile(path, O_RDWR)
        guard file.size == size else { return nil }
        let address = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.number, 0)
        guard let address, address != MAP_FAILED else { throw FileSystem.failure("map", path) }
        return address.bindMemory(to: Atomic<UInt64>.self, capacity: slots)
    }

    /// Whether each mark is in its own slot.
    private static func isSound(_ marks: UnsafeMutablePointer<Atomic<UInt64>>) -> Bool {
        (0..<slots).allSatisfy { index in
            let mark = UInt64(littleEndian: marks[index].load(ordering: .relaxed))
            return mark == 0 || Int(mark % UInt64(slots)) == index
        }
    }

    /// Makes the file and allocates its blocks now: otherwise a full disk would end the process at the first write to a
    /// slot.
    private static func make(_ path: String) throws(StoreError) {
        var file = try OpenFile(path, O_RDWR | O_CREAT | O_EXCL)
        try file.write([UInt8](repeating: 0, count: size))
    }
}
