// `pawl store`: settings of a whole store, for use while no gateway runs.

import ArgumentParser
import Devices
import Foundation
import PawlConfiguration
import Protection
import SQLiteStore
import StoreBase
import StorePort

/// `pawl store`
struct StoreCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store", abstract: "Show or change the settings of a store, or move it. The gateway must not run.",
        subcommands: [Network.self, StoreCopyCommand.self])

    /// `pawl store network`
    struct Network: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show the name of the gateway's network, or change it. The gateway must not run.",
            discussion: """
                The name is bound to every sealed message. After a change, messages that were sealed under the old name are \
                read only if upstream.earlier_networks lists it.
                """)
        @Argument(help: "The new name; without it, the current one is shown.") var name: String?
        @OptionGroup var place: StorePlace
        @Flag(help: "Print JSON for scripts.") var json = false

        struct Report: Codable {
            /// Nil if no gateway has started on the store.
            var network: String?
            /// The name before the change; nil if nothing has changed.
            var before: String?
            var changed = false
            /// Whether upstream.earlier_networks has to list the name before, so that earlier messages are read.
            var hasSealed = false
        }

        func validate() throws {
            guard let name else { return }
            guard let word = try? PawlConfiguration.networkName(name), word == name else {
                throw ValidationError("A network has a name of at most 253 bytes without spaces.")
            }
        }

        func run() async throws {
            do {
                let store = try place.open()
                guard try store.record(.ownDevices, name: RecordRow.network) == nil else {
                    throw AdminFailure(
                        .directoryOfSidecar,
                        "The directory \(place.data) belongs to a sidecar, whose keys are for one network. For another network, "
                            + "start a sidecar with another --data.")
                }
                let report = try change(store)
                print(json ? try AdminAnswer.json(report).out : Printable.text(text(report)))
            } catch {
                throw Failures.write(error)
            }
        }

        private func change(_ store: SQLiteStore) throws -> Report {
            let old = try RoleRecord.name(in: store)
            guard let name, name != old else { return Report(network: old) }
            let detail = old.map { "\($0) → \(name)" } ?? name
            try RoleRecord.fix(name, in: store, actor: "operator", detail: detail, now: SystemClock.now().wall)
            let hasSealed = try store.load().devices.contains { $0.account != .own }
            return Report(network: name, before: old, changed: true, hasSealed: hasSealed)
        }

        private func text(_ report: Report) -> String {
            guard let network = report.network else {
                return "The store has no network name yet: no gateway has started on it."
            }
            guard report.changed else {
                return name == nil ? network : "The network is \(network) already. Nothing has changed."
            }
            let text = "The network is \(network) from the next start."
            guard let old = report.before, report.hasSealed else { return text }
            return text
                + "\nMessages that were sealed under \(old) are read if the configuration has: upstream.earlier_networks: "
                + "[\(old)]. If it sets upstream.network, set it to \(network)."
        }
    }
}

/// The location of a store and its key, for commands that open it themselves.
struct StorePlace: ParsableArguments {
    @Option(help: "The data directory.")
    var data: String = ProcessInfo.processInfo.environment["PAWL_DATA"] ?? "/var/lib/pawl"
    @Option(name: .customLong("key-file"), help: "The storage key, if not DIR/storage.key.") var keyFile: String?
    @Option(
        name: .customLong("key-environment"),
        help: "The environment variable that holds the storage key, if the gateway reads it from one.")
    var keyEnvironment: String?

    var key: StorageKey.Source {
        keyEnvironment.map { .environment($0) } ?? keyFile.map { .file($0) } ?? .standard(directory: data)
    }

    /// Opens an existing store.
    ///
    /// - Throws: ``StoreError`` if it cannot be opened, or ``AdminFailure`` if there is none.
    func open() throws -> SQLiteStore {
        guard FileManager.default.fileExists(atPath: data + "/pawl.sqlite") else {
            throw AdminFailure(.noStore, "There is no store in \(data). Name the gateway's data directory with --data.")
        }
        return try SQLiteStore.open(directory: data, key: key)
    }
}
