import PawlMessenger
import TestKit
import Testing

/// Connections over a network with faults.
@Suite struct FaultTests {
    /// What an acknowledged message promises, whatever happens to packets: the app has taken it, once and in order.
    @Test(arguments: [1, 2, 3, 4, 5, 6] as [UInt64])
    func acknowledgedMessagesWereTakenOnceAndInOrder(seed: UInt64) async throws {
        let network = SpoofP2PNetwork(seed: seed)
        var settings = patient
        settings.connectTime = .seconds(5)
        settings.acknowledgementTime = .seconds(1)
        let couple = try await Couple(.memory, alice: settings, bob: settings, network: network)
        var faults = SpoofP2PNetwork.Faults()
        (faults.drop, faults.delay, faults.disconnect, faults.flip) = (3, 10, 2, 3)
        var acknowledged: [[UInt8]] = []
        var sent: UInt8 = 0
        var losses = 0
        // Eight connections, and more where a busy machine has let all of them fail.
        var rounds = 0
        while rounds < 8 || (rounds < 60 && sent < 230 && (acknowledged.isEmpty || losses == 0)) {
            rounds += 1
            network.setFaults(SpoofP2PNetwork.Faults())
            let result = try await couple.alice.chat("bob").buildP2PConnections()
            guard let client = result.clients.first else { continue }
            network.setFaults(faults)
            do {
                for _ in 0..<20 {
                    sent += 1
                    try await client.sendMessage([sent])
                    acknowledged.append([sent])
                }
                await client.disconnect()
            } catch P2PError.closed {
                losses += 1
            }
        }
        let taken = couple.bob.handler.events.messages
        #expect(Set(acknowledged).isSubset(of: Set(taken)), "seed \(seed)")
        #expect(taken == taken.sorted { $0[0] < $1[0] } && Set(taken).count == taken.count, "seed \(seed)")
        #expect(!acknowledged.isEmpty && losses > 0, "seed \(seed)")
        couple.close()
    }

    /// A changed bit ends the connection with its reason, and the app is told.
    @Test func aFlippedBitEndsTheConnection() async throws {
        let couple = try await Couple(.memory)
        let (alice, bob) = try await couple.connect()
        var faults = SpoofP2PNetwork.Faults()
        faults.flip = 100
        couple.network.setFaults(faults)
        await #expect(throws: P2PError.self) { try await alice.sendMessage([1, 2, 3]) }
        #expect(couple.bob.handler.events.messages.isEmpty)
        try await eventuallyAsync("both are closed") { alice.closeReason != nil && bob.closeReason != nil }
        // The first byte names the kind of the packet.
        #expect([.notAuthentic, .protocolError].contains(bob.closeReason))
        #expect(alice.closeReason == .lost)
        couple.close()
    }

    @Test func aLostConnectionIsReportedToAllWhoWait() async throws {
        let couple = try await Couple(.memory)
        let (alice, bob) = try await couple.connect()
        couple.bob.handler.change { $0.isHolding = true }
        let sending = Task {
            await withTaskGroup(of: Bool.self) { group in
                for number in 0..<150 {
                    group.addTask { (try? await alice.sendMessage([UInt8(number)])) == nil }
                }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
        }
        try await eventuallyAsync("bob's app works on the first") { couple.bob.handler.events.messages.count == 1 }
        var faults = SpoofP2PNetwork.Faults()
        faults.disconnect = 100
        couple.network.setFaults(faults)
        try? await bob.updateStatus(flags: .isTyping)
        #expect(await sending.value == 150)
        #expect(alice.closeReason == .lost)
        couple.bob.handler.change { $0.isHolding = false }
        couple.close()
    }

    /// A handshake that is never finished ends with the attempt, and leaves no socket.
    @Test func anAttemptThatDoesNotFinishEnds() async throws {
        let couple = try await Couple(.memory, alice: impatient, bob: impatient)
        var faults = SpoofP2PNetwork.Faults()
        faults.drop = 100
        couple.network.setFaults(faults)
        let result = try await couple.alice.chat("bob").buildP2PConnections()
        // By its own time or by that of the other side.
        #expect(result.clients.isEmpty && result.failures.count == 1)
        #expect(couple.alice.open.isEmpty && couple.bob.open.isEmpty)
        #expect(couple.bob.handler.events.opened.isEmpty)
        try await eventuallyAsync("no client waits") { couple.network.waitingClients == 0 }
        couple.close()
    }

    /// The server's faults delay and repeat magic packets; connections come about all the same.
    @Test(arguments: [7, 8] as [UInt64]) func faultsOfTheServerDoNotMatter(seed: UInt64) async throws {
        var settings = patient
        settings.connectTime = .seconds(20)
        let couple = try await Couple(.memoryReply, alice: settings, bob: settings)
        var faults = SpoofServer.Faults.all(5)
        faults.reorder = 0
        couple.server.setFaults(faults)
        for number: UInt8 in 0..<5 {
            try await eventuallyAsync("they connect, seed \(seed)") {
                try await couple.alice.chat("bob").buildP2PConnections().clients.count == 1
            }
            try await couple.alice.open.first?.sendMessage([number])
            await couple.alice.open.first?.disconnect()
        }
        #expect(couple.bob.handler.events.messages == (0..<5).map { [$0] })
        couple.close()
    }
}
