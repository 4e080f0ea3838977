import ArgumentParser
import Dispatch
import Glibc
import NIOCore
import NIOPosix

/// All tables, or one of them.
struct Tables: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "tables", abstract: "Prints the tables.")

    /// The tables' names.
    enum Name: String, CaseIterable, ExpressibleByArgument {
        case throughput, rooms, persistence, queue, history, memory, accounts, sidecar, proxy, ratchet, transports,
            messenger, postgres
    }

    @Option(help: "The pawl executable; without it a byte relay stands in.") var pawl: String?
    @Option(help: "The HAProxy executable.") var haproxy: String
    @Option(help: "The nginx executable.") var nginx: String?
    @Option(help: "The h2load executable, of nghttp2.") var h2load: String?
    @Option(help: "The directory with the ratchet's peers.") var ratchetPeers: String?
    @Option(help: "The directory with the queue's peers.") var queuePeers: String?
    @Option(help: "The library with the transports in Rust.") var rust: String?
    @Option(help: "An empty directory for stores and logs, on the file system to be measured.") var directory: String
    @Option(help: "Only this table.") var only: Name?
    @Flag(help: "A short run: the figures say less.") var quick = false

    func run() throws {
        let interruptions = [SIGINT, SIGTERM].map(Self.endAllOn)
        defer { interruptions.forEach { $0.cancel() } }
        guard let directory = realpath(self.directory, nil) else {
            throw Failure("\(self.directory): \(lastError())")
        }
        defer { free(directory) }
        let workbench = Workbench(
            pawl: self.pawl, haproxy: self.haproxy, directory: String(cString: directory),
            ratchetPeers: self.ratchetPeers, queuePeers: self.queuePeers, descriptors: try DescriptorLimit.raise())
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        for name in Name.allCases where self.only == nil || self.only == name {
            switch name {
            case .throughput:
                try ThroughputTable(workbench: workbench, group: group, isQuick: self.quick).print()
            case .rooms:
                try RoomsTable(workbench: workbench, group: group, isQuick: self.quick).print()
            case .persistence:
                try PersistenceTable(workbench: workbench, group: group, isQuick: self.quick).print()
            case .queue:
                try QueueTable(workbench: workbench, isQuick: self.quick).print()
            case .history:
                try HistoryTable(workbench: workbench, isQuick: self.quick).print()
            case .memory:
                try MemoryTable(workbench: workbench, group: group, isQuick: self.quick).print()
            case .ratchet:
                try RatchetTable(workbench: workbench, isQuick: self.quick).print()
            case .transports:
                try TransportTable(workbench: workbench, rust: self.rust, isQuick: self.quick).print()
            case .messenger:
                try MessengerTable(workbench: workbench, isQuick: self.quick).print()
            case .postgres:
                try PostgresTable(workbench: workbench, group: group, isQuick: self.quick).print()
            case .sidecar:
                try SidecarTable(workbench: workbench, isQuick: self.quick).print()
            case .proxy:
                try ProxyTable(
                    workbench: workbench, nginx: self.nginx, h2load: self.h2load, group: group, isQuick: self.quick
                ).print()
            case .accounts:
                try AccountTable(workbench: workbench, group: group, isQuick: self.quick).print()
            }
        }
        try group.syncShutdownGracefully()
    }

    /// Whoever interrupts the benchmark finds nothing left of it.
    private static func endAllOn(_ number: Int32) -> any DispatchSourceSignal {
        signal(number, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
        source.setEventHandler {
            ChildProcess.killAll()
            _exit(128 + number)
        }
        source.resume()
        return source
    }
}
