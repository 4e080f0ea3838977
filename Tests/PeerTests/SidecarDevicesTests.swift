import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Two sidecars of one person, each a process of its own, of which one is removed by the other.
@Suite(.blocking) struct SidecarDevicesTests {
    private struct People {
        let lab: SidecarLab
        let (desks, phones): (PawlProcess, PawlProcess)
        var desk: IRCClient
        let phone: IRCClient

        init(_ backend: Backend) throws {
            lab = try SidecarLab(backend.start())
            (desks, phones) = (try lab.sidecar(), try lab.sidecar())
            (desk, phone) = (try lab.client(desks, "alice"), try lab.client(phones, "phone"))
            try SidecarTests.exchangeKeys(desk, phone)
            try confirmed(phones, "join", "alice")
            try confirmed(desks, "adopt", "phone")
            let phones = phones
            try eventually("two devices") { try Self.devices(phones).count == 2 }
        }

        /// The ids of the devices, without this one's mark.
        static func devices(_ sidecar: PawlProcess, others: Bool = false) throws -> [String] {
            let lines = try sidecar.admin(["sidecar", "devices"]).stdout.split(separator: "\n")
            return lines.filter { !others || !$0.contains("(this one)") }
                .compactMap { $0.split(separator: " ").first.map(String.init) }
        }

        func confirmed(_ sidecar: PawlProcess, _ words: String...) throws {
            let first = try sidecar.admin(["sidecar"] + words)
            guard let token = first.token else {
                #expect(first.succeeded, "\(first.stderr)")
                return
            }
            #expect(try sidecar.admin(["sidecar"] + words + ["--confirm", token]).succeeded)
        }

        /// The phone removes the desk.
        func revoke() throws {
            let other = try #require(try Self.devices(phones, others: true).first)
            try confirmed(phones, "revoke", other)
            #expect(try Self.devices(phones).count == 1)
        }

        mutating func deskReturns() throws {
            var client = try IRCClient(port: desks.port)
            try eventually("alice is free", every: .milliseconds(100)) {
                client = try IRCClient(port: desks.port)
                return (try? client.register(nick: "alice", caps: nil)) != nil
            }
            desk = client
        }
    }

    @Test func aRemovedDeviceIsToldAtOnce() throws {
        let people = try People(.ngircd)
        defer { people.lab.stop() }
        try people.revoke()
        try people.desk.expect("words about it") { $0.body.contains(Notices.revoked) }
        #expect(try People.devices(people.desks).count == 1)
    }

    /// It is stopped when it is removed, and reads of it at its next login, once.
    @Test(arguments: Backend.allCases) func oneThatWasAwayIsToldAtItsLogin(_ backend: Backend) throws {
        var people = try People(backend)
        defer { people.lab.stop() }
        people.desk.close()
        people.desks.stop()
        try people.revoke()
        try people.desks.start()
        try people.deskReturns()
        try people.desk.expect("words about it") { $0.body.contains(Notices.revoked) }
        #expect(try People.devices(people.desks).count == 1)
        #expect(!people.phone.transcript.contains { $0.body.contains("could not") })
        people.desk.close()
        try people.deskReturns()
        for person in [people.desk, people.phone] {
            person.send("JOIN #den")
            try person.expect("366")
        }
        _ = try people.phone.synchronize()
        _ = try people.desk.synchronize()
        #expect(!people.desk.transcript.contains { $0.body.contains(Notices.revoked) })
    }
}
