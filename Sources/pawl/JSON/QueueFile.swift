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

    /// Whether the file existed before and is missing. A start then does not create a new one silently.
    var isMissing: Bool {
        let files = FileManager.default
        return !files.fileExists(atPath: path) && files.fileExists(atPath: path + ".lock")
            && !files.fileExists(atPath: path + ".new") && !files.fileExists(atPath: path + "-wal")
            && !files.fileExists(atPath: path + ".damaged")
    }

    /// Opens the queue, which is created if it never existed.
    ///
    /// - Throws: ``AdminFailure`` that names the remedy.
    func open() throws -> SQLiteQueueStore {
        guard !isMissing else {
            throw AdminFailure(
                "The queue \(path) existed before and is missing. Is its disk mounted? Put the file back, or start with an "
                    + "empty queue, without the requests that waited: pawl queue repair --data \(directory)")
        }
        do {
            return try SQLiteQueueStore(path: path)
        } catch {
            throw AdminFailure(error.message + (error.isDamage ? " Run: pawl queue repair --data \(directory)" : ""))
        }
    }
}
