import Foundation
import Glibc
import Synchronization

/// A real irssi on a terminal of its own, driven by keys and read from the screen.
///
/// All messages show in the one window, private ones as `[alice(user@host)] text` and own ones as `[msg(bob)] text`.
package final class Irssi: Sendable {
    /// The screen, in columns and rows.
    package static let columns = 200
    package static let rows = 50

    private let scratch: ScratchDirectory
    private let socketName = "irssi"
    private let pid: Int32
    private let stopped = Mutex(false)

    /// Starts it and has it connect; registered when this returns.
    package init(port: UInt16, nick: String, password: String? = nil) throws {
        scratch = try ScratchDirectory()
        try scratch.directory("home")
        try scratch.write("home/config", Self.configuration(port: port, nick: nick, password: password))
        pid = try Self.startTerminal(scratch, socketName)
        do {
            // ngIRCd, InspIRCd, and servers without one
            try waitFor("End of MOTD", or: "End of message of the day", "End of /MOTD", "file is missing")
        } catch {
            stop()
            throw error
        }
    }

    deinit {
        stop()
    }

    /// Types a line and presses Enter.
    package func send(_ line: String) throws {
        try tmux(["send-keys", "-t", "irssi", "-l", "--", line])
        try press("Enter")
    }

    /// Presses keys by their names in tmux: `Enter`, `C-n`, `M-2`.
    package func press(_ keys: String...) throws {
        try tmux(["send-keys", "-t", "irssi"] + keys)
    }

    package func screen() throws -> String {
        try tmux(["capture-pane", "-p", "-J", "-t", "irssi"])
    }

    /// Waits until one of the texts is on the screen, and answers the screen.
    @discardableResult
    package func waitFor(_ text: String, or others: String..., timeout: Duration = Deadline.usual) throws -> String {
        var last = ""
        do {
            try eventually("\"\(text)\" on irssi's screen", timeout: timeout, every: .milliseconds(30)) {
                last = try screen()
                return ([text] + others).contains { last.contains($0) }
            }
        } catch {
            throw PeerError("\(error)\n\(last)")
        }
        return last
    }

    /// Ends the terminal and irssi with it.
    package func stop() {
        let first = stopped.withLock { stopped in
            defer { stopped = true }
            return !stopped
        }
        guard first else { return }
        // the terminal's server is nobody's child here, so its end shows only in the process table
        kill(pid, SIGTERM)
        if (try? eventually("end of tmux", timeout: .seconds(2), { kill(pid, 0) != 0 })) == nil {
            kill(pid, SIGKILL)
        }
    }

    @discardableResult
    private func tmux(_ arguments: [String]) throws -> String {
        try Self.tmux(scratch, socketName, arguments)
    }

    private static func tmux(_ scratch: ScratchDirectory, _ socket: String, _ arguments: [String]) throws -> String {
        let output = try ChildProcess.run(
            "tmux", ["-L", socket, "-f", "/dev/null"] + arguments,
            environment: [
                "TMUX_TMPDIR": scratch.path, "TMUX": "", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color",
                "HOME": scratch.path,
            ])
        guard output.succeeded else { throw PeerError("tmux \(arguments.first ?? ""): \(output.stderr)") }
        return output.stdout
    }

    private static func startTerminal(_ scratch: ScratchDirectory, _ socket: String) throws -> Int32 {
        _ = try tmux(
            scratch, socket,
            [
                "new-session", "-d", "-s", "irssi", "-x", "\(columns)", "-y", "\(rows)",
                "irssi", "--home=\(scratch.file("home"))",
            ])
        let text = try tmux(scratch, socket, ["display-message", "-p", "#{pid}"])
        guard let pid = Int32(text.trimmingCharacters(in: .whitespacesAndNewlines)) else {
            throw PeerError("tmux has no process id: \(text)")
        }
        return pid
    }

    private static func configuration(port: UInt16, nick: String, password: String?) -> String {
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
          };
          "irc/core" = { cmd_queue_speed = "10msec"; cmds_max_at_once = "50"; };
          "fe-text" = { term_force_colors = "no"; };
        };

        """
    }
}
