import PawlMessenger
import PawlPeerToPeerTCP
import Synchronization
import TestKit
import Testing

/// What every transport promises, in memory and over real sockets.
@Suite struct TransportConformanceTests {
    /// The gateway of a relay, which ends with the test.
    private final class Keeper: Sendable {
        let lab = Mutex<RelayLab?>(nil)
    }

    private let keeper = Keeper()

    private func pair(_ kind: TransportKind) async throws -> FactoryPair {
        guard kind != .relay else {
            let lab = try await RelayLab()
            keeper.lab.withLock { $0 = lab }
            return try await lab.pair()
        }
        let network = SpoofP2PNetwork()
        return FactoryPair(kind.factory(network), kind.factory(network))
    }

    private func end(_ clients: any P2PTransportClient...) async {
        for client in clients { try? await client.disconnect() }
    }

    @Test(arguments: TransportKind.allCases) func packetsArriveWholeOnceAndInOrder(_ kind: TransportKind) async throws {
        let (one, other) = try await pair(kind).connect()
        let (first, second) = (Recorder(), Recorder())
        (one.delegate, other.delegate) = (first, second)
        var generator = SeededGenerator(seed: 153)
        var sizes = [1, 2, 1000, 65_535, 65_536, P2PSettings.packetLimit]
        sizes += (0..<200).map { _ in 1 + generator.below(3000) }
        let packets = sizes.map { generator.bytes($0) }
        async let forth: Void = {
            for packet in packets { try await one.sendMessage(packet) }
        }()
        async let back: Void = {
            for packet in packets.reversed() { try await other.sendMessage(packet) }
        }()
        _ = try await (forth, back)
        try await eventuallyAsync("all have come") {
            second.events.packets.count >= packets.count && first.events.packets.count >= packets.count
        }
        #expect(second.events.packets == packets)
        #expect(first.events.packets == packets.reversed())
        #expect(first.events.opened == 1 && second.events.opened == 1)
        await end(one, other)
    }

    /// What is sent at once, if the transport can, keeps the order with what waits.
    @Test(arguments: TransportKind.allCases) func packetsSentAtOnceKeepTheOrder(_ kind: TransportKind) async throws {
        let (one, other) = try await pair(kind).connect()
        let recorder = Recorder()
        other.delegate = recorder
        #expect(!one.sendAtOnce([]) && !one.sendAtOnce([UInt8](repeating: 1, count: P2PSettings.packetLimit + 1)))
        let packets = (0..<300).map { [UInt8](repeating: UInt8($0 % 251), count: $0 % 7 == 0 ? 50_000 : 1 + $0) }
        var atOnce = 0
        for packet in packets {
            if one.sendAtOnce(packet) { atOnce += 1 } else { try await one.sendMessage(packet) }
        }
        if case .tcpIPv6 = kind { #expect(atOnce > 0) }
        try await one.disconnect()
        try await eventuallyAsync("the end has come") { recorder.events.closed == 1 }
        #expect(recorder.events.packets == packets)
        #expect(!one.sendAtOnce([1]))
        await end(other)
    }

    @Test(arguments: TransportKind.allCases) func packetsWaitForTheDelegate(_ kind: TransportKind) async throws {
        let (one, other) = try await pair(kind).connect()
        for number in 0..<20 { try await one.sendMessage([UInt8(number)]) }
        try await one.disconnect()
        let recorder = Recorder()
        other.delegate = recorder
        try await eventuallyAsync("the end has come") { recorder.events.closed == 1 }
        #expect(recorder.events.packets == (0..<20).map { [UInt8($0)] })
        #expect(recorder.events.opened == 1)
        await end(other)
    }

    @Test(arguments: TransportKind.allCases) func anEndIsSeenOnBothSides(_ kind: TransportKind) async throws {
        let (one, other) = try await pair(kind).connect()
        let (first, second) = (Recorder(), Recorder())
        (one.delegate, other.delegate) = (first, second)
        try await one.sendMessage([1])
        try await one.disconnect()
        try await one.disconnect()
        try await eventuallyAsync("both have seen the end") {
            first.events.closed > 0 && second.events.closed > 0
        }
        #expect(second.events.packets == [[1]])
        #expect(one.connected == .disconnected && other.connected == .disconnected)
        #expect(first.events.closed == 1 && second.events.closed == 1)
        for client in [one, other] {
            await #expect(throws: (any Error).self) { try await client.sendMessage([1]) }
        }
    }

    @Test(arguments: TransportKind.allCases) func packetsHaveABoundedLength(_ kind: TransportKind) async throws {
        for packet in [[], [UInt8](repeating: 1, count: P2PSettings.packetLimit + 1)] {
            let (one, other) = try await pair(kind).connect()
            let recorder = Recorder()
            other.delegate = recorder
            await #expect(throws: (any Error).self) { try await one.sendMessage(packet) }
            #expect(recorder.events.packets.isEmpty)
            await end(one, other)
        }
    }

    @Test(arguments: TransportKind.allCases) func theDelegateIsCapturedWeakly(_ kind: TransportKind) async throws {
        let (one, other) = try await pair(kind).connect()
        var recorder: Recorder? = Recorder()
        weak let weakly = recorder
        one.delegate = recorder
        recorder = nil
        try await eventuallyAsync("it is released") { weakly == nil && one.delegate == nil }
        await end(one, other)
    }

    @Test(arguments: TransportKind.allCases) func theStateIsThatOfTheHandle(_ kind: TransportKind) async throws {
        let (one, other) = try await pair(kind).connect()
        #expect(one.state.username == "bob" && other.state.username == "alice")
        #expect(one.state.transportLayerIdentifier == other.state.transportLayerIdentifier)
        await end(one, other)
    }
}
