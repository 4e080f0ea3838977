import Foundation
import TestKit

/// A real HexChat, an IRC client with windows as Debian packages it, on a screen that nobody sees.
///
/// A script in Lua gives it the commands of a person. What it shows is read from its logs, a file for each conversation.
package final class HexChat {
    private static let program = "/usr/bin/hexchat"

    private let scratch: ScratchDirectory
    private let screen: VirtualScreen
    private let process: ChildProcess
    private var commands = ""

    /// Starts it and has it connect; registered when this returns.
    package init(port: UInt16, nick: String, password: String? = nil, timeout: Duration = Deadline.usual) throws {
        try VirtualScreen.require([Self.program, "/usr/bin/xdotool"])
        scratch = try ScratchDirectory()
        try scratch.directory("home/addons")
        try scratch.directory("run")
        try scratch.write("home/hexchat.conf", Self.configuration(nick: nick, password: password))
        try scratch.write("home/addons/commands.lua", Self.script(directory: scratch.path))
        screen = try VirtualScreen(timeout: timeout)
        let home = scratch.file("home")
        let environment = [
            "DISPLAY": screen.display, "HOME": home, "XDG_CONFIG_HOME": home,
            "XDG_RUNTIME_DIR": scratch.file("run"),
            "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent", "GSETTINGS_BACKEND": "memory",
            "NO_AT_BRIDGE": "1", "LC_ALL": "C.UTF-8",
        ]
        process = try ChildProcess(
            Self.program, ["--cfgdir=\(home)", "irc://127.0.0.1:\(port)/"],
            environment: environment)
        do {
            try eventually("a connected HexChat", timeout: timeout, every: .milliseconds(100)) {
                if !process.isRunning { throw PeerError("HexChat has ended") }
                try Self.dismissDialog(environment)
                return FileManager.default.fileExists(atPath: scratch.file("registered"))
            }
        } catch {
            throw PeerError("\(error)\n\(process.stdout.suffix(2000))\(process.stderr.suffix(2000))")
        }
    }

    /// Presses Return in its window: to root it begins with a warning, and waits until that is read.
    private static func dismissDialog(_ environment: [String: String]) throws {
        let words = ["search", "--onlyvisible", "--class", "hexchat"]
        let found = try ChildProcess.run("/usr/bin/xdotool", words, environment: environment)
        guard let window = found.stdout.split(separator: "\n").last.map(String.init) else { return }
        _ = try ChildProcess.run(
            "/usr/bin/xdotool", ["windowfocus", window, "sleep", "0.2", "key", "Return"], environment: environment)
    }

    package func stop() {
        process.stop()
        screen.stop()
    }

    /// Gives it a command, without the slash. All are executed, one after the other.
    package func send(_ command: String) throws {
        commands += command + "\n"
        try Data(commands.utf8).write(to: URL(fileURLWithPath: scratch.file("commands")), options: .atomic)
    }

    /// The lines of its log of the conversation with a nick or in a channel, as `<nick> TAB text`; empty if there is none.
    package func log(_ name: String) -> String { scratch.read("home/logs/\(name.lowercased()).log") }

    /// Waits until a text is in a conversation, and returns its lines.
    @discardableResult
    package func waitFor(_ text: String, in name: String, timeout: Duration = Deadline.usual) throws -> String {
        do {
            try eventually("\(text) in HexChat", timeout: timeout, every: .milliseconds(50)) {
                log(name).contains(text)
            }
        } catch {
            throw PeerError("\(error)\n\(log(name))\n\(scratch.names(in: "home/logs"))")
        }
        return log(name)
    }

    private static func configuration(nick: String, password: String?) -> String {
        """
        version = 2.16.1
        irc_nick1 = \(nick)
        irc_nick2 = \(nick)_
        irc_nick3 = \(nick)__
        irc_user_name = \(nick.lowercased())
        irc_real_name = \(nick) of a test
        gui_slist_skip = 1
        gui_join_dialog = 0
        gui_tray = 0
        gui_autoopen_dialog = 1
        irc_logging = 1
        irc_logmask = %c.log
        stamp_log = 0
        text_replay = 0
        net_throttle = 0

        """
    }

    /// Commands are read from a file, because a bus for them would be another server.
    private static func script(directory: String) -> String {
        """
        hexchat.register("commands", "1", "Executes the commands of a test")
        local done = 0
        hexchat.hook_server("001", function()
          local file = io.open("\(directory)/registered", "w")
          file:close()
        end)
        hexchat.hook_timer(50, function()
          local file = io.open("\(directory)/commands", "r")
          if file then
            local number = 0
            for line in file:lines() do
              number = number + 1
              if number > done then
                done = number
                local context = hexchat.find_context(nil, nil)
                context:command(line)
              end
            end
            file:close()
          end
          return true
        end)

        """
    }
}
