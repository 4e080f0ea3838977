import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Two versions of one person's device list, as a stolen device makes them, and the decision about them.
@Suite(.blocking) struct SidecarForkTests {
    /// A command, and the same with the token if it asks for one.
    private func confirmed(_ sidecar: PawlProcess, _ words: String...) throws {
        let first = try sidecar.admin(["sidecar"] + words)
        guard let token = first.token else {
            #expect(first.succeeded, "\(first.stderr)")
            return
        }
        #expect(try sidecar.admin(["sidecar"] + words + ["--confirm", token]).succeeded)
    }

    /// A client whose nick may still be that of a connection of before.
    private func again(_ sidecar: PawlProcess, _ nick: String) throws -> IRCClient {
        var client = try IRCClient(port: sidecar.port)
        try eventually("\(nick) is free", every: .milliseconds(100)) {
            client = try IRCClient(port: sidecar.port)
            return (try? client.register(nick: nick, caps: nil)) != nil
        }
        return client
    }

    @Test func thePersonKeepsTheVersionThatTheyKnow() throws {
        let lab = try SidecarLab(Backend.ngircd.start())
        defer { lab.stop() }
        let own = try lab.sidecar()
        let alice = try lab.client(own, "alice")
        let (theirs, phones, tablets) = (try lab.sidecar(), try lab.sidecar(), try lab.sidecar())
        var bob = try lab.client(theirs, "bob")
        let (phone, tablet) = (try lab.client(phones, "bobphone"), try lab.client(tablets, "bobtablet"))
        try SidecarTests.exchangeKeys(bob, phone)
        try SidecarTests.exchangeKeys(bob, tablet)

        // The keys of Bob's sidecar are copied.
        bob.close()
        theirs.stop()
        let scratch = try ScratchDirectory()
        let copy = scratch.file("copy")
        #expect(
            try ChildProcess("cp", ["-a", theirs.dataDirectory, copy], workingDirectory: scratch.path).waitForExit()
                == .exited(0))
        try theirs.start()
        bob = try again(theirs, "bob")
        try confirmed(phones, "join", "bob")
        try confirmed(theirs, "adopt", "bobphone")
        try SidecarTests.exchangeKeys(alice, bob)
        let early = try own.admin(["sidecar", "accept", "bob", "--known"])
        #expect(!early.succeeded && early.failureCode == "no-new-keys")

        // The copy adds another device to the list in which the phone is not, and is there in Bob's place.
        bob.close()
        theirs.stop()
        let stolen = try lab.sidecar(data: copy)
        bob = try again(stolen, "bob")
        try confirmed(tablets, "join", "bob")
        try confirmed(stolen, "adopt", "bobtablet")
        alice.send("PRIVMSG bob :for bob")
        try alice.expect("words about two versions") {
            $0.body.contains(Notices.forkedList(of: "bob", shownBy: "bob"))
        }
        alice.send("PRIVMSG bob :canary for nobody")
        try alice.expect("531")
        #expect(try own.admin(["sidecar", "status", "--json"]).stdout.contains(/"keys" ?: ?"forked"/))
        let words = try own.admin(["sidecar", "verify", "bob"]).stdout
        #expect(words.contains("The one that you know is right: pawl sidecar accept bob --known"))
        let matches = try own.admin(["sidecar", "verify", "bob", "--matches"])
        #expect(!matches.succeeded && matches.failureCode == "keys-changed")

        // Alice has asked Bob, and keeps the version with his phone.
        let question = try own.admin(["sidecar", "accept", "bob", "--known"])
        #expect(question.stderr.contains("The other version is ignored."))
        try confirmed(own, "accept", "bob", "--known")
        #expect(try own.admin(["sidecar", "status", "--json"]).stdout.contains(/"keys" ?: ?"known"/))
        let later = try own.admin(["sidecar", "accept", "bob", "--known"])
        #expect(!later.succeeded && later.failureCode == "no-new-keys")
        #expect(try own.admin(["sidecar", "verify", "bob", "--matches"]).succeeded)

        // What the copy shows from now on changes nothing, and Bob's own sidecar is understood as before.
        alice.send("PRIVMSG bob :canary for the copy")
        _ = try alice.synchronize()
        _ = try bob.synchronize()
        bob.close()
        stolen.stop()
        try theirs.start()
        bob = try again(theirs, "bob")
        alice.send("PRIVMSG bob :canary for bob")
        try bob.expectMessage("[e2e] canary for bob")
        bob.send("PRIVMSG alice :canary for alice")
        try alice.expectMessage("[e2e verified] canary for alice")
        let report = try own.admin(["sidecar", "status", "--json"]).stdout
        #expect(report.contains(/"keys" ?: ?"verified"/) && !report.contains(/"keys" ?: ?"forked"/))
        #expect(!lab.tap.shows("canary"))
    }
}
