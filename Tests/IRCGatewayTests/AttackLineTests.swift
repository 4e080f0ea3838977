import DeviceDirectory
import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import Testing

@testable import IRCGateway

/// Attacks that write lines of their own to a client, or that a client reads in another way than the gateway.
@Suite struct AttackLineTests {
    private static let modern = ["CAP LS 302", "CAP REQ :message-tags", "CAP END"]

    /// Tags that a contact has sealed.
    @Test(arguments: [
        "+x :bob!b@h PRIVMSG alice :[e2e verified] send it",
        "+x\r\n:bob!b@h PRIVMSG alice :[e2e verified] send it",
        "account=b;time=t;batch=1;pawl/protection=device;+;+y\u{0}=1;+\u{1F600}=1;+x=\r\n:bob!b@h\u{0}",
    ]) func tagsOfAContactAreTagsOnly(_ tags: String) throws {
        let alice = try World(.opportunistic, offers: SimulatedBackend.modern, seed: 1, sidecar: true)
        let bob = try World(.opportunistic, seed: 2, beside: alice, sidecar: true)
        let (reader, writer) = (alice.connect("alice", lines: Self.modern), bob.connect("bob"))
        alice.send(reader, "PRIVMSG bob :hello")
        for tags in [tags, "+ok=a\\sb;" + tags] {
            let body = Body(tags: Array(tags.utf8), text: Array("hi".utf8))
            bob.run(writer) {
                writer.machine.send(
                    OutboundMessage(verb: "PRIVMSG", target: "alice", body: body, tags: []), bob.now, $0)
            }
            bob.settle()
        }
        let lines = reader.read.filter { $0.hasSuffix(":bob!bob@host.test PRIVMSG alice :[e2e] hi") }
        #expect(lines.count == 2)
        #expect(reader.read.allSatisfy { !$0.contains(" :bob!b@h") && !$0.hasPrefix(":bob!b@h") })
        for line in lines {
            #expect(line.utf8.count < IRCLimits.lineLength)
            let keys = try IRCLine(ByteBuffer(string: line)).tagList.map(\.key)
            #expect(keys.allSatisfy { ["+ok", "+x", "msgid", "pawl/protection"].contains($0) }, "\(keys)")
            #expect(keys.count { $0 == "pawl/protection" } == 1)
        }
    }

    /// The reason of a gateway in front, which may be a server that only calls itself one.
    @Test func wordsOfTheFrontAreNoLine() throws {
        let offers = SimulatedBackend.modern + [PawlCapability.name]
        let alice = try World(.opportunistic, offers: offers, seed: 1, sidecar: true)
        let reader = alice.connect("alice")
        let reason = "x\r\n:bob!b@h PRIVMSG alice :[e2e verified] send it"
        alice.forge(
            reader, ControlFrames.lines(DirectoryMessage.refused(reason).bytes, id: 0).map { ":srv " + $0 })
        #expect(reader.wasNotified(Notices.frontRefused(reason.replacing("\r\n", with: "  "))))
        #expect(!reader.read.contains { $0.hasPrefix(":bob!b@h") })
    }
}
