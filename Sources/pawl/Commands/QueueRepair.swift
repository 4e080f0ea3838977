// What is done to the request queue while no gateway has it open.

import ArgumentParser
import Foundation
import RequestQueue
import SQLiteQueue

extension QueueCommand {
    /// The file of the requests to HTTP backends, in the data directory.
    static let file = "queue.sqlite"

    /// `pawl queue repair`
    struct Repair: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Make a new request queue of what can be read in a damaged one. The gateway must not run.",
            discussion: """
                It is about DIR/queue.sqlite, where writes to HTTP backends wait. The damaged file is kept beside the new one. \
                Requests of which nobody knows any more what became of them are given up, with that reason, and not sent \
                again: the backend may have done them.
                """)
        @Option(help: "The data directory.") var data = CommonOptions.defaultData
        @Flag(help: "Also where no damage is found.") var force = false

        func run() async throws {
            do throws(QueueStoreError) {
                try repair(data + "/" + QueueCommand.file)
            } catch {
                FileHandle.standardError.write(Data((error.message + "\n").utf8))
                throw ExitCode(ExitStatus.failed)
            }
        }

        private func repair(_ path: String) throws(QueueStoreError) {
            guard FileManager.default.fileExists(atPath: path) else {
                throw QueueStoreError("There is no queue at \(path).")
            }
            if !force, try SQLiteQueueStore.isWhole(path: path) {
                print("\(path) is whole. Nothing was changed; --force makes a new one of it all the same.")
                return
            }
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            let repair = try SQLiteQueueStore.repair(path: path, now: now)
            var words = "\(repair.requests) requests and \(repair.mappings) names were saved."
            if repair.doubtful > 0 {
                words += " \(repair.doubtful) of the requests are given up, because nobody knows what became of them."
            }
            print("\(words) The damaged file is \(repair.kept); delete it when you need it no more.")
        }
    }
}
