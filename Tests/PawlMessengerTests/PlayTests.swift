import Foundation
import PeerKit
import TestThreads
import Testing

/// `deploy/quickstart --chat app` with the programs of this build: it checks what all see and what the database holds.
@Suite(.blocking) struct PlayTests {
    @Test func thePlayForAppsEndsWell() throws {
        let client = try PawlProcess.builtProgram("ChatClient")
        let script = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../deploy/quickstart").standardizedFileURL.path
        let output = try ChildProcess.run(
            script, ["--chat", "app", "--once"], environment: ["PAWL_BIN": client, "NO_COLOR": "1"],
            timeout: .seconds(300))
        #expect(output.succeeded, "\(output.stdout.suffix(3000))\(output.stderr.suffix(1000))")
        #expect(output.stdout.contains("Everybody saw every line"))
    }
}
