import Foundation
import PeerKit
import Reports
import TestThreads
import Testing

/// One sidecar for several networks.
@Suite(.blocking) struct SidecarNetworkTests {
    @Test func twoNetworksInOneProcess() throws {
        let (first, second) = (try Backend.ngircd.start(), try Backend.inspircd.start())
        defer { first.stop(); second.stop() }
        let scratch = try ScratchDirectory()
        let (one, two) = (try FreePort(), try FreePort())
        try scratch.write(
            "sidecar.yaml",
            """
            data: \(scratch.file("keys"))
            networks:
              one:
                listen: [irc://127.0.0.1:\(one.number)]
                upstream: {url: irc://127.0.0.1:\(first.port), network: one, flood: {lines_per_second: 0}}
              two:
                listen: [irc://127.0.0.1:\(two.number)]
                upstream: {url: irc://127.0.0.1:\(second.port), network: two, flood: {lines_per_second: 0}}
            """)
        try scratch.directory("keys")
        let program = try PawlProcess.binary()
        let checked = try ChildProcess.run(program, ["config", "check", scratch.file("sidecar.yaml")])
        #expect(checked.succeeded && checked.stdout.contains("Network one") && checked.stdout.contains("Network two"))
        let refused = try ChildProcess.run(
            program, ["sidecar", "--config", scratch.file("sidecar.yaml"), "--upstream", "irc://127.0.0.1:1"])
        #expect(!refused.succeeded && refused.stderr.contains("--upstream"))
        let process = try ChildProcess(program, ["sidecar", "--config", scratch.file("sidecar.yaml")])
        defer { process.stop() }
        try process.waitForOutput("one: pawl is ready")
        try process.waitForOutput("two: pawl is ready")
        // The same nick on both, and a peer on each: keys of one network are unknown on the other.
        var people: [IRCClient] = []
        var peers: [PawlProcess] = []
        defer { peers.forEach { $0.stop() } }
        for (port, server, peer) in [(one, first, "bob"), (two, second, "carol")] {
            let alice = try IRCClient(port: port.number)
            try alice.register(nick: "alice", caps: nil)
            let other = try PawlProcess(upstream: server.port, Self.options)
            peers.append(other)
            let friend = try IRCClient(port: other.port)
            try friend.register(nick: peer, caps: nil)
            try SidecarTests.exchangeKeys(alice, friend)
            people.append(alice)
            friend.send("PRIVMSG alice :canary on \(peer)")
            try alice.expectMessage("[e2e] canary on \(peer)")
        }
        for (name, alice, known, unknown) in [("one", people[0], "bob", "carol"), ("two", people[1], "carol", "bob")] {
            let status = try ChildProcess.run(
                program, ["sidecar", "status", "--network", name, "--data", scratch.file("keys")])
            #expect(status.stdout.contains(known) && !status.stdout.contains(unknown), "\(status)")
            alice.send("PRIVMSG *pawl :status")
            try alice.expect("the peer of this network") { $0.nick == "*pawl" && $0.body.contains(known) }
        }
    }

    private static var options: PawlProcess.Options {
        var options = PawlProcess.Options()
        options.isSidecar = true
        options.environment["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND"] = "0"
        return options
    }
}
