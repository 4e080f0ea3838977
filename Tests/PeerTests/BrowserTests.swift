import Foundation
import PeerKit
import TestThreads
import Testing

/// The page of `Tests/WebChat` in headless Chromium, on another origin than the gateway.
@Suite(.blocking, .serialized, .enabled(if: ProcessInfo.processInfo.environment["PAWL_LONG"] != nil))
struct BrowserTests {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    /// A browser on a busy machine takes its time.
    private static let patience = Duration.seconds(900)

    private func play(_ arguments: [String]) throws -> ChildProcess.Output {
        let python = Self.root.appending(path: ".build-peers-standins/bin/python").path
        guard FileManager.default.isExecutableFile(atPath: python) else {
            throw PeerError("no \(python); Tests/run installs it")
        }
        let program = Self.root.appending(path: "Tests/WebChat/browser.py").path
        return try ChildProcess.run(python, ["-B", program] + arguments, timeout: Self.patience)
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
}
