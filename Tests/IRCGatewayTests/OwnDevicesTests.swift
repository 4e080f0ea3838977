import Devices
import Envelope
import IRCGateway
import Protection
import Reports
import Testing
import Vault

/// Two sidecars of one person, and somebody who writes to both.
@Suite struct OwnDevicesTests {
    let desk: World
    let phone: World
    let bob: World
    let people: (desk: World.Client, phone: World.Client, bob: World.Client)

    init() throws {
        desk = try World(.opportunistic, seed: 1, sidecar: true)
        phone = try World(.opportunistic, seed: 2, beside: desk, sidecar: true)
        bob = try World(.opportunistic, seed: 3, beside: phone, sidecar: true)
        people = (desk.connect("alice"), phone.connect("phone"), bob.connect("bob"))
        desk.send(people.desk, "PRIVMSG bob :hello")
        desk.send(people.desk, "PRIVMSG phone :hello")
    }

    /// The phone is taken into the list of the desk.
    private func adopt() throws {
        phone.pendingJobs.append(.sidecar(.decide(.nick("alice"), .join)))
        desk.pendingJobs.append(.sidecar(.decide(.nick("phone"), .adopt)))
        desk.settle()
        let own = try #require(desk.environment.peers?.own)
        desk.run(people.desk) {
            people.desk.machine.answered(
                .sidecar(.controlMessage(.nick("phone"), ControlMessage.adopted(own.deviceList).body)), at: desk.now, $0
            )
        }
        desk.settle()
    }

    private func texts(_ client: World.Client) -> [String] {
        client.read.filter { $0.contains(" PRIVMSG ") }
            .map { String($0.split(separator: ":", maxSplits: 2).last ?? "") }.filter { $0.hasPrefix("[e2e") }
    }

    @Test func bothDevicesAreOnePerson() throws {
        try adopt()
        #expect(phone.environment.peers?.own?.deviceList.current.count == 2)
        #expect(phone.environment.peers?.own?.deviceList == desk.environment.peers?.own?.deviceList)
        desk.send(people.desk, "PRIVMSG bob :from the desk")
        #expect(bob.environment.peers?[.nick("alice")]?.deviceList.current.count == 2)
        phone.send(people.phone, "PRIVMSG bob :hello from the phone")
        phone.send(people.phone, "PRIVMSG bob :secret from the phone")
        bob.send(people.bob, "PRIVMSG phone :secret for the phone")
        bob.send(people.bob, "PRIVMSG alice :secret for the desk")
        #expect(texts(people.bob) == ["[e2e] from the desk", "[e2e] secret from the phone"])
        #expect(people.bob.read.contains { $0.contains(Notices.otherName("phone", of: "alice")) })
        #expect(texts(people.phone) == ["[e2e] secret for the phone"])
        #expect(texts(people.desk) == ["[e2e] secret for the desk"])
        // Between themselves as well.
        phone.send(people.phone, "PRIVMSG alice :note to myself")
        #expect(texts(people.desk).last == "[e2e verified] note to myself")
        #expect(!desk.canary.contains("secret") && !desk.canary.contains("note to myself"))
    }

    /// The person is in a room twice, under two nicks.
    @Test(arguments: [true, false]) func roomsAreReadOnBothDevices(_ haveExchangedKeys: Bool) throws {
        try adopt()
        if haveExchangedKeys {
            phone.send(people.phone, "PRIVMSG bob :hello from the phone")
            bob.send(people.bob, "PRIVMSG phone :hello phone")
        }
        let everybody = [(desk, people.desk), (phone, people.phone), (bob, people.bob)]
        for (world, client) in everybody { world.send(client, "JOIN #room") }
        for (world, client) in everybody { world.send(client, "PRIVMSG #room :hello all") }
        for (index, (world, client)) in everybody.enumerated() {
            world.send(client, "PRIVMSG #room :secret of \(index)")
        }
        for (index, (_, client)) in everybody.enumerated() {
            let shown = texts(client).filter { $0.contains("secret of") }.map { $0.suffix(1) }
            #expect(shown == ["0", "1", "2"].filter { $0 != "\(index)" }, "\(index): \(client.read)")
        }
        #expect(!desk.canary.contains("secret"))
    }

