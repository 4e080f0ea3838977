import PawlMessenger
import TestKit
import Testing

/// What the messenger promises of direct connections, over every transport.
@Suite struct ConnectionConformanceTests {
    @Test(arguments: TransportKind.allCases)
    func aConnectionIsOpenOnBothSides(_ kind: TransportKind) async throws {
        let couple = try await Couple(kind)
        #expect(couple.alice.open.isEmpty && couple.bob.open.isEmpty)
        let (alice, bob) = try await couple.connect()
        #expect(alice.isConnected && bob.isConnected)
        #expect(alice.username == "bob" && alice.deviceId == couple.bob.messenger.deviceId)
        #expect(bob.username == "alice" && bob.deviceId == couple.alice.messenger.deviceId)
        #expect(couple.alice.chat("bob").listOpenP2PConnections().first === alice)
        #expect(couple.alice.chat("carol").listOpenP2PConnections().isEmpty)
        try await eventuallyAsync("both apps know") {
            couple.alice.handler.events.opened.count == 1 && couple.bob.handler.events.opened.count == 1
        }
        // Bob was asked, and Alice was not.
        #expect(couple.bob.handler.events.requests.map(\.isUsedChat) == [true])
        #expect(couple.alice.handler.events.requests.isEmpty)
        // A second call uses what is open.
        let again = try await couple.alice.chat("bob").buildP2PConnections()
        #expect(again.clients.map(ObjectIdentifier.init) == [ObjectIdentifier(alice)])
        couple.close()
    }

    @Test(arguments: TransportKind.allCases)
    func messagesAreAcknowledgedByTheApp(_ kind: TransportKind) async throws {
        let couple = try await Couple(kind)
        let (alice, bob) = try await couple.connect()
        couple.bob.handler.change { $0.isHolding = true }
        let sending = Task {
            for number in 0..<100 { try await alice.sendMessage([UInt8(number)]) }
            return true
        }
        try await eventuallyAsync("bob's app works on the first") { couple.bob.handler.events.messages == [[0]] }
        // The other direction does not wait for it.
        try await bob.sendMessage([200])
        #expect(couple.alice.handler.events.messages == [[200]])
        #expect(couple.bob.handler.events.messages == [[0]])
        couple.bob.handler.change { $0.isHolding = false }
        #expect(try await sending.value)
        #expect(couple.bob.handler.events.messages == (0..<100).map { [UInt8($0)] })
        couple.close()
    }

