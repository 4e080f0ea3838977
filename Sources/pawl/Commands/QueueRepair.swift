// `pawl queue repair`: what can be read of a damaged queue goes into a new one, while no gateway runs.

import ArgumentParser
import Foundation
import Protection
import RequestQueue
import SQLiteQueue

extension QueueCommand {
    /// `pawl queue repair`
    struct Repair: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Save what can be read of a damaged queue.sqlite. The gateway must not run.",
            discussion: """
                In front of a backend that speaks HTTP only. What is damaged is kept aside as queue.sqlite.damaged. Requests \
                of which nobody knows what became are dead afterwards, since they may have been done; pawl queue retry sends \
                one again. Where the file is gone altogether, an empty queue is begun.
                """)
        @Option(help: "The data directory.") var data: String = CommonOptions.defaultData
        @Flag(help: "Do it though no damage is found: a large file is not read whole at a start.") var force = false
        @Flag(help: "Print JSON for scripts.") var json = false

        struct Report: Codable {
            /// `repaired`, `begun` or `whole`.
            var outcome: String
            var requests = 0
            /// Of them, those of which nobody knows what became.
            var doubtful = 0
            /// What the backend's names of messages are.
            var names = 0
            /// Where the damaged file is.
            var kept: String?
        }

        func run() async throws {
            do {
                let report = try repair(QueueFile(directory: data))
                print(json ? try AdminAnswer.json(report).out : Self.text(report, data))
            } catch {
                FileHandle.standardError.write(Data((Assembly.message(of: error) + "\n").utf8))
                throw ExitCode(ExitStatus.failed)
            }
        }

        private func repair(_ file: QueueFile) throws -> Report {
            if file.isMissing {
                _ = try SQLiteQueueStore(path: file.path)
                return Report(outcome: "begun")
            }
            guard FileManager.default.fileExists(atPath: file.path) else {
                throw AdminFailure("There is no queue \(file.path). Name the gateway's data directory with --data.")
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
                "The queue in \(data) is whole: nothing has been changed. To rewrite it all the same, add --force."
            case "begun": "An empty queue is in \(data). What waited in the old one is not in it."
            default:
                "\(report.requests) requests are saved, \(report.doubtful) of which may have been done and are dead now: "
                    + "pawl queue list --state dead. The damaged file is \(report.kept ?? ""); remove it when all is well."
            }
        }
    }
}
