/// What a load client's connections share: who owes a flush, and what was seen. Belongs to one event loop.
final class LoadRecord {
    /// The room that all join; none where they talk in pairs.
    let room: RoomTalk?
    /// Arrivals are only counted: nobody has one peer.
    var isRing = false
    var ringArrivals = 0
    /// Whether no more texts are said.
    var isStopping = false
    /// Arrivals whose number was not the next.
    var disordered = 0
    /// Error numerics, and messages that nobody said.
    private(set) var faults = 0
    /// The last of them.
    private(set) var lastFault = "none"
    /// Connections that are open.
    private(set) var connections: [LoadConnection] = []
    private(set) var latencies = Histogram()
    private(set) var isMeasuring = false
    private var unflushed: [LoadConnection] = []

    init(room: String? = nil) {
        self.room = room.map(RoomTalk.init)
    }

    /// Takes part of a new connection.
    func opened(_ connection: LoadConnection) {
        self.connections.append(connection)
    }

    /// Forgets a connection that is gone.
    func closed(_ connection: LoadConnection) {
        if !self.isStopping {
            self.fault("\(connection.nick) was closed")
        }
    }

    /// Forgets what was measured, and measures from now on.
    func beginMeasuring() {
        self.latencies = Histogram()
        self.isMeasuring = true
    }

    /// Measures no longer.
    func endMeasuring() {
        self.isMeasuring = false
    }

    /// Counts a text that arrived.
    func arrival(_ nanoseconds: UInt64) {
        if self.isMeasuring {
            self.latencies.record(nanoseconds: nanoseconds)
        }
    }

    /// Counts something that should not have come.
    func fault(_ line: String) {
        self.faults += 1
        self.lastFault = line
    }

    /// Remembers that a connection has bytes to be flushed.
    func owesFlush(_ connection: LoadConnection) {
        self.unflushed.append(connection)
    }

    /// One flush for each connection that something was written to.
    func flush() {
        for connection in self.unflushed {
            connection.flush()
        }
        self.unflushed.removeAll(keepingCapacity: true)
    }
}