    @Test(arguments: TransportKind.allCases)
    func manyMessagesAtOnceAndLongOnesArrive(_ kind: TransportKind) async throws {
        let couple = try await Couple(kind)
        let (alice, _) = try await couple.connect()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<200 { group.addTask { try await alice.sendMessage([UInt8(number)]) } }
            try await group.waitForAll()
        }
        #expect(Set(couple.bob.handler.events.messages) == Set((0..<200).map { [UInt8($0)] }))
        #expect(couple.bob.handler.events.messages.count == 200)
        let longest = [UInt8](repeating: 7, count: P2PSettings.messageLimit)
        try await alice.sendMessage(longest)
        #expect(couple.bob.handler.events.messages.last == longest)
        await #expect(throws: P2PError.tooLong) { try await alice.sendMessage(longest + [1]) }
        couple.close()
    }

    /// Typing is shown without a message of the server and without a row of the history.
    @Test(arguments: TransportKind.allCases)
    func typingNeverTouchesTheServer(_ kind: TransportKind) async throws {
        let couple = try await Couple(kind)
        let (alice, bob) = try await couple.connect()
        try await eventuallyAsync("the server is quiet") { couple.server.waitingEvents == 0 }
        let before = couple.server.receivedBytes.count
        for round in 0..<50 {
            await couple.alice.chat("bob").setTyping(round.isMultiple(of: 2))
        }
        try await alice.updateStatus(flags: [.isTyping, .init(rawValue: 16)], metadata: P2PMetadata(["mood": "calm"]))
        try await eventuallyAsync("bob sees the last status") { bob.remoteStatus?.flags.rawValue == 17 }
        #expect(try bob.remoteStatus?.metadata.decode([String: String].self) == ["mood": "calm"])
        #expect(alice.remoteStatus == nil)
        #expect(couple.server.receivedBytes.count == before && couple.server.waitingEvents == 0)
        #expect(try await couple.bob.chat("alice").messages().count == 2)
        // Without a connection it does nothing.
        await alice.disconnect()
        await couple.alice.chat("bob").setTyping(true)
        #expect(couple.server.receivedBytes.count == before)
        couple.close()
    }

    @Test(arguments: TransportKind.allCases)
    func aCloseIsSeenOnBothSides(_ kind: TransportKind) async throws {
        let couple = try await Couple(kind)
        let (alice, bob) = try await couple.connect()
        let (told, closed) = AsyncStream.makeStream(of: Void.self)
        bob.onDisconnect { closed.finish() }
        await alice.disconnect()
        for await _ in told {}
        #expect(alice.closeReason == .closed && bob.closeReason == .closedByPeer)
        #expect(couple.alice.open.isEmpty && couple.bob.open.isEmpty)
        try await eventuallyAsync("both apps know which") {
            couple.alice.handler.events.closed.map(ObjectIdentifier.init) == [ObjectIdentifier(alice)]
                && couple.bob.handler.events.closed.map(ObjectIdentifier.init) == [ObjectIdentifier(bob)]
        }
        await #expect(throws: P2PError.closed(.closed)) { try await alice.sendMessage([1]) }
        await #expect(throws: P2PError.closed(.closedByPeer)) { try await bob.updateStatus(flags: []) }
        // A new one can be built.
        let again = try await couple.connect()
        try await again.alice.sendMessage([5])
        #expect(couple.bob.handler.events.messages == [[5]])
        couple.close()
    }

    @Test(arguments: TransportKind.allCases)
    func idleConnectionsAreClosedAndLeaveTheLists(_ kind: TransportKind) async throws {
        var settings = patient
        settings.idleTime = .milliseconds(300)
        let couple = try await Couple(kind, bob: settings)
        let result = try await couple.alice.chat("bob").buildP2PConnections()
        let alice = try #require(result.clients.first)
        try await eventuallyAsync("both are closed") {
            alice.closeReason != nil && couple.bob.handler.events.closed.count == 1
        }
        #expect(couple.bob.handler.events.closed.first?.closeReason == .idle && alice.closeReason == .closedByPeer)
        #expect(couple.alice.open.isEmpty && couple.bob.open.isEmpty)
        couple.close()
    }

    @Test(arguments: TransportKind.allCases)
    func closingAMessengerClosesItsConnections(_ kind: TransportKind) async throws {
        let couple = try await Couple(kind)
        let (_, bob) = try await couple.connect()
        couple.alice.messenger.close()
        try await eventuallyAsync("bob's side is closed") { bob.closeReason != nil }
        #expect(bob.closeReason == .closedByPeer)
        couple.bob.messenger.close()
    }

    /// Both call at once; one connection is left, and both use it.
    @Test(arguments: TransportKind.allCases)
    func twoCallsAtOnceMakeOneConnection(_ kind: TransportKind) async throws {
        let couple = try await Couple(kind)
        async let first = couple.alice.chat("bob").buildP2PConnections()
        async let second = couple.bob.chat("alice").buildP2PConnections()
        let (one, other) = try await (first, second)
        #expect(one.clients.count == 1 && other.clients.count == 1)
        try await eventuallyAsync("one is left") { couple.alice.open.count == 1 && couple.bob.open.count == 1 }
        try await couple.alice.open[0].sendMessage([1])
        try await couple.bob.open[0].sendMessage([2])
        #expect(couple.bob.handler.events.messages == [[1]] && couple.alice.handler.events.messages == [[2]])
        couple.close()
    }

    /// A device that does not answer holds up no other one.
    @Test(arguments: [TransportKind.memory, .tcpIPv4]) func oneDeviceHoldsUpNoOther(_ kind: TransportKind) async throws
    {
        let couple = try await Couple(kind)
        let phone = try await Person.register("bob", at: couple.server, [kind.factory(couple.network)])
        try await eventuallyAsync("the phone is adopted") { await phone.messenger.isAdopted() }
        try await couple.alice.chat("bob").sendText("to both")
        try await phone.waitForText(from: "alice")
        try await phone.chat("alice").sendText("from the phone")
        try await couple.bob.messenger.transport.disconnect()
        let chat = couple.alice.chat("bob")
        let building = Task { try await chat.buildP2PConnections() }
        try await eventuallyAsync("the phone is connected") {
            couple.alice.open.map(\.deviceId) == [phone.messenger.deviceId]
        }
        // The end of the messenger ends the attempt that waits.
        couple.close()
        let result = try await building.value
        #expect(result.clients.map(\.deviceId) == [phone.messenger.deviceId])
        #expect(result.failures == [couple.bob.messenger.deviceId: .closed(.closed)])
        phone.messenger.close()
    }

    /// The own other devices are reached in the chat with oneself.
    @Test func ownDevicesConnect() async throws {
        let couple = try await Couple(.memory)
        let factory = TransportKind.memory.factory(couple.network)
        let phone = try await Person.register("alice", at: couple.server, [factory])
        try await eventuallyAsync("the phone is adopted") { await phone.messenger.isAdopted() }
        // A text to Bob exchanges keys with the own other device, which gets a copy.
        try await couple.alice.chat("bob").sendText("for the copy")
        try await eventuallyAsync("the copy has come") { try await phone.chat("bob").messages().count > 0 }
        let result = try await couple.alice.chat("alice").buildP2PConnections()
        #expect(result.clients.map(\.deviceId) == [phone.messenger.deviceId])
        #expect(phone.handler.events.requests.map(\.isUsedChat) == [true])
        couple.close()
        phone.messenger.close()
    }
}