    @Test func aLostDeviceIsRemovedFromTheOther() throws {
        try adopt()
        desk.send(people.desk, "PRIVMSG bob :before")
        phone.send(people.phone, "PRIVMSG bob :hello from the phone")
        let lost = try #require(desk.environment.peers?.own?.device)
        phone.pendingJobs.append(
            .sidecar(.revoke(lost, farewell: Farewell(connection: people.phone.machine.id, nick: "alice"))))
        phone.settle()
        #expect(phone.environment.peers?.own?.deviceList.current.count == 1)
        // The device itself is told at once, and once.
        #expect(people.desk.read.count { $0.contains(Notices.revoked) } == 1)
        #expect(desk.environment.peers?.own?.deviceList.current.count == 1)
        phone.send(people.phone, "PRIVMSG bob :the desk is lost")
        #expect(
            bob.environment.peers?[.nick("alice")]?.deviceList.current.map(\.id) == [
                try #require(phone.environment.peers?.own?.device)
            ])
        #expect(people.bob.read.count { $0.contains(Notices.removedDevices("phone")) } == 1)
        // The thief writes on; nobody believes it, and nothing reaches it.
        desk.send(people.desk, "PRIVMSG bob :secret of a thief")
        #expect(!people.bob.read.contains { $0.contains("secret of a thief") })
        bob.send(people.bob, "PRIVMSG alice :secret for whoever has the phone")
        #expect(!people.desk.read.contains { $0.contains("secret for whoever") })
        #expect(texts(people.bob) == ["[e2e] before", "[e2e] the desk is lost"])
    }

    /// It was away: at its next login it greets the others, and reads once that it is removed.
    @Test(arguments: [false, true]) func aLostDeviceIsToldWhenItIsBack(inARoom: Bool) throws {
        try adopt()
        let lost = try #require(desk.environment.peers?.own?.device)
        desk.close(people.desk)
        phone.pendingJobs.append(
            .sidecar(.revoke(lost, farewell: Farewell(connection: people.phone.machine.id, nick: "alice"))))
        phone.settle()
        // Introductions of one device differ in their time.
        phone.advance(seconds: 2)
        if inARoom {
            phone.send(people.phone, "JOIN #den")
            // The greeting is lost.
            phone.backend.relay = { $0.contains(" NOTICE phone ") ? [] : [$0] }
        }
        #expect(desk.environment.peers?.own?.deviceList.current.count == 2)
        let again = desk.connect("alice")
        if inARoom { desk.send(again, "JOIN #den") }
        #expect(again.read.count { $0.contains(Notices.revoked) } == 1)
        #expect(desk.environment.peers?.own?.deviceList == phone.environment.peers?.own?.deviceList)
        phone.backend.relay = { [$0] }
        for text in ["one", "two"] { desk.send(again, "PRIVMSG phone :\(text)") }
        desk.close(again)
        let later = desk.connect("alice")
        desk.send(later, "JOIN #den")
        #expect((again.read + later.read).count { $0.contains(Notices.revoked) } == 1)
        // The other one is not told that it cannot read what the removed one sends.
        let failure = try #require(Notices.failure(.unknownSender, from: "alice", inSidecar: true))
        #expect(!people.phone.read.contains { $0.contains(failure) })
    }

    /// Devices that are each other's greet each other, of which nobody sees anything.
    @Test func aGreetingIsNotShown() throws {
        try adopt()
        phone.close(people.phone)
        let count = people.desk.read.count
        let sent = phone.backend.seen.count
        let again = phone.connect("phone")
        #expect(phone.backend.seen.dropFirst(sent).contains { $0.hasPrefix("NOTICE alice :?PAWL:") })
        #expect(people.desk.read.count == count && !again.read.contains { $0.contains("NOTICE") })
        // Nobody is there.
        desk.close(people.desk)
        phone.close(again)
        let alone = phone.connect("phone")
        #expect(!alone.read.contains { $0.contains(" 401 ") || $0.contains("NOTICE") })
    }

    @Test func nobodyIsAdoptedWithoutHavingAsked() throws {
        desk.pendingJobs.append(.sidecar(.decide(.nick("phone"), .adopt)))
        desk.settle()
        let own = try #require(desk.environment.peers?.own)
        desk.run(people.desk) {
            people.desk.machine.answered(
                .sidecar(.controlMessage(.nick("phone"), ControlMessage.adopted(own.deviceList).body)), at: desk.now, $0
            )
        }
        desk.settle()
        #expect(phone.environment.peers?.own?.deviceList.current.count == 1)
    }
}
