import Glibc
import PeerKit
import TestThreads
import Testing

/// What a gateway tells the service manager that started it.
@Suite(.blocking, .serialized) struct ServiceManagerTests {
    @Test(arguments: [false, true]) func statesAreTold(isAbstract: Bool) throws {
        let scratch = try ScratchDirectory()
        let path = scratch.file("notify")
        let manager = try NotifySocket(isAbstract ? "@" + path : path)
        _ = try scratch.write("pawl.yaml", "policy: observe\n")
        var options = Lab.options("observe", arguments: ["--config", scratch.file("pawl.yaml")])
        options.environment["NOTIFY_SOCKET"] = manager.name
        let gateway = try PawlProcess(upstream: 1, options)
        defer { gateway.stop() }
        let ready = try manager.next("ready")
        #expect(ready.hasPrefix("READY=1\nSTATUS=irc://127.0.0.1:\(gateway.port) in front of "), "\(ready)")
        gateway.signal(SIGHUP)
        let reloading = try manager.next("reloading").split(separator: "\n")
        #expect(reloading.first == "RELOADING=1")
        #expect(reloading.contains { $0.hasPrefix("MONOTONIC_USEC=") && UInt64($0.dropFirst(15)) ?? 0 > 0 })
        #expect(try manager.next("ready again").hasPrefix("READY=1\n"))
        // A refused configuration is told, and the gateway is ready with the one before.
        _ = try scratch.write("pawl.yaml", "polcy: hosted\n")
        gateway.signal(SIGHUP)
        #expect(try manager.next("reloading").hasPrefix("RELOADING=1\n"))
        #expect(try manager.next("refused").contains("the new one was refused"))
        #expect(gateway.stop() == .exited(0))
        #expect(try manager.next("stopping").hasPrefix("STOPPING=1\n"))
        #expect(manager.receive() == nil)
    }

    /// Nobody listens, or the name is none of a socket: the gateway starts all the same.
    @Test(arguments: ["/nowhere/notify", "relative", "@", "/" + String(repeating: "x", count: 200), "vsock:2:1234"])
    func aNameOfNobodyChangesNothing(name: String) throws {
        var options = Lab.options("observe")
        options.environment["NOTIFY_SOCKET"] = name
        let gateway = try PawlProcess(upstream: 1, options)
        #expect(gateway.stop() == .exited(0))
    }
}
