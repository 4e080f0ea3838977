import NIOCore
import NIOEmbedded
import NIOPosix
import NIOSupport
import Synchronization
import TestKit
import Testing

/// The ends of connections whose gate is closed.
@Suite struct ActGateEndTests {
    private final class Switch: Sendable {
        let isOpen = Atomic<Bool>(false)
    }

    /// What has become of a write.
    private final class Outcome: Sendable {
        private let failed = Mutex<Bool?>(nil)

        init(_ written: EventLoopFuture<Void>) {
            written.whenComplete { result in
                self.failed.withLock { $0 = if case .failure = result { true } else { false } }
            }
        }

        /// Nil while the write is held.
        var isFailed: Bool? { failed.withLock { $0 } }
    }

    /// A connection in memory, with a clock that the test advances. Its gate is closed.
    private final class Line: Sendable {
        let switched = Switch()
        let gate: ActGate
        let channel = EmbeddedChannel()

        init(isActive: Bool = true, dropsAtClose: Bool = false) throws {
            let switched = switched
            gate = ActGate { switched.isOpen.load(ordering: .sequentiallyConsistent) }
            try channel.pipeline.syncOperations.addGate(gate, dropsAtClose: dropsAtClose)
            if isActive { try connect() }
        }

        deinit {
            open()
            _ = try? channel.finish(acceptAlreadyClosed: true)
        }

        func connect() throws { channel.connect(to: try SocketAddress(unixDomainSocketPath: "/peer"), promise: nil) }

        func set(_ isOpen: Bool) { switched.isOpen.store(isOpen, ordering: .sequentiallyConsistent) }

        /// A beat is answered.
        func open() {
            set(true)
            gate.open()
            channel.embeddedEventLoop.run()
        }

        func end() {
            gate.end()
            channel.embeddedEventLoop.run()
        }

        @discardableResult func write(_ text: String) -> Outcome {
            Outcome(channel.writeAndFlush(ByteBuffer(string: text)))
        }

        /// The peer sends something, and ends its side.
        func receiveLast(_ text: String) throws {
            if !text.isEmpty { try channel.writeInbound(ByteBuffer(string: text)) }
            channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        }

        /// What has gone to the socket.
        func sent() throws -> String {
            var text = ""
            while let bytes = try channel.readOutbound(as: ByteBuffer.self) { text += String(buffer: bytes) }
            return text
        }

        /// What has come from the gate.
        func received() throws -> String? { try channel.readInbound(as: ByteBuffer.self).map { String(buffer: $0) } }
    }

    private static let moment = TimeAmount.nanoseconds(1)

    /// Bytes that are dropped may be the middle of a line, of a message or of a TLS record.
    @Test func aStreamWithAHoleIsClosed() throws {
        let line = try Line()
        line.write("lost")
        line.end()
        #expect(!line.channel.isActive)
        line.open()
        line.write("later")
        #expect(try line.sent().isEmpty)
    }

    @Test func aConnectionThatLosesInputIsClosed() throws {
        let line = try Line()
        try line.channel.writeInbound(ByteBuffer(string: "lost"))
        line.end()
        #expect(!line.channel.isActive)
    }

    /// What is held by an ended gate is not lost if the gate opens before the connection learns of it.
    @Test func anEndedGateThatOpensPassesWhatIsHeld() throws {
        let line = try Line()
        line.end()
        #expect(line.channel.isActive)
        line.write("one")
        line.open()
        line.write("two")
        #expect(try line.sent() == "onetwo")
        #expect(line.channel.isActive)
    }

    /// A write in the callback of one that was held comes after what was held behind it.
    @Test func whatIsWrittenMeanwhileComesLast() throws {
        let line = try Line()
        line.channel.writeAndFlush(ByteBuffer(string: "one")).whenSuccess { line.write("three") }
        line.write("two")
        line.open()
        #expect(try line.sent() == "onetwothree")
    }

    /// An outage may be long, and connections come and go in it.
    @Test func aClosedConnectionDoesNotWait() throws {
        let line = try Line(dropsAtClose: true)
        let written = line.write("lost")
        line.channel.read()
        #expect(line.gate.waitingCount == 1)
        line.channel.close(promise: nil)
        #expect(line.gate.waitingCount == 0)
        #expect(written.isFailed == true)
        // The channel has its handlers until the next turn of the loop.
        let late = line.write("late")
        line.channel.read()
        #expect(line.gate.waitingCount == 0)
        #expect(late.isFailed != nil)
    }

    /// A peer that sends its last bytes and goes does not hold a connection for as long as the database is away.
    @Test(arguments: ["last", ""]) func aHeldEndIsBounded(_ text: String) throws {
        let line = try Line()
        let written = line.write("answer")
        try line.receiveLast(text)
        line.channel.embeddedEventLoop.advanceTime(by: ActGate.endPatience - Self.moment)
        #expect(line.channel.isActive)
        line.channel.embeddedEventLoop.advanceTime(by: Self.moment)
        #expect(!line.channel.isActive)
        #expect(written.isFailed == true)
        #expect(try line.received() == nil)
        #expect(try line.sent().isEmpty)
    }

    @Test func aHeldCloseIsBounded() throws {
        let line = try Line()
        line.write("answer")
        line.channel.close(promise: nil)
        line.channel.embeddedEventLoop.advanceTime(by: ActGate.endPatience - Self.moment)
        #expect(line.channel.isActive)
        line.channel.embeddedEventLoop.advanceTime(by: Self.moment)
        #expect(!line.channel.isActive)
    }

    @Test func aHeldEndThatPassesIsNotBounded() throws {
        let line = try Line()
        line.write("answer")
        try line.receiveLast("last")
        line.open()
        #expect(try line.received() == "last")
        #expect(try line.sent() == "answer")
        line.channel.embeddedEventLoop.advanceTime(by: ActGate.endPatience)
        #expect(line.channel.isActive)
    }

    /// A connection whose peer has not ended is held for as long as it takes.
    @Test func anOpenConnectionIsNotBounded() throws {
        let line = try Line()
        line.write("answer")
        try line.channel.writeInbound(ByteBuffer(string: "question"))
        line.channel.embeddedEventLoop.advanceTime(by: ActGate.endPatience + ActGate.endPatience)
        #expect(line.channel.isActive)
        line.open()
        #expect(try line.received() == "question")
        #expect(try line.sent() == "answer")
    }

    /// A refusal is written before the channel is registered.
    @Test func whatIsWrittenBeforeTheBeginningIsNotForgotten() throws {
        let line = try Line(isActive: false)
        let written = line.write("refusal")
        line.open()
        try line.connect()
        #expect(written.isFailed == false)
        #expect(try line.sent() == "refusal")
    }

    @Test func anEndedGateClosesAConnectionThatHasNotBegun() async throws {
        let gate = ActGate { false }
        gate.end()
        let outcomes = Mutex<[Outcome]>([])
        // On one event loop: what the initializer has begun ends before the channel is registered.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let server = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addGate(gate, dropsAtClose: false)
                    let written = Outcome(channel.writeAndFlush(ByteBuffer(string: "refusal")))
                    outcomes.withLock { $0.append(written) }
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let client = try await ClientBootstrap(group: group).connect(to: try #require(server.localAddress)).get()
        try await eventuallyAsync("the refusal fails") { outcomes.withLock { $0.first?.isFailed } == true }
        try await client.closeFuture.get()
        try await server.close()
        try await group.shutdownGracefully()
    }
}
