/// A real irssi on a terminal of its own, driven by keys and read from the screen.
///
/// All messages show in the one window, private ones as `[alice(user@host)] text` and own ones as `[msg(bob)] text`.
package final class Irssi: TerminalClient {
    package let terminal: Terminal
    private let scratch: ScratchDirectory

    /// Starts it and has it connect; registered when this returns.
    package init(port: UInt16, nick: String, password: String? = nil) throws {
        scratch = try ScratchDirectory()
        try scratch.directory("home")
        let logs = scratch.file("logs")
        try scratch.write("home/config", Self.configuration(port: port, nick: nick, password: password, logs: logs))
        terminal = try Terminal("irssi", ["--home=\(scratch.file("home"))"], in: scratch)
        _ = try wait(for: Self.endsOfMOTD, timeout: Deadline.usual, in: screen)
    }

    /// Waits until one of the texts is on the screen, and answers the screen.
    @discardableResult
    package func waitFor(_ text: String, or others: String..., timeout: Duration = Deadline.usual) throws -> String {
        try wait(for: [text] + others, timeout: timeout, in: screen)
    }

    /// The lines of its log of the conversation with a nick or in a channel; empty if there is none.
    package func log(_ name: String) -> String { scratch.read("logs/\(name.lowercased()).log") }

    private static func configuration(port: UInt16, nick: String, password: String?, logs: String) -> String {
        // cmd_queue_speed is irssi's own pace, 2.2 s a line once five were sent
        """
        chatnets = { Test = { type = "IRC"; }; };
        servers = (
          {
            address = "127.0.0.1"; chatnet = "Test"; port = "\(port)"; autoconnect = "yes"; use_tls = "no";
            cmd_queue_speed = "10msec"; \(password.map { "password = \"\($0)\";" } ?? "")
          }
        );
        settings = {
          core = { real_name = "\(nick) of a test"; user_name = "\(nick.lowercased())"; nick = "\(nick)"; };
          "fe-common/core" = {
            autocreate_own_query = "no"; autocreate_query_level = ""; autoclose_windows = "no"; beep_msg_level = "";
            autolog = "yes"; autolog_path = "\(logs)/$0.log";
          };
          "irc/core" = { cmd_queue_speed = "10msec"; cmds_max_at_once = "50"; };
          "fe-text" = { term_force_colors = "no"; };
        };

        """
    }
}
