// `pawl queue repair`: copies the readable part of a damaged queue into a new one, while no gateway runs. It is for the
// file of an earlier version, which the next start moves into the store.

import ArgumentParser
import Foundation
import Protection
import RequestQueue
import SQLiteQueue
import SQLiteStore

extension QueueCommand {
    /// `pawl queue repair`
    struct Repair: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Recover the readable part of an earlier version's damaged queue. The gateway must not run.",
            discussion: """
                Earlier versions kept the writes to a backend that speaks HTTP in a file of their own, queue.sqlite. \
                The next start moves them into the store and removes the file; a damaged file is refused.

                The damaged file is kept as queue.sqlite.damaged. Requests whose outcome is unknown are dead \
                afterwards, because the backend may have carried them out; pawl queue retry sends one again. If the \
                file is missing, an empty queue is created.
                """)
        @Option(help: "The data directory.") var data: String = CommonOptions.defaultData
        @Flag(help: "Repair even if no damage is found: the check does not read all of a large file.") var force = false
        @Flag(help: "Print JSON for scripts.") var json = false

        struct Report: Codable {
            /// `repaired`, `begun` or `whole`.
            var outcome: String
            var requests = 0
            /// The number of them whose outcome is unknown.
            var doubtful = 0
            /// The number of recovered ids that the backend has assigned to messages.
            var names = 0
            /// The path of the damaged file.
            var kept: String?
        }

        func run() async throws {
            do {
                let report = try repair(EarlierQueue(directory: data))
                print(json ? try AdminAnswer.json(report).out : Self.text(report, data))
            } catch {
                throw Failures.write(error)
            }
        }

        private func repair(_ file: EarlierQueue) throws -> Report {
            if file.isMissing {
                _ = try SQLiteQueueStore(path: file.path)
                return Report(outcome: "begun")
            }
            guard FileManager.default.fileExists(atPath: file.path) else {
                throw AdminFailure(
                    .noQueueFile,
                    "There is no queue \(file.path). After a start of this version, the queue is in the store. If that "
                        + "is not the gateway's data directory, name it with --data.")
            }
            do {
                _ = try SQLiteQueueStore(path: file.path)
                guard force else { return Report(outcome: "whole") }
            } catch {
                guard error.isDamage else { throw error }
            }
            let saved = try SQLiteQueueStore.repair(path: file.path, now: SystemClock.now().wall)
            return Report(
                outcome: "repaired", requests: saved.requests, doubtful: saved.doubtful, names: saved.mappings,
                kept: saved.kept)
        }

        private static func text(_ report: Report, _ data: String) -> String {
            switch report.outcome {
            case "whole":
                "The queue in \(data) is not damaged: nothing has been changed. To rewrite it anyway, add --force."
            case "begun": "An empty queue has been created in \(data), without the requests of the old one."
            default:
                "\(report.requests) requests are recovered. The backend may have done \(report.doubtful) of them, "
                    + "which are dead now; after the start: pawl queue list --state dead. The damaged file is "
                    + "\(report.kept ?? ""); remove it when all is well."
            }
        }
    }
}
