import ArgumentParser
import NIOCore
import NIOPosix

/// A minimal IRC server that relays messages to people and rooms and does nothing else, so that a benchmark measures what stands
/// in front of it.
struct RelaySink: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "relay-sink", abstract: "An IRC server that only relays messages.")

    @Option(help: "The port on 127.0.0.1.") var port: Int
    @Flag(help: "Offer no capability at all.") var bare = false
    @Flag(help: "Log everybody in to an account named as the nick.") var login = false
    @Flag(help: "Refuse the load's texts as they are: what stands in front has to seal them.") var sealed = false

    func run() throws {
        try DescriptorLimit.raise()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let capabilities: SinkCapabilities = self.bare ? [] : .all
        let isSealed = self.sealed
        let logsIn = self.login
        let directory = try loop.submit {
            NIOLoopBound(
                SinkDirectory(offered: capabilities, isSealed: isSealed, logsIn: logsIn), eventLoop: loop)
        }.wait()
        let server = try ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 4096)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(SinkConnection(directory: directory.value))
                }
            }
            .bind(host: "127.0.0.1", port: self.port).wait()
        print("ready")
        flushOutput()
        try server.closeFuture.wait()
    }
}
