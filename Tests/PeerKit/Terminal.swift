import Foundation
import Glibc
import Synchronization
import TestKit

/// A terminal of its own for one program, which is driven by keys and read from the screen.
package final class Terminal: Sendable {
    /// The screen of a client, in columns and rows.
    package static let columns = 200
    package static let rows = 50

    /// What the program may write to; also its home.
    let scratch: ScratchDirectory
    let name: String
    /// tmux, and the program in it.
    private let pids: [Int32]
    private let stopped = Mutex(false)

    package init(
        _ program: String, _ arguments: [String], in scratch: ScratchDirectory, columns: Int = Terminal.columns,
        rows: Int = Terminal.rows
    ) throws {
        self.scratch = scratch
        name = URL(fileURLWithPath: program).lastPathComponent
        let options = ["-d", "-s", name, "-x", "\(columns)", "-y", "\(rows)"]
        let report = ["-P", "-F", "#{pid} #{pane_pid}"]
        let text = try Self.tmux(scratch, name, ["new-session"] + options + report + [program] + arguments)
        pids = text.split(whereSeparator: \.isWhitespace).compactMap { Int32($0) }
        guard pids.count == 2 else { throw PeerError("tmux has no process ids: \(text)") }
    }

    deinit {
        stop()
    }

    func type(_ text: String) throws {
        // tmux takes a semicolon at the end of an argument for the end of a command
        try tmux(["send-keys", "-t", name, "-l", "--", text.hasSuffix(";") ? text.dropLast() + "\\;" : text])
    }

    func press(_ keys: [String]) throws {
        try tmux(["send-keys", "-t", name] + keys)
    }

    package func screen() throws -> String {
        try tmux(["capture-pane", "-p", "-J", "-t", name])
    }

    /// Whether the program, or the terminal, still runs.
    var isRunning: Bool { pids.contains(where: Self.isAlive) }

    /// Ends the terminal and the program with it.
    package func stop() {
        let first = stopped.withLock { stopped in
            defer { stopped = true }
            return !stopped
        }
        guard first else { return }
        // the terminal's server hangs up on its program; both are nobody's children here
        pids.prefix(1).filter(Self.isAlive).forEach { kill($0, SIGTERM) }
        if (try? eventually("end of tmux", timeout: .seconds(2), { !isRunning })) == nil {
            pids.filter(Self.isAlive).forEach { kill($0, SIGKILL) }
            try? eventually("end of \(name)", timeout: .seconds(2), { !isRunning })
        }
    }

    /// An ended process stays in the table, as a zombie, for as long as its parent likes.
    private static func isAlive(_ pid: Int32) -> Bool {
        guard let data = FileManager.default.contents(atPath: "/proc/\(pid)/stat") else { return false }
        // 123 (name) S ...
        let state = String(decoding: data, as: UTF8.self).split(separator: ")").last?.drop { $0 == " " }.first
        return state != "Z" && state != "X"
    }

    @discardableResult
    private func tmux(_ arguments: [String]) throws -> String {
        try Self.tmux(scratch, name, arguments)
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
}

/// A chat client that runs on a terminal.
package protocol TerminalClient: AnyObject, Sendable {
    var terminal: Terminal { get }
}

extension TerminalClient {
    /// How ngIRCd, InspIRCd, and servers without one say the end of their message of the day.
    static var endsOfMOTD: [String] {
        ["End of MOTD", "End of message of the day", "End of /MOTD", "file is missing"]
    }

    /// Types a line and presses Enter.
    package func send(_ line: String) throws {
        try terminal.type(line)
        try press("Enter")
    }

    /// Presses keys by their names in tmux: `Enter`, `C-n`, `M-2`.
    package func press(_ keys: String...) throws {
        try terminal.press(keys)
    }

    /// What its user sees now.
    package func screen() throws -> String {
        try terminal.screen()
    }

    /// Whether any of its processes is left.
    package var isRunning: Bool { terminal.isRunning }

    /// Ends the terminal and the client with it.
    package func stop() {
        terminal.stop()
    }

    /// Waits until one of the texts is in what `source` answers, and answers that.
    func wait(for texts: [String], timeout: Duration, in source: () throws -> String) throws -> String {
        var last = ""
        do {
            try eventually("\"\(texts.first ?? "")\" in \(terminal.name)", timeout: timeout) {
                last = try source()
                return texts.contains { last.contains($0) }
            }
        } catch {
            throw PeerError("\(error)\n\(last)")
        }
        return last
    }
}
