import PeerKit
import TestThreads
import Testing

/// Topics and reasons in front of real servers: what the server and people past the gateway see of them.
@Suite(.blocking, .serialized) struct CommandTextTests {
    /// Gives alice and carol, who is past the gateway, a room of which alice is the operator.
    private static func room(_ lab: Lab) throws -> (alice: IRCClient, bob: IRCClient, carol: IRCClient) {
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let carol = try lab.outsider("carol")
        for person in [alice, bob, carol] {
            person.send("JOIN #room")
            try person.expect("366")
        }
        return (alice, bob, carol)
    }

    @Test(arguments: Backend.allCases) func theDefaultsShowTheServerNothing(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "hosted")
        defer { lab.stop() }
        let (alice, bob, carol) = try Self.room(lab)
        alice.send("TOPIC #room :the secret text")
        #expect(try alice.expect("421").body.hasPrefix("Not done"))
        alice.send("WALLOPS :the secret text")
        try alice.expect("421")
        alice.send("AWAY :the secret text")
        try alice.expect("306")
        alice.send("KICK #room bob :the secret text")
        try carol.expect("KICK")
        bob.send("JOIN #room")
        try bob.expect("366")
        bob.send("PART #room :the secret text")
        try carol.expect("PART")
        bob.send("QUIT :the secret text")
        try bob.expect("ERROR")
        // The topic can be cleared: there is no text.
        alice.send("TOPIC #room :")
        _ = try alice.synchronize()
        #expect(!lab.tap.shows("secret"))
    }

    @Test(arguments: Backend.allCases) func whatTheOperatorLetsPassReachesEverybody(_ backend: Backend) throws {
        let lab = try Lab(
            try backend.start(), policy: "hosted",
            environment: [
                "PAWL_COMMANDS_HOSTED_TOPIC": "pass", "PAWL_COMMANDS_HOSTED_KICK": "pass",
                "PAWL_COMMANDS_HOSTED_PART": "refuse",
            ])
        defer { lab.stop() }
        let (alice, bob, carol) = try Self.room(lab)
        alice.send("TOPIC #room :today cake")
        #expect(try carol.expect("TOPIC").body == "today cake")
        bob.send("PART #room :the secret text")
        try bob.expect("421")
        alice.send("KICK #room bob :no cake")
        #expect(try carol.expect("KICK").body == "no cake")
        #expect(!lab.tap.shows("secret"))
        let status = try lab.gateway.admin(["status"]).stdout
        #expect(status.contains("`commands`") && status.contains("TOPIC"), "\(status)")
    }
}
