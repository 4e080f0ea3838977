/// HAProxy in TCP mode, as an operator puts it before the gateway: it tells who the client is in a PROXY header.
package final class HAProxy {
    private let scratch: ScratchDirectory
    private let reservation: FreePort
    private let process: ChildProcess

    package var port: UInt16 { reservation.number }

    /// Starts it; ready when this returns.
    ///
    /// - Parameter header: `send-proxy` or `send-proxy-v2`.
    package init(server: UInt16, header: String) throws {
        scratch = try ScratchDirectory()
        reservation = try FreePort()
        let path = try scratch.write(
            "haproxy.cfg",
            """
            defaults
                mode tcp
                timeout connect 10s
                timeout client 1h
                timeout server 1h
            listen irc
                bind 127.0.0.1:\(reservation.number)
                server gateway 127.0.0.1:\(server) \(header)

            """)
        process = try ChildProcess("haproxy", ["-db", "-f", path])
        try process.waitUntilListening(reservation.number)
    }

    deinit {
        process.stop()
    }
}
