// The file of the queue in a data directory.

import Foundation
import RequestQueue
import SQLiteQueue

/// `queue.sqlite`, beside the store.
struct QueueFile {
    let path: String
    private let directory: String

    init(directory: String) {
        self.directory = directory
        path = directory + "/queue.sqlite"
    }

    /// Whether there was one and there is none: it is not made anew in silence.
    var isMissing: Bool {
        let files = FileManager.default
        return !files.fileExists(atPath: path) && files.fileExists(atPath: path + ".lock")
            && !files.fileExists(atPath: path + ".new") && !files.fileExists(atPath: path + "-wal")
            && !files.fileExists(atPath: path + ".damaged")
    }

    /// - Throws: ``AdminFailure`` with what to do.
    func open() throws -> SQLiteQueueStore {
        guard !isMissing else {
            throw AdminFailure(
                "The queue \(path) is not there, and it was once. Is its disk mounted? Put the file back, or begin with an "
                    + "empty one, without what waited in it: pawl queue repair --data \(directory)")
        }
        do {
            return try SQLiteQueueStore(path: path)
        } catch {
            throw AdminFailure(error.message + (error.isDamage ? " Here: pawl queue repair --data \(directory)" : ""))
        }
    }
}
