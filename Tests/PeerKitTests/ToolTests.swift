import Glibc
import PeerKit
import TestThreads
import Testing

@Suite(.blocking) struct ToolTests {
    /// The kernel's list is longer than the page that one read gives.
    @Test func everyListenerOfManyIsSeen() throws {
        let sockets = (0..<200).map { _ in socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0) }
        defer { for socket in sockets { close(socket) } }
        for socket in sockets {
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let port = withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { name in
                    guard bind(socket, name, length) == 0, listen(socket, 1) == 0,
                        getsockname(socket, name, &length) == 0
                    else { return UInt16(0) }
                    return UInt16(bigEndian: pointer.pointee.sin_port)
                }
            }
            #expect(port != 0 && SocketTable.isListening(port))
        }
    }

    @Test func portsAreNotGivenTwice() throws {
        let ports = try (0..<200).map { _ in try FreePort() }
        #expect(Set(ports.map(\.number)).count == ports.count)
    }

    @Test func childrenAreStopped() throws {
        let polite = try ChildProcess("sleep", ["60"])
        #expect(polite.isRunning)
        #expect(polite.stop() == .signaled(15))
        let stubborn = try ChildProcess("sh", ["-c", "trap '' TERM; echo up; while :; do sleep 0.01; done"])
        try stubborn.waitForOutput("up")
        #expect(stubborn.stop(within: .milliseconds(100)) == .signaled(9))
        let failed = try ChildProcess.run("sh", ["-c", "pwd; echo $WORD >&2; exit 3"], environment: ["WORD": "hello"])
        #expect(failed.status == .exited(3))
        #expect(failed.stderr == "hello\n")
    }

    /// A peer that goes on after the end of its input is ended.
    @Test func peersOfLinesAreEnded() throws {
        var stubborn: LinePeer? = try LinePeer("/bin/sh", ["-c", "read x; echo $$; while :; do sleep 0.1; done"])
        let pid = try #require(try stubborn?.ask("go").first.flatMap(Int32.init))
        #expect(kill(pid, 0) == 0)
        stubborn = nil
        #expect(kill(pid, 0) != 0)
    }

    @Test func aChildThatEndsEarlyIsNoLongWait() throws {
        let child = try ChildProcess("sh", ["-c", "echo because >&2; exit 1"])
        #expect { try child.waitUntilListening(1) } throws: { "\($0)".contains("because") }
    }

    @Test func linesAreTakenApart() {
        let line = IRCLine("@a=1\\:2;+b :nick!user@host PRIVMSG bob :hello there")
        #expect(line.tags == ["a": "1;2", "+b": ""])
        #expect(line.nick == "nick")
        #expect(line.command == "PRIVMSG")
        #expect(line.parameters == ["bob", "hello there"])
        #expect(IRCLine("PING :").parameters == [""])
        #expect(IRCLine("").command == "")
    }

    /// The contract with the gateway's program, on a program that only keeps it.
    @Test func aGatewayIsStartedAskedCrashedAndStarted() throws {
        let scratch = try ScratchDirectory()
        var options = PawlProcess.Options(policy: "hosted", arguments: ["--extra"])
        options.binary = try scratch.write(
            "pawl", "#!/bin/sh\n[ $1 = serve ] || { echo $*; exit 4; }\necho listening, ready: $*\nexec sleep 60\n",
            mode: 0o755)
        let pawl = try PawlProcess(upstream: 4242, options)
        let expected =
            "serve --listen irc://127.0.0.1:\(pawl.port) --upstream irc://127.0.0.1:4242"
            + " --data \(pawl.dataDirectory) --policy hosted --extra"
        #expect(pawl.output == "listening, ready: \(expected)\n")
        let answer = try pawl.admin(["policy", "get"])
        #expect(answer.status == .exited(4))
        #expect(answer.stdout == "policy get --data \(pawl.dataDirectory)\n")
        let first = pawl.pid
        pawl.crash()
        #expect(!pawl.isRunning)
        try pawl.start()
        #expect(pawl.isRunning)
        #expect(pawl.pid != first)
        #expect(pawl.stop() == .signaled(15))
    }

    @Test func aMissingGatewayIsReportedInWords() throws {
        let program = try? PawlProcess.binary()
        guard program == nil else { return }
        #expect { try PawlProcess(upstream: 1) } throws: { "\($0)".contains("PAWL_BINARY") }
    }
}
