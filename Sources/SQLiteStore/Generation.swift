// The number of openings of a store is kept in it and in a file beside it. A store with a lower number than the file is
// an older copy. Its ratchets would go back and use keys twice, so it is opened only if an operator accepts that.

import Foundation
import SQLiteKit
import StoreBase
import StorePort

enum Generation {
    /// The number beside the store; nil if there is no file.
    ///
    /// - Throws: ``StoreError/corrupt(_:)`` if the file holds no number.
    static func read(_ files: StoreFiles) throws(StoreError) -> UInt64? {
        guard FileSystem.exists(files.generation) else { return nil }
        var file = try OpenFile(files.generation, O_RDONLY)
        let bytes = try file.read(upTo: 32)
        let line = bytes.prefix { $0 != UInt8(ascii: "\n") }
        guard line.count < bytes.count, let number = UInt64(String(decoding: line, as: UTF8.self)),
            number < StoreLimits.highestNumber
        else {
            throw .badGeneration(files)
        }
        return number
    }

    static func write(_ number: UInt64, _ files: StoreFiles) throws(StoreError) {
        try FileSystem.replace(files.generation, Array("\(number)\n".utf8))
    }
}
