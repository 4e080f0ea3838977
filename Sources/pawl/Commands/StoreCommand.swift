// `pawl store`: settings of a whole store, for use while no gateway runs.

import ArgumentParser
import Devices
import Foundation
import PawlConfiguration
import Protection
import SQLiteStore
import StorePort

/// `pawl store`
struct StoreCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store", abstract: "Show or change the settings of a store. The gateway must not run.",
        subcommands: [Network.self])

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
                let old = try RoleRecord.name(in: store)
                guard let name else {
                    return print(
                        old.map(Printable.line) ?? "The store has no network name yet: no gateway has started on it.")
                }
                guard name != old else { return print("The network is \(name) already. Nothing has changed.") }
                let detail = old.map { "\($0) → \(name)" } ?? name
                try RoleRecord.fix(name, in: store, actor: "operator", detail: detail, now: SystemClock.now().wall)
                print("The network is \(name) from the next start.")
                let hasSealed = try store.load().devices.contains { $0.account != .own }
                if let old, hasSealed {
                    print(
                        "Messages that were sealed under \(old) are read if the configuration has: upstream.earlier_networks: "
                            + "[\(old)]. If it sets upstream.network, set it to \(name).")
                }
            } catch {
                Failures.write(error)
                throw ExitCode(ExitStatus.failed)
            }
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
