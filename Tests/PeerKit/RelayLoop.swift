import Glibc
import Synchronization

/// The thread behind `WireTap`: one `poll` loop over all its sockets.
final class RelayLoop: Sendable {
    struct State: Sendable {
        var recordings: [WireTap.Recording] = []
        var stallsClient = false
        var stallsServer = false
        var clientLimit: Int?
        var serverLimit: Int?
        /// Answers that are lost, by what stands in the requests.
        var losses: (mark: [UInt8], count: Int)?
        var tearsAll = false
        var refuses = false
        var clientRewriter: WireTap.Rewriter?
        var serverRewriter: WireTap.Rewriter?
        var injections: [(connection: Int?, direction: WireTap.Direction, bytes: [UInt8])] = []
        var stops = false
    }

    /// What one side has not taken yet. Reading from the other side pauses above this.
    private static let highWater = 256 * 1024

    let state = Mutex(State())
    private let listener: Int32
    private let backend: UInt16
    private let wakerOut: Int32
    private let wakerIn: Int32

    init(port: UInt16, backend: UInt16) throws {
        self.backend = backend
        listener = try LoopbackSocket.open()
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw PeerError("pipe: \(String(cString: strerror(errno)))") }
        (wakerOut, wakerIn) = (ends[0], ends[1])
        for end in ends {
            LoopbackSocket.setNonBlocking(end)
            _ = fcntl(end, F_SETFD, FD_CLOEXEC)
        }
        LoopbackSocket.setNonBlocking(listener)
        guard LoopbackSocket.bind(listener, to: port) == 0, listen(listener, 1024) == 0 else {
            throw PeerError("cannot listen on \(port): \(String(cString: strerror(errno)))")
        }
    }

    deinit {
        close(listener)
        close(wakerOut)
        close(wakerIn)
    }

    func change(_ body: (inout sending State) -> Void) {
        state.withLock { body(&$0) }
        _ = Glibc.write(wakerIn, [1], 1)
    }

    func stop() {
        change { $0.stops = true }
    }

    func run() {
        var links: [Link] = []
        while true {
            wait(links, state.withLock { $0 })
            // taken after the wait: what a test asked for before it spoke holds for what it said
            let now = state.withLock { state in
                let copy = state
                state.tearsAll = false
                state.injections = []
                return copy
            }
            if now.stops || now.tearsAll { links.forEach { $0.tear() } }
            if now.stops { break }
            for link in links { link.inject(now.injections, isNewest: link === links.last) }
            for link in links { link.relay(now, highWater: Self.highWater, record: record, loses: loses) }
            forget(&links)
            accept(&links)
        }
        forget(&links)
    }

    private func wait(_ links: [Link], _ now: State) {
        var entries = [listener, wakerOut].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        for link in links { entries += link.interest(now, highWater: Self.highWater) }
        // one second only bounds the harm of a lost wake-up
        poll(&entries, nfds_t(entries.count), 1000)
        var ignored = [UInt8](repeating: 0, count: 64)
        while Glibc.read(wakerOut, &ignored, ignored.count) > 0 {}
    }

    private func accept(_ links: inout [Link]) {
        while true {
            let client = Glibc.accept(listener, nil, nil)
            guard client >= 0 else { return }
            _ = fcntl(client, F_SETFD, FD_CLOEXEC)
            // As it is now: a test that has seen a connection end may have asked for it since the loop last looked.
            guard !state.withLock({ $0.refuses }), let server = try? LoopbackSocket.open() else {
                LoopbackSocket.reset(client)
                continue
            }
            guard LoopbackSocket.connect(server, to: backend) == 0 else {
                close(server)
                LoopbackSocket.reset(client)
                continue
            }
            let id = state.withLock { state in
                state.recordings.append(WireTap.Recording(id: state.recordings.count))
                return state.recordings.count - 1
            }
            links.append(Link(id: id, client: client, server: server))
        }
    }

    /// Whether the answer to this request is one of those to be lost.
    private func loses(_ request: [UInt8]) -> Bool {
        state.withLock { state in
            guard let losses = state.losses, losses.count > 0, request.firstRange(of: losses.mark) != nil else {
                return false
            }
            state.losses?.count -= 1
            return true
        }
    }

    private func record(_ id: Int, _ direction: WireTap.Direction, _ bytes: ArraySlice<UInt8>) {
        state.withLock { state in
            if direction == .fromClient {
                state.recordings[id].fromClient += bytes
            } else {
                state.recordings[id].fromServer += bytes
            }
        }
    }

    private func forget(_ links: inout [Link]) {
        let gone = links.filter { $0.isOver }
        guard !gone.isEmpty else { return }
        state.withLock { state in
            for link in gone { state.recordings[link.id].isOpen = false }
        }
        links.removeAll { $0.isOver }
    }
}

/// Two sockets and what is on its way between them. Only the loop's thread touches it.
private final class Link {
    private struct Side {
        let socket: Int32
        var taken = 0
        /// The beginning of a line, kept while lines are rewritten.
        var partial: [UInt8] = []
        /// Read from this side, not yet written to the other.
        var queue: [UInt8] = []
        var atLineStart = true
        /// Lines to say once the line that is under way has ended.
        var injected: [UInt8] = []
        var ended = false
        var broken = false
        var endPassedOn = false
    }

    let id: Int
    /// What the client has said since the server spoke last, while answers are to be lost.
    private var request: [UInt8] = []
    private var client: Side
    private var server: Side
    private(set) var isOver = false

