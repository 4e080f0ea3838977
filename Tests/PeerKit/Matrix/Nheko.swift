import Foundation
import TestKit

/// A real nheko, a Matrix client with windows as Debian packages it, on a screen that nobody sees (Xvfb).
///
/// Its profile has a login already. It is driven by keys, and shows what it has read in its database.
package final class Nheko {
    private static let program = "/usr/bin/nheko"
    /// The button that ends the first dialog, about encryption, which keys do not end. In pixels.
    private static let cancel = (x: 1000, y: 556)

    private let scratch: ScratchDirectory
    private let screen: VirtualScreen
    private let process: ChildProcess
    private let environment: [String: String]

    /// Starts it. Its first sync is done when this returns.
    ///
    /// - Parameter user: An account of ``Synapse``, which logs in through the same port.
    package init(port: UInt16, user: String, timeout: Duration = Deadline.usual) throws {
        try VirtualScreen.require([Self.program, "/usr/bin/xdotool"])
        scratch = try ScratchDirectory()
        try scratch.directory("home/.config/nheko")
        try scratch.write("home/.config/nheko/nheko.conf", try Self.profile(port: port, user: user), mode: 0o600)
        screen = try VirtualScreen(timeout: timeout)
        let home = scratch.file("home")
        environment = [
            "DISPLAY": screen.display, "HOME": home, "XDG_CONFIG_HOME": "\(home)/.config",
            "XDG_CACHE_HOME": "\(home)/.cache", "XDG_DATA_HOME": "\(home)/.local/share", "XDG_RUNTIME_DIR": home,
            "QT_QPA_PLATFORM": "xcb", "QT_QUICK_BACKEND": "software", "LIBGL_ALWAYS_SOFTWARE": "1",
            "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent", "LC_ALL": "C.UTF-8",
        ]
        process = try ChildProcess(Self.program, ["-l", "debug"], environment: environment)
        try eventually("a synchronised nheko", timeout: timeout, every: .milliseconds(200)) {
            (process.stdout + process.stderr).contains("initial sync completed")
        }
    }

    package func stop() {
        process.stop()
        screen.stop()
    }

    /// Opens a room by its name and writes into it.
    ///
    /// The window may not be ready, or a dialog be before it, so that keys have no effect: to be repeated until somebody has
    /// read the text.
    package func write(_ text: String, in room: String) throws {
        let found = try run(["search", "--onlyvisible", "--class", "nheko"])
        guard let window = found.stdout.split(separator: "\n").last.map(String.init) else { return }
        // Without a window manager nothing has the focus.
        try run(["windowfocus", window, "sleep", "0.5", "key", "Escape"])
        try run(["mousemove", "\(Self.cancel.x)", "\(Self.cancel.y)", "click", "1", "sleep", "1"])
        try run(["key", "ctrl+k", "sleep", "1", "type", "--delay", "50", room])
        try run(["sleep", "1", "key", "Return", "sleep", "1"])
        try run(["type", "--delay", "50", text])
        try run(["sleep", "1", "key", "Return"])
    }

    /// Whether it has a text: in its database, or in the log that it writes.
    package func knows(_ text: String) -> Bool { !PlaintextSearch(text).files(under: scratch.file("home")).isEmpty }

    @discardableResult
    private func run(_ words: [String]) throws -> ChildProcess.Output {
        try ChildProcess.run("/usr/bin/xdotool", words, environment: environment)
    }

    /// nheko 0.11, `UserSettings.cpp`. Its secrets stand in the file too, because there is no service for them.
    private static func profile(port: UInt16, user: String) throws -> String {
        let answer = try WebClient(port: port).request(
            "POST", "/_matrix/client/v3/login",
            [
                "type": "m.login.password", "identifier": ["type": "m.id.user", "user": .string(user)],
                "password": .string(Synapse.password),
            ])
        guard let token = answer.json["access_token"].string, let device = answer.json["device_id"].string else {
            throw PeerError("\(user) is not logged in: \(answer.status) \(answer.text)")
        }
        return """
            [General]
            run_without_secure_secrets_service=true

            [auth]
            access_token=\(token)
            device_id=\(device)
            home_server=http://127.0.0.1:\(port)
            user_id=\(Synapse.id(user))

            """
    }
}
