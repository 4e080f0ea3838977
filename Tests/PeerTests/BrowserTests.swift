import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// The page of `Tests/WebChat` in headless Chromium, on another origin than the gateway.
@Suite(.blocking, .serialized, .enabled(if: ProcessInfo.processInfo.environment["PAWL_LONG"] != nil))
struct BrowserTests {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    /// A browser on a busy machine takes its time.
    private static let patience = Duration.seconds(900)

    private static func python() throws -> String {
        let python = root.appending(path: ".build-peers-standins/bin/python").path
        guard FileManager.default.isExecutableFile(atPath: python) else {
            throw PeerError("no \(python); Tests/run installs it")
        }
        return python
    }

    private static func program(_ name: String) -> String { root.appending(path: "Tests/WebChat/\(name).py").path }

    private func play(_ arguments: [String], program: String = "browser") throws -> ChildProcess.Output {
        try ChildProcess.run(
            Self.python(), ["-B", Self.program(program)] + arguments, timeout: Self.patience)
    }

    @Test func theGenericChat() throws {
        let (directory, port) = (try ScratchDirectory(), try FreePort())
        let page = "http://127.0.0.1:\(port.number)"
        let text = try String(contentsOfFile: JSONLab.mapping("generic"), encoding: .utf8)
            .replacing(
                "[header Authorization, query token]", with: "[header Authorization, query token, cookie session]")
        let mapping = try directory.write(
            "pages.yaml", text + "\ncors:\n  origins: [\"\(page)\"]\n  credentials: true\n")
        var options = ChatBackendProcess.Options()
        options.pages = page
        let lab = try GenericLab(policy: "hosted", options, mapping: mapping)
        defer { lab.stop() }
        let output = try play([
            "--kind", "generic", "--page-port", "\(port.number)", "--gateway", "http://127.0.0.1:\(lab.gateway.port)",
            "--backend", "http://127.0.0.1:\(lab.backend.port)", "--control",
            "http://127.0.0.1:\(lab.backend.controlPort)", "--room", GenericLab.conversation, "--policy", "hosted",
        ])
        #expect(output.succeeded, "\(output.stdout)\(output.stderr.suffix(4000))")
        for word in ["Sauerampfer", "Wiesenkerbel", "Knabenkraut"] { #expect(try !lab.backend.knows(word)) }
    }

    @Test(arguments: ["opportunistic", "hosted"]) func matrix(policy: String) throws {
        let lab = try MatrixLab(policy: policy)
        defer { lab.stop() }
        let room = try lab.room([try lab.person("alice"), try lab.person("bob")])
        let port = try FreePort()
        let output = try play([
            "--kind", "matrix", "--page-port", "\(port.number)", "--gateway", "http://127.0.0.1:\(lab.gateway.port)",
            "--room", room, "--policy", policy, "--password", Synapse.password,
        ])
        #expect(output.succeeded, "\(output.stdout)\(output.stderr.suffix(4000))")
        if policy == "hosted" { #expect(lab.synapse.files(showing: "Wiesenkerbel").isEmpty) }
    }

    /// Web clients of IRC. InspIRCd's own WebSocket port shows what people see without a gateway.
    @Test(arguments: [(Backend.ngircd, "hosted"), (.inspircd, "hosted"), (.inspircd, "observe")])
    func irc(_ backend: Backend, _ policy: String) throws {
        let (page, web) = (try FreePort(), try FreePort())
        var options = InspIRCd.Options()
        options.webSocket = .text
        let server: any IRCServer = backend == .ngircd ? try NgIRCd() : try InspIRCd(options)
        let lab = try Lab(
            server, policy: policy, environment: ["PAWL_WEBSOCKET_ORIGINS": "http://127.0.0.1:\(page.number)"],
            arguments: ["--listen", "ws://127.0.0.1:\(web.number)"])
        defer { lab.stop() }
        let outsider = try lab.outsider("outsider")
        var arguments = [
            "--page-port", "\(page.number)", "--server", "ws://127.0.0.1:\(web.number)", "--outsider", outsider.nick,
            "--policy", policy,
        ]
        if policy == "observe", let port = (server as? InspIRCd)?.webSocketPort {
            arguments += ["--reference", "ws://127.0.0.1:\(port)"]
        }
        let output = try play(arguments, program: "irc")
        #expect(output.succeeded, "\(output.stdout)\(output.stderr.suffix(4000))")
        #expect(lab.tap.shows("Sauerampfer") == (policy == "observe"))
    }

    /// A run that is ended leaves no browser behind.
    @Test func theBrowserEndsWithItsProgram() throws {
        let directory = try ScratchDirectory()
        let port = try FreePort()
        let program = try ChildProcess(
            Self.python(),
            [
                "-B", Self.program("irc"), "--page-port", "\(port.number)", "--server", "ws://127.0.0.1:1",
                "--policy", "observe",
            ], environment: ["TMPDIR": directory.path])
        func browsers() -> Int {
            let processes = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
            return processes.count { process in
                guard Int(process) != nil, process != "\(program.pid)",
                    let words = FileManager.default.contents(atPath: "/proc/\(process)/cmdline")
                else { return false }
                return String(decoding: words, as: UTF8.self).contains("--user-data-dir=\(directory.path)")
            }
        }
        try eventually("the browser runs", timeout: Self.patience) { browsers() > 0 }
        program.kill(SIGTERM)
        try eventually("the browser has ended") { browsers() == 0 }
        try eventually("nothing is left") {
            try FileManager.default.contentsOfDirectory(atPath: directory.path).isEmpty
        }
        program.stop()
    }
}
