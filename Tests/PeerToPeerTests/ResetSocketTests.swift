import NIOCore
import NIOPosix
import PawlMessenger
import Testing

@testable import PawlPeerToPeerTCP

/// A socket that the other side resets as soon as it is connected.
@Suite struct ResetSocketTests {
    /// It would be taken for the connection, its end would be reported to nobody, and no other address would be used.
    @Test func aSocketThatWasResetIsNoConnection() async throws {
        let group = MultiThreadedEventLoopGroup.singleton
        let factory = IPv6TCPP2PTransportClientFactory(addresses: .listed(["127.0.0.1"]))
        let client = IPv6TCPP2PTransportClient(
            state: P2PFrameworkState(
                username: "bob", deviceId: try #require(DeviceId("00000000000000ff")),
                transportLayerIdentifier: "_ipv6-tcp"), on: group.next())
        let token = [UInt8](repeating: 1, count: TCPLimits.tokenSize)
        let server = try await ServerBootstrap(group: group).bind(host: "127.0.0.1", port: 0).get()
        let address = try #require(server.localAddress)
        let reset = try await ClientBootstrap(group: group).connect(to: address).get()
        try await reset.close()
        let isUsed = try await reset.eventLoop.submit { try factory.use(reset, by: client, token) }.get()
        #expect(!isUsed && client.connected == .connecting)
        let next = try await ClientBootstrap(group: group).connect(to: address).get()
        let isNextUsed = try await next.eventLoop.submit { try factory.use(next, by: client, token) }.get()
        #expect(isNextUsed && client.connected == .connected)
        try await next.close()
        try await server.close()
    }
}
