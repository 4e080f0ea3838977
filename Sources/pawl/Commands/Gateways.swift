// Commands about the gateways of one database. Each of them answers, whether it serves or stands by.

import ArgumentParser
import Foundation
import PostgresStore
import StorePort

/// A command about the gateways of a database.
protocol ClusterCommand: AdminCommand {
    /// The URI of the database, if no gateway is asked.
    var database: String? { get }
    func answer(_ table: any GatewayTable) async throws -> AdminAnswer
}

extension ClusterCommand {
    /// In a shell: asks a gateway, or reads the database.
    func run() async throws {
        guard let database else {
            return try await AdminClient(common).perform(Array(CommandLine.arguments.dropFirst()))
        }
        do {
            print(try await answer(GatewayObserver(StoreAddress(database))).out)
        } catch {
            throw Failures.write(error)
        }
    }

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        guard let standby = gateway.standby else {
            throw AdminFailure(
                .noGateways,
                "The store of this gateway is a file, so no other gateway uses it. Several gateways need a database: "
                    + "store.url.")
        }
        return try await answer(standby.membership)
    }
}

/// `pawl gateways`
struct Gateways: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gateways",
        abstract: "List the gateways of the database, drain one, or forget one that does not run.",
        subcommands: [List.self, DrainOne.self, Forget.self], defaultSubcommand: List.self)

    /// The state of a gateway in words.
    static func words(_ state: GatewayEntry.State) -> String {
        switch state {
        case .serving: "serving"
        case .standingBy: "standing by"
        case .draining: "draining"
        case .silent: "silent"
        }
    }

    /// Finds a gateway by its id or its name.
    ///
    /// - Throws: ``AdminFailure`` if there is none, or more than one.
    static func gateway(_ text: String, of table: any GatewayTable) throws -> GatewayEntry {
        let entries = table.gateways()
        if let entry = entries.first(where: { hex($0.id) == text }) { return entry }
        let named = entries.filter { $0.name == text }
        guard let entry = named.first else {
            throw AdminFailure(.noSuchGateway, "No gateway of the database has the name or the id \(text).")
        }
        guard named.count == 1 else {
            throw AdminFailure(
                .noSuchGateway,
                "\(named.count) gateways have the name \(text). Use an id: "
                    + named.map { hex($0.id) }.joined(separator: ", ") + ".")
        }
        return entry
    }

    static func hex(_ id: UInt64) -> String { String(id, radix: 16) }

    /// `pawl gateways list`
    struct List: ClusterCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the gateways of the database.",
            discussion: """
                One serves, the others stand by. A gateway is silent if its beat has not changed in five readings of this \
                one; no clock of another machine is read.
                """)
        @Option(help: "The URI of the database, if no gateway is to be asked. It takes 3 s.") var database: String?
        @OptionGroup var common: CommonOptions

        struct Row: Codable {
            var id: String
            var name: String
            var state: String
            /// Whether it is the one that answers.
            var isSelf: Bool
            /// Readings of this gateway since its beat has changed.
            var beatReads: Int
            /// The time since then, in seconds of this gateway's clock.
            var beatAge: Double
            var shards: Int
            var version: String
            var connections: Int

            enum CodingKeys: String, CodingKey {
                case id, name, state
                case isSelf = "self"
                case beatReads, beatAge, shards, version, connections
            }
        }

        struct Report: Codable {
            var gateways: [Row]
        }

        func answer(_ table: any GatewayTable) async throws -> AdminAnswer {
            let entries = table.gateways()
            guard !common.json else {
                return try .json(
                    Report(
                        gateways: entries.map {
                            Row(
                                id: hex($0.id), name: $0.name, state: $0.state.rawValue, isSelf: $0.isSelf,
                                beatReads: $0.unchangedReads, beatAge: Double($0.beatAge) / 1000, shards: $0.shards,
                                version: $0.program, connections: $0.connections)
                        }))
            }
            return .text(
                Table.text(
                    ["NAME", "STATE", "BEAT", "SHARDS", "CLIENTS", "VERSION", "ID"],
                    entries.map {
                        [
                            $0.name + ($0.isSelf ? " (this one)" : ""), words($0.state),
                            "\(Double($0.beatAge / 100) / 10) s ago", "\($0.shards)", "\($0.connections)", $0.program,
                            hex($0.id),
                        ]
                    }))
        }
    }

    /// `pawl gateways drain`
    struct DrainOne: ClusterCommand {
        static let configuration = CommandConfiguration(
            commandName: "drain",
            abstract: "Have a gateway end its connections, hand over to one that stands by, and stop.",
            discussion: """
                The request is written into the database, and the gateway reads it with its next beat. Its process ends with \
                exit code 0, so that a service manager does not start it again.
                """)
        @Argument(help: "The name or the id of the gateway.") var gateway: String
        @Flag(help: "Also if no other gateway stands by, so that nobody serves.") var yes = false
        @Option(help: "The URI of the database, if no gateway is to be asked. It takes 3 s.") var database: String?
        @OptionGroup var common: CommonOptions

        func answer(_ table: any GatewayTable) async throws -> AdminAnswer {
            let entry = try Gateways.gateway(gateway, of: table)
            guard entry.state != .silent else {
                throw AdminFailure(
                    .noSuchGateway,
                    "\(entry.name) does not run: its beat has not changed. Remove its row: pawl gateways forget "
                        + "\(hex(entry.id))")
            }
            let isCovered = table.gateways().contains { $0.state == .standingBy && $0.id != entry.id }
            guard entry.state != .serving || isCovered || yes else {
                throw AdminFailure(
                    .noStandby,
                    "No other gateway stands by, so nobody would serve clients. Start another one first, or add --yes.")
            }
            guard try table.ask(entry.id) else {
                throw AdminFailure(.noSuchGateway, "\(entry.name) has just left the database.")
            }
            return try .done("\(entry.name) drains: it hands over and ends.", json: common.json)
        }
    }

    /// `pawl gateways forget`
    struct Forget: ClusterCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove the row of a gateway that does not run. A running one ends if its row is removed.",
            discussion: "Rows of silent gateways are removed after two minutes by themselves.")
        @Argument(help: "The id of the gateway, as pawl gateways shows it.") var gateway: String
        @Option(help: "The URI of the database, if no gateway is to be asked. It takes 3 s.") var database: String?
        @OptionGroup var common: CommonOptions

        func answer(_ table: any GatewayTable) async throws -> AdminAnswer {
            let entry = try Gateways.gateway(gateway, of: table)
            guard let wasThere = try table.forget(entry.id) else {
                throw AdminFailure(
                    .gatewayRuns, "\(entry.name) runs: its beat rises. To stop it: pawl gateways drain \(entry.name)")
            }
            return try .done(
                wasThere ? "The row of \(entry.name) is removed." : "\(entry.name) has left, or runs again.",
                json: common.json)
        }
    }
}

/// `pawl shards`
struct Shards: ClusterCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the shards of the database, their owners, epochs and commits.",
        discussion: "For now one gateway owns all of them.")
    @Option(help: "The URI of the database, if no gateway is to be asked. It takes 3 s.") var database: String?
    @OptionGroup var common: CommonOptions

    struct Row: Codable {
        var shard: Int
        var owner: String?
        var name: String?
        var epoch: UInt64
        var commits: Int64
    }

    struct Report: Codable {
        var shards: [Row]
    }

    func answer(_ table: any GatewayTable) async throws -> AdminAnswer {
        let rows = table.shardEntries().map {
            Row(
                shard: $0.shard, owner: $0.owner.map(Gateways.hex), name: $0.name, epoch: $0.epoch,
                commits: $0.commits)
        }
        if common.json { return try .json(Report(shards: rows)) }
        return .text(
            Table.text(
                ["SHARD", "OWNER", "EPOCH", "COMMITS"],
                rows.map { ["\($0.shard)", $0.name ?? $0.owner ?? "none", "\($0.epoch)", "\($0.commits)"] }))
    }
}
