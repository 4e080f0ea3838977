import Foundation
import PeerKit
import TestThreads
import Testing

/// Programs with client libraries, directly and through the gateway: against stand-ins for chat servers that cannot be
/// installed here, and against Synapse.
///
/// `Tests/StandIns/compare.py` plays the steps; it can be run by hand.
@Suite(.blocking, .serialized) struct StandInTests {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    /// Folders below `Tests/StandIns`.
    static let servers = ["Mattermost", "RocketChat", "Zulip", "Matrix"]
    /// Bounds a failure: a run plays some hundred steps twice, and ends by itself.
    private static let patience = Duration.seconds(3000)

    private func compare(_ server: String, _ policy: String, _ arguments: [String]) throws -> ChildProcess.Output {
        let environment = server == "Matrix" ? "matrix" : "standins"
        let python = Self.root.appending(path: ".build-peers-\(environment)/bin/python").path
        guard FileManager.default.isExecutableFile(atPath: python) else {
            throw PeerError("no \(python); Tests/run installs it")
        }
        return try ChildProcess.run(
            python,
            [
                "-B", Self.root.appending(path: "Tests/StandIns/compare.py").path, server, "--pawl",
                PawlProcess.binary(), "--policy", policy,
            ] + arguments, timeout: Self.patience)
    }

    /// Under `opportunistic` the gateway reads all that it reads under `observe`, and more.
    private static let policies =
        ProcessInfo.processInfo.environment["PAWL_LONG"] == nil ? ["opportunistic"] : ["observe", "opportunistic"]

    /// `POLICY.txt` of a server lists the steps in which the policy differs from direct, if any do.
    @Test(arguments: servers, policies)
    func allStepsAreEqualToDirectOnes(server: String, policy: String) throws {
        let listed = Self.root.appending(path: "Tests/StandIns/\(server)/\(policy).txt").path
        let expected = FileManager.default.fileExists(atPath: listed) ? ["--expected", listed] : []
        let output = try compare(server, policy, expected)
        #expect(output.succeeded, "\(output.stdout.prefix(4000))\(output.stderr.suffix(2000))")
    }

    /// Only listed steps differ, and the server has no text that it should not have.
    @Test(arguments: servers) func hostedDiffersAsItIsListed(server: String) throws {
        let listed = Self.root.appending(path: "Tests/StandIns/\(server)/hosted.txt").path
        let output = try compare(server, "hosted", ["--expected", listed, "--canaries"])
        #expect(output.succeeded, "\(output.stderr.suffix(4000))")
    }
}
