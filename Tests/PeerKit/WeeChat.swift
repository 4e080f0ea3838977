/// A real WeeChat on a terminal of its own, driven by keys.
///
/// It has a buffer for itself, one for the server, and one for each channel and each person; the screen shows one at a
/// time. Each buffer is also logged, line by line and at once, so that nothing has to be in view to be found.
///
/// What somebody says to it opens a buffer; `/query` and `/join` open one and change to it, `/join` only when the server
/// has answered; `/msg` shows in the buffer for the server as `MSG(bob): text`.
package final class WeeChat: TerminalClient {
    /// One of the places in which lines appear.
    package enum Buffer: Sendable {
        /// WeeChat's own messages.
        case core
        case server
        /// A channel, with its prefix, or a nick.
        case chat(String)

        /// As `/buffer` takes it.
        var name: String {
            switch self {
            case .core: "core.weechat"
            case .server: "irc.server.\(WeeChat.serverName)"
            case .chat(let name): "irc.\(WeeChat.serverName).\(name)"
            }
        }
    }

    private static let serverName = "test"
    /// What talking and logging need; the rest only fills the screen.
    private static let plugins = "charset,irc,logger"

    package let terminal: Terminal
    private let scratch: ScratchDirectory

    /// Starts it and has it connect; registered when this returns.
    package init(port: UInt16, nick: String, password: String? = nil, timeout: Duration = Deadline.usual) throws {
        scratch = try ScratchDirectory()
        try scratch.directory("home")
        try scratch.write("home/irc.conf", Self.irc(port: port, nick: nick, password: password))
        try scratch.write("home/logger.conf", Self.logger)
        try scratch.write("home/weechat.conf", Self.weechat)
        let arguments = ["--dir", scratch.file("home"), "--plugins", Self.plugins]
        terminal = try Terminal("weechat", arguments, in: scratch)
        let refused = "connection refused"
        let found = try wait(for: Self.endsOfMOTD + [refused], timeout: timeout) { log(.server) }
        guard !found.contains(refused) else { throw PeerError("\(nick): \(found)") }
    }

    /// Puts a buffer on the screen; what is typed goes there.
    package func show(_ buffer: Buffer) throws {
        try send("/buffer \(buffer.name)")
    }

    /// All lines of a buffer since the start, as `time TAB nick TAB text`; empty when there is no such buffer.
    package func log(_ buffer: Buffer) -> String {
        // the files' names are in lower case
        scratch.read("home/logs/\(buffer.name.lowercased()).weechatlog")
    }

    /// The lines of all buffers, one buffer after the other.
    package func logs() -> String {
        scratch.names(in: "home/logs").map { scratch.read("home/logs/\($0)") }.joined()
    }

    /// Waits until one of the texts is in the buffer, or in any, and answers the lines searched.
    @discardableResult
    package func waitFor(
        _ text: String, or others: String..., in buffer: Buffer? = nil, timeout: Duration = Deadline.usual
    ) throws -> String {
        try wait(for: [text] + others, timeout: timeout) { buffer.map(log) ?? logs() }
    }

    private static func irc(port: UInt16, nick: String, password: String?) -> String {
        // anti_flood is WeeChat's own pace, 2 s a line. Some names are those of 3.8, some of 4.0; it warns of what it
        // does not know and goes on
        """
        [look]
        buffer_switch_join = on
        [server_default]
        anti_flood_prio_high = 0
        anti_flood_prio_low = 0
        anti_flood = 0
        [server]
        \(serverName).addresses = "127.0.0.1/\(port)"
        \(serverName).ssl = off
        \(serverName).tls = off
        \(serverName).autoconnect = on
        \(serverName).nicks = "\(nick)"
        \(serverName).username = "\(nick.lowercased())"
        \(serverName).realname = "\(nick) of a test"
        \(password.map { "\(serverName).password = \"\($0)\"" } ?? "")

        """
    }

    static let logger = """
        [look]
        backlog = 0
        [file]
        auto_log = on
        flush_delay = 0
        path = "${weechat_data_dir}/logs"
        mask = "$plugin.$name.weechatlog"

        """

    /// Keys arrive faster here than a person presses them, which is not to be taken for something pasted.
    static let weechat = """
        [startup]
        display_logo = off
        display_version = off
        [look]
        paste_max_lines = -1

        """
}
