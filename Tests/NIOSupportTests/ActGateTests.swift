import NIOCore
import NIOPosix
import NIOSupport
import Synchronization
import TestKit
import Testing

/// A connection whose gateway may not act holds what it reads and what it writes.
@Suite struct ActGateTests {
    /// Collects what it reads, and answers each line.
    private final class Echo: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let seen: Seen

        init(_ seen: Seen) { self.seen = seen }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let text = String(buffer: unwrapInboundIn(data))
            seen.add(text)
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: "answer")), promise: nil)
        }

        func channelReadComplete(context: ChannelHandlerContext) {
            context.read()
            context.fireChannelReadComplete()
        }

        func channelActive(context: ChannelHandlerContext) { context.read() }
    }

    private final class Seen: Sendable {
        private let texts = Mutex("")

        func add(_ text: String) { texts.withLock { $0 += text } }

        var text: String { texts.withLock { $0 } }
    }

    private final class Switch: Sendable {
        let isOpen = Atomic<Bool>(true)
    }

    private struct Pair {
        let group = MultiThreadedEventLoopGroup.singleton
        let switched = Switch()
        let gate: ActGate
        /// What the gateway's side has read, and what its client has.
        let seen = Seen()
        let answers = Seen()
        let server: any Channel
        let accepted: any Channel
        let client: any Channel

        init(dropsAtClose: Bool = false) async throws {
            let switched = switched
            let gate = ActGate { switched.isOpen.load(ordering: .sequentiallyConsistent) }
            self.gate = gate
            let (seen, answers) = (seen, answers)
            let promise = group.next().makePromise(of: (any Channel).self)
            server = try await ServerBootstrap(group: group)
                .childChannelOption(.autoRead, value: false)
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addGate(gate, dropsAtClose: dropsAtClose)
                        try channel.pipeline.syncOperations.addHandler(Echo(seen))
                        promise.succeed(channel)
                    }
                }
                .bind(host: "127.0.0.1", port: 0).get()
            client = try await ClientBootstrap(group: group)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(Reader(answers))
                    }
                }
                .connect(to: try #require(server.localAddress)).get()
            let accepted = try await promise.futureResult.get()
            self.accepted = accepted
            // The initialiser runs before that.
            try await eventuallyAsync("the connection is accepted") { accepted.isActive }
        }

        func set(_ isOpen: Bool) { switched.isOpen.store(isOpen, ordering: .sequentiallyConsistent) }

        /// A write of the gateway. It may wait for the gate.
        func write(_ text: String) -> EventLoopFuture<Void> { accepted.writeAndFlush(ByteBuffer(string: text)) }

        func end() -> EventLoopFuture<Void> { accepted.close() }

        func send(_ text: String) async throws { try await client.writeAndFlush(ByteBuffer(string: text)) }

        func close() async throws {
            try? await client.close()
            try await server.close()
        }
    }

    private final class Reader: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let seen: Seen

        init(_ seen: Seen) { self.seen = seen }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            seen.add(String(buffer: unwrapInboundIn(data)))
        }
    }

    @Test func aClosedGateHoldsBothDirections() async throws {
        let pair = try await Pair()
        try await pair.send("one")
        try await eventuallyAsync("an answer") { pair.answers.text == "answer" }
        pair.set(false)
        // The read that was asked for before brings bytes that are held; no further ones are read.
        try await pair.send("two")
        let written = pair.write("secret")
        let writes = Seen()
        written.whenComplete { _ in writes.add("written") }
        // A turn of the loop after the write shows that it is held.
        try await pair.accepted.eventLoop.submit {}.get()
        pair.gate.open()
        try await pair.accepted.eventLoop.submit {}.get()
        #expect(writes.text.isEmpty)
        #expect(pair.seen.text == "one" && pair.answers.text == "answer")
        pair.set(true)
        pair.gate.open()
        try await eventuallyAsync("what was held, in its order") {
            pair.seen.text == "onetwo" && pair.answers.text == "answersecretanswer"
        }
        try await pair.close()
    }

    /// Marks what passes it, as TLS does.
    private final class Mark: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            let text = String(buffer: unwrapOutboundIn(data))
            context.write(wrapOutboundOut(ByteBuffer(string: "<\(text)>")), promise: promise)
        }
    }

    /// The answer to STARTTLS is held while TLS is added: it goes out in the clear.
    @Test func whatIsHeldPassesNoHandlerThatComesLater() async throws {
        let pair = try await Pair()
        pair.set(false)
        let (plain, accepted) = (pair.write("plain"), pair.accepted)
        try await accepted.eventLoop.submit { try accepted.pipeline.syncOperations.addBehindGate(Mark()) }.get()
        pair.set(true)
        pair.gate.open()
        try await plain.get()
        try await pair.write("sealed").get()
        try await eventuallyAsync("both") { pair.answers.text == "plain<sealed>" }
        try await pair.close()
    }

    @Test func aCloseWaitsForWhatIsHeldBefore() async throws {
        let pair = try await Pair()
        pair.set(false)
        _ = pair.write("last")
        let closed = pair.end()
        try await pair.accepted.eventLoop.submit {}.get()
        #expect(pair.accepted.isActive)
        pair.set(true)
        pair.gate.open()
        try await closed.get()
        try await eventuallyAsync("the last line") { pair.answers.text == "last" }
        try await pair.close()
    }

    /// A request that was given up is not sent later.
    @Test func aCloseDropsWhatIsHeldForABackend() async throws {
        let pair = try await Pair(dropsAtClose: true)
        pair.set(false)
        let written = pair.write("request")
        try await pair.end().get()
        await #expect(throws: (any Error).self) { try await written.get() }
        pair.set(true)
        pair.gate.open()
        try await pair.client.closeFuture.get()
        #expect(pair.answers.text.isEmpty)
        try await pair.close()
    }

    @Test func anEndedGateDropsWhatItHolds() async throws {
        let pair = try await Pair()
        pair.set(false)
        let written = pair.write("secret")
        let closed = pair.end()
        pair.gate.end()
        await #expect(throws: (any Error).self) { try await written.get() }
        try await closed.get()
        try await pair.client.closeFuture.get()
        #expect(pair.answers.text.isEmpty)
        try await pair.close()
    }
}
