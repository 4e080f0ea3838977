import ArgumentParser

/// The benchmarks: the tables, and the processes they are made of.
///
/// Every process whose time is accounted is one of its own: the executable starts itself again with a subcommand.
@main
struct Benchmarks: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "Benchmarks",
        abstract: "Measures pawl beside its peers, in one run, and prints Markdown tables.",
        subcommands: [
            Tables.self, Load.self, RoomLoad.self, Idle.self, RelaySink.self, ByteRelay.self, RawSQLite.self,
            RatchetLoad.self, OMEMOLoad.self, QueueLoad.self, QueueShare.self, QueueSockets.self, RawQueue.self,
            HistoryLoad.self, RawHistory.self, HTTPBackend.self, TransportLoad.self, MessengerLoad.self,
            MessengerFill.self, MessengerOpen.self, StoreLoad.self,
        ])
}
