import Foundation

/// A real WeeChat with weechat-matrix, a Matrix client in Python as Debian packages it, on a terminal of its own.
///
/// It speaks TLS only; certificates are not checked here. Each buffer is logged line by line, so that nothing has to be in
/// view to be found.
package final class WeeChatMatrix: TerminalClient {
    package static let script = "/usr/share/weechat/python/matrix.py"
    /// What scripts and logging need.
    private static let plugins = "charset,logger,python"

    package let terminal: Terminal
    private let scratch: ScratchDirectory

    /// Starts it and logs in. Its first room is on the screen when this returns.
    ///
    /// - Parameter user: An account of ``Synapse`` that is in one room, with the account `inRoom`.
    package init(port: UInt16, user: String, inRoom other: String, timeout: Duration = Deadline.usual) throws {
        guard FileManager.default.fileExists(atPath: Self.script) else {
            throw PeerError("no \(Self.script); Tests/run --long installs it")
        }
        scratch = try ScratchDirectory()
        let scripts = try scratch.directory("home/python/autoload")
        try FileManager.default.createSymbolicLink(
            atPath: scripts + "/matrix.py", withDestinationPath: Self.script)
        try scratch.write("home/matrix.conf", Self.matrix(port: port, user: user), mode: 0o600)
        try scratch.write("home/logger.conf", WeeChat.logger)
        try scratch.write("home/weechat.conf", WeeChat.weechat)
        terminal = try Terminal("weechat", ["--dir", scratch.file("home"), "--plugins", Self.plugins], in: scratch)
        try waitFor("Logged in as", timeout: timeout)
        try waitFor("\(other) (\(Synapse.id(other))) has joined", timeout: timeout)
        // The first buffer is that of WeeChat and the server.
        try send("/buffer 2")
    }

    /// The lines of all buffers, one buffer after the other.
    package func logs() -> String {
        scratch.names(in: "home/logs").map { scratch.read("home/logs/\($0)") }.joined()
    }

    /// Waits until a text is in a buffer, and returns the lines of all.
    @discardableResult
    package func waitFor(_ text: String, timeout: Duration = Deadline.usual) throws -> String {
        try wait(for: [text], timeout: timeout) { logs() }
    }

    private static func matrix(port: UInt16, user: String) -> String {
        """
        [server]
        test.autoconnect = on
        test.address = "127.0.0.1"
        test.port = \(port)
        test.ssl_verify = off
        test.username = "\(user)"
        test.password = "\(Synapse.password)"

        """
    }
}
