/// HAProxy in TCP mode, as an operator puts it before the gateway: it tells who the client is in a PROXY header.
package final class HAProxy {
    private let scratch: ScratchDirectory
    private let reservation: FreePort
    private let process: ChildProcess

    package var port: UInt16 { reservation.number }

    /// Starts it in front of one server; ready when this returns.
    ///
    /// - Parameter header: `send-proxy` or `send-proxy-v2`.
    package convenience init(server: UInt16, header: String) throws {
        try self.init { port in
            """
            defaults
                mode tcp
                timeout connect 10s
                timeout client 1h
                timeout server 1h
            listen irc
                bind 127.0.0.1:\(port)
                server gateway 127.0.0.1:\(server) \(header)

            """
        }
    }

    /// Starts it with a configuration that listens at the port that it gets; ready when this returns.
    package init(_ configuration: (UInt16) -> String) throws {
        scratch = try ScratchDirectory()
        reservation = try FreePort()
        let path = try scratch.write("haproxy.cfg", configuration(reservation.number))
        process = try ChildProcess("haproxy", ["-db", "-f", path])
        try process.waitUntilListening(reservation.number)
    }

    /// What `haproxy -c` says of a file.
    package static func check(_ path: String) throws -> ChildProcess.Output {
        try ChildProcess.run("haproxy", ["-c", "-f", path])
    }

    deinit {
        process.stop()
    }
}