    init(id: Int, client: Int32, server: Int32) {
        self.id = id
        self.client = Side(socket: client)
        self.server = Side(socket: server)
        for socket in [client, server] {
            LoopbackSocket.setNonBlocking(socket)
            LoopbackSocket.set(socket, Int32(IPPROTO_TCP), TCP_NODELAY, 1)
        }
    }

    func tear() {
        guard !isOver else { return }
        isOver = true
        LoopbackSocket.reset(client.socket)
        LoopbackSocket.reset(server.socket)
    }

    func inject(
        _ injections: [(connection: Int?, direction: WireTap.Direction, bytes: [UInt8])], isNewest: Bool
    ) {
        for injection in injections where injection.connection == id || (injection.connection == nil && isNewest) {
            if injection.direction == .fromClient {
                Self.inject(injection.bytes, into: &client)
            } else {
                Self.inject(injection.bytes, into: &server)
            }
        }
    }

    func interest(_ now: RelayLoop.State, highWater: Int) -> [pollfd] {
        [
            interest(client, towards: server, stalled: now.stallsClient, highWater),
            interest(server, towards: client, stalled: now.stallsServer, highWater),
        ]
    }

    func relay(
        _ now: RelayLoop.State, highWater: Int,
        record: (Int, WireTap.Direction, ArraySlice<UInt8>) -> Void, loses: ([UInt8]) -> Bool
    ) {
        guard !isOver else { return }
        var hasAnswer = false
        if !now.stallsClient, client.queue.count < highWater {
            read(&client, limit: now.clientLimit, now.clientRewriter) {
                record(id, .fromClient, $0)
                if now.losses != nil { request += $0 }
            }
        }
        if !now.stallsServer, server.queue.count < highWater {
            read(&server, limit: now.serverLimit, now.serverRewriter) {
                record(id, .fromServer, $0)
                hasAnswer = true
            }
        }
        if hasAnswer {
            if loses(request) { return tear() }
            request = []
        }
        write(&client, to: server.socket)
        write(&server, to: client.socket)
        if client.broken || server.broken || reached(now.clientLimit, client) || reached(now.serverLimit, server) {
            tear()
        } else if client.endPassedOn, server.endPassedOn {
            isOver = true
            close(client.socket)
            close(server.socket)
        }
    }

    private func interest(_ side: Side, towards other: Side, stalled: Bool, _ highWater: Int) -> pollfd {
        var events: Int32 = 0
        if !stalled, !side.ended, side.queue.count < highWater { events |= POLLIN }
        if !other.queue.isEmpty { events |= POLLOUT }
        // a hang-up is reported even when nobody asks, and would make the loop spin
        return pollfd(fd: events == 0 ? -1 : side.socket, events: Int16(events), revents: 0)
    }

    private func reached(_ limit: Int?, _ side: Side) -> Bool {
        guard let limit else { return false }
        return side.taken >= limit && side.queue.isEmpty
    }

    private func read(
        _ side: inout Side, limit: Int?, _ rewriter: WireTap.Rewriter?, record: (ArraySlice<UInt8>) -> Void
    ) {
        guard !side.ended, !side.broken else { return }
        var room = 65_536
        if let limit { room = min(room, limit - side.taken) }
        guard room > 0 else { return }
        var buffer = [UInt8](repeating: 0, count: room)
        let count = recv(side.socket, &buffer, room, 0)
        if count > 0 {
            let bytes = buffer[..<count]
            side.taken += count
            record(bytes)
            Self.take(bytes, into: &side, rewriter)
        } else if count == 0 {
            side.queue += side.partial
            side.partial = []
            side.ended = true
        } else if errno != EAGAIN, errno != EINTR {
            side.broken = true
        }
    }

    private func write(_ side: inout Side, to other: Int32) {
        guard !side.broken else { return }
        if !side.queue.isEmpty {
            let count = side.queue.withUnsafeBytes { send(other, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if count > 0 {
                side.queue.removeFirst(count)
            } else if count < 0, errno != EAGAIN, errno != EINTR {
                side.broken = true
                return
            }
        }
        if side.ended, side.queue.isEmpty, !side.endPassedOn {
            side.endPassedOn = true
            shutdown(other, Int32(SHUT_WR))
        }
    }

    private static func inject(_ line: [UInt8], into side: inout Side) {
        if side.atLineStart {
            side.queue += line
        } else {
            side.injected += line
        }
    }

    private static func take(_ bytes: ArraySlice<UInt8>, into side: inout Side, _ rewriter: WireTap.Rewriter?) {
        if let rewriter {
            side.partial += bytes
            while let end = side.partial.firstIndex(of: 10) {
                for line in rewriter(Array(side.partial[...end])) { side.queue += line }
                side.partial.removeFirst(end + 1)
                flushInjected(&side)
            }
            return
        }
        let bytes = side.partial + bytes
        side.partial = []
        var rest = bytes[...]
        if !side.injected.isEmpty, let end = bytes.firstIndex(of: 10) {
            side.queue += bytes[...end]
            flushInjected(&side)
            rest = bytes[(end + 1)...]
        }
        side.queue += rest
        side.atLineStart = bytes.last == 10
    }

    private static func flushInjected(_ side: inout Side) {
        side.queue += side.injected
        side.injected = []
        side.atLineStart = true
    }
}
